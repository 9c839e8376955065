"""A search server whose disk is too full by its own account: the block is the server's own, and so is its lifting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from service.app import open_worker
from service.background import Background
from service.embedded.search import embedded_search
from service.job import make_job
from tests.integration.rest.test_real_worker import wait_healthy
from tests.integration.sinks.sink_runs import make_topic, produce
from tests.rest_client import RestClient
from tests.scenarios.cluster_workers import InstantConversion
from tests.search_suite import Search
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(900)]
RECORDS = 20
"""Before the disk is too full, and again while it is."""
WAIT_SECONDS_MAX = 300.0
"""The server looks at its disk every 10 s, the sink puts again every 30 s."""
LOOK_SECONDS = 0.2
WATERMARK = "cluster.routing.allocation.disk.watermark."


async def wait_for(is_so: Callable[[], Awaitable[bool]]) -> None:
    """Look again and again."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not await is_so():
            await asyncio.sleep(LOOK_SECONDS)


async def set_room_wanted(search: Search, size: str) -> None:
    """How much of the disk must be free at every stage."""
    settings = {
        "cluster.routing.allocation.disk.threshold_enabled": True,
        "cluster.info.update.interval": "10s",
        **{f"{WATERMARK}{stage}": size for stage in ("low", "high", "flood_stage")},
    }
    told = await search.ask("PUT", "/_cluster/settings", {"transient": settings})
    assert told["acknowledged"], told


async def test_the_server_blocks_and_lifts_the_block_itself(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """The task waits, with what to do on ``/health/ready``, and goes on by itself: each record is there once."""
    await make_topic(kafka.bootstrap, topic_name)
    worker_keys = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": topic_name,
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(tmp_path / "worker"),
    }
    opened = open_worker(make_job(worker_keys, ()), conversion=InstantConversion())
    async with embedded_search(data_dir=tmp_path) as server, opened as worker, Background() as background:
        background.start(worker.worker.run(idle_seconds=None), name="worker")
        search = Search(server.address, topic_name)
        config = {
            "connector.class": "ElasticsearchSink",
            "topics": topic_name,
            "connection.url": search.url,
            "key.ignore": "true",
            "schema.ignore": "true",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.retry.timeout": "-1",
            "connection.timeout.ms": "60000",
            "read.timeout.ms": "60000",
        }
        async with aiohttp.ClientSession(worker.addresses.rest) as client:
            await wait_healthy(client)
            rest = RestClient(worker.addresses.rest, client)
            await rest.done("PUT", f"/connectors/{topic_name}/config", config)

            async def has(count: int) -> bool:
                found = await search.documents() if await search.ask("HEAD", f"/{topic_name}") == 200 else {}
                return sorted(each["n"] for each in found.values()) == list(range(count))

            async def is_blocked() -> bool:
                settings = (await search.ask("GET", f"/{topic_name}/_settings?flat_settings=true"))[topic_name]
                return bool(settings["settings"].get("index.blocks.read_only_allow_delete") == "true")

            async def says_what_to_do() -> bool:
                _, told = await rest.ask("GET", "/health/ready")
                return "a disk of the server is too full" in str(told) and "Make room on it" in str(told)

            await bring(kafka, topic_name, 0)
            await wait_for(lambda: has(RECORDS))
            await set_room_wanted(search, "1pb")
            await wait_for(is_blocked)
            await bring(kafka, topic_name, RECORDS)
            await wait_for(says_what_to_do)
            assert await has(RECORDS)
            assert (await rest.states(topic_name))["0"][0] == "RUNNING"
            await set_room_wanted(search, "1b")
            await wait_for(lambda: has(2 * RECORDS))
            assert not await is_blocked()
        worker.worker.request_stop("the test is over")


async def bring(kafka: KafkaStack, topic: str, begin: int) -> None:
    """Records whose number is their offset."""
    await produce(kafka.bootstrap, topic, [b'{"n":%d}' % number for number in range(begin, begin + RECORDS)])
