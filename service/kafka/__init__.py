"""The only door to a Kafka client: settings, writers, readers and topic administration.

Nothing outside this package imports the client library, so that its habits (errors, hanging closes,
private switches) are known in one place.
"""
