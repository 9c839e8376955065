"""Writes values to a file, a line each: Kafka Connect's FileStreamSink, exactly once."""
