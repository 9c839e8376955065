"""Dead letters put through their connector's conversion again, after the contract was mended.

The dead-letter topic is a source like any other: what passes goes to the connector's topic, what fails goes to the
topic's end again with its new reason, and how far the topic was read is an offset in the same transaction.
"""
