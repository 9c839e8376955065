"""The only door to a Kafka client: settings, writers, readers and topic administration.

Nothing outside this package imports the client library, so that its habits (errors, hanging closes,
private switches) are known in one place.
"""

from __future__ import annotations

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, KafkaFailure, RecordsRefused, WriterFenced
from service.kafka.producer import IdempotentWriter, TransactionalWriter, Writer, transactional_id
from service.kafka.records import Header, TopicRecords

__all__ = [
    "DeliveryFatal",
    "DeliveryRetriable",
    "Header",
    "IdempotentWriter",
    "KafkaFailure",
    "KafkaSettings",
    "RecordsRefused",
    "TopicRecords",
    "TransactionalWriter",
    "Writer",
    "WriterFenced",
    "transactional_id",
]
