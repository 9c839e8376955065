"""The quickstart of Confluent's sink to HDFS, as it is printed, on a real HDFS and a real broker."""

from __future__ import annotations

import io
from pathlib import Path

import fastavro
import pytest

from service.config.files import read_properties
from service.sinks.filesystem.stores import HdfsStore
from tests.integration.sinks.sink_runs import Sinks, make_topic, produce, wait_until
from tests.integration.sinks.test_file_sink_killed import process
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]
PRINTED = Path(__file__).parents[3] / "docs" / "examples" / "seeds" / "quickstart-hdfs.properties"


@pytest.mark.timeout(600)
async def test_the_printed_names_each_record_once_over_a_kill(kafka: KafkaStack, hdfs: str, topic_name: str) -> None:
    """Ten records are three files and one that is open, whoever was killed on the way; only the address is replaced."""
    printed = read_properties(PRINTED)
    assert (printed["topics"], printed["hdfs.url"]) == ("test_hdfs", "hdfs://localhost:9000")
    url = f"{hdfs}/{topic_name}"
    store = HdfsStore(url)
    properties = {**printed, "hdfs.url": url}
    folder = "topics/test_hdfs/partition=0"
    names = [f"test_hdfs+0+{begin:010}+{begin + 2:010}.avro" for begin in (0, 3, 6)]
    values: list[bytes | None] = [b'{"n": %d}' % number for number in range(10)]
    await make_topic(kafka.bootstrap, "test_hdfs")
    await produce(kafka.bootstrap, "test_hdfs", values[:7])
    with process(kafka.bootstrap, properties):
        await wait_until(lambda: sorted(store.names(folder)) == names[:2])
    await produce(kafka.bootstrap, "test_hdfs", values[7:])
    async with Sinks(kafka.bootstrap, properties, flush_seconds=0.5).running():
        await wait_until(lambda: sorted(store.names(folder)) == names)
    rows = [row for name in names for row in fastavro.reader(io.BytesIO(store.read(f"{folder}/{name}")))]
    assert rows == [value.decode() for value in values[:9] if value is not None]
    assert sorted(store.walk("topics")) == [f"{folder}/{name}" for name in names]
