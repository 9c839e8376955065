"""``HdfsSink`` on a real HDFS: a worker that is frozen beyond its session, and a name node that is restarted."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from service.embedded.ports import free_ports
from service.sinks.contract import StartAnew
from service.sinks.filesystem.stores import HdfsStore
from tests.hdfs import opened_hdfs
from tests.integration.sinks.sink_runs import Sinks, make_topic, produce, wait_until
from tests.integration.sinks.test_sinks_frozen import JSON, Frozen, payloads, put_to_the_test
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]
"""The client tries for three minutes to reach a name node that is away."""


def properties_of(topic: str, url: str) -> dict[str, str]:
    """Files of ten records, JSON a line."""
    return {
        **JSON,
        "name": topic,
        "connector.class": "HdfsSink",
        "topics": topic,
        "hdfs.url": url,
        "format.class": "io.confluent.connect.hdfs.json.JsonFormat",
        "flush.size": "10",
    }


def numbers(store: HdfsStore, topic: str) -> list[int]:
    """What stands in the files that have their final names, in order."""
    names = [name for name in store.walk(f"topics/{topic}") if name.endswith(".json")]
    return sorted(json.loads(line)["n"] for name in names for line in store.read(name).split(b"\n")[:-1])


async def test_a_frozen_worker(kafka: KafkaStack, hdfs: str, topic_name: str, tmp_path: Path) -> None:
    """Its files get no final names: the log beside the files says who owns the partition."""
    url = f"{hdfs}/{topic_name}"
    store = HdfsStore(url)

    async def read() -> object:
        return numbers(store, topic_name)

    frozen = Frozen(kafka.bootstrap, properties_of(topic_name, url), "put", tmp_path / "told")
    told = await put_to_the_test(frozen, topic_name, read, lambda count: list(range(count)))
    assert "another task has taken the partition over" in told


async def test_a_name_node_that_is_restarted(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """In mid-file: what was open is begun anew, and each record is in one file, once."""
    ports = free_ports(2)
    await make_topic(kafka.bootstrap, topic_name)
    await produce(kafka.bootstrap, topic_name, payloads(0, 25))
    async with AsyncExitStack() as stack:
        url = f"{await stack.enter_async_context(opened_hdfs(tmp_path, ports=ports))}/{topic_name}"
        sinks = Sinks(kafka.bootstrap, properties_of(topic_name, url), flush_seconds=0.5)
        with pytest.RaisesGroup(StartAnew):
            async with sinks.running():
                await wait_until(lambda: len(numbers(HdfsStore(url), topic_name)) == 20)
                await stack.aclose()
                await produce(kafka.bootstrap, topic_name, payloads(25, 10))
                await asyncio.Event().wait()
    async with opened_hdfs(tmp_path, ports=ports):
        assert numbers(HdfsStore(url), topic_name) == list(range(20))
        await produce(kafka.bootstrap, topic_name, payloads(35, 5))
        async with sinks.running():
            await wait_until(lambda: len(numbers(HdfsStore(url), topic_name)) >= 40)
        assert numbers(HdfsStore(url), topic_name) == list(range(40))
