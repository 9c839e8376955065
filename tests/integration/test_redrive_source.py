"""Which letters of a real topic a redrive reads."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fetchers.sdk import Offset
from fetchers.sdk.testing import FakeContext
from metrics.events import DeadLettersReadAnew
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.producer import TransactionalWriter
from service.kafka.records import TopicRecords
from service.redrive.source import DeadLetterFeed, DeadLetterSource, Nameless, RedriveConfig
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration

LETTERS = [b"1", b"2", b"3"]


async def read(settings: KafkaSettings, topic: str, offset: Offset) -> tuple[list[bytes | None], FakeContext]:
    """What a redrive reads that goes on there."""
    feed = DeadLetterFeed(settings, "c", Nameless.OWN)
    source = DeadLetterSource(RedriveConfig.model_validate({"topic": topic}), feed)
    context = FakeContext(offset=offset, partition={"dead.letters": topic, "connector": "c", "partition": 0})
    return [value async for page in source.fetch(context) for value in page.values()], context


async def test_a_topic_that_was_made_anew_is_read_from_its_beginning(kafka: KafkaStack, topic_name: str) -> None:
    """The last redrive of the topic of that name went further than it reaches; that is told."""
    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=1)
    writer = TransactionalWriter(settings, transactional_id=topic_name)
    await writer.start()
    await writer.commit([TopicRecords(topic_name, pa.array(LETTERS, pa.binary()))])
    await writer.stop()
    values, context = await read(settings, topic_name, {"offset": 1})
    assert (values, context.events) == (LETTERS[1:], [])
    values, context = await read(settings, topic_name, {"offset": 1_000})
    assert values == LETTERS
    assert [type(event) for event in context.events] == [DeadLettersReadAnew]
