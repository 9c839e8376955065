"""Another config for a running listener of X, sent by REST to a real worker over a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from service.app import open_worker
from service.background import Background
from service.job import make_job
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import read_topic
from service.simulators.x import XSimulator
from service.simulators.x_settings import STREAM_PATH, XSettings
from tests.scenarios.cluster_workers import InstantConversion
from tests.stack import KafkaStack

LOOK_SECONDS, WAIT_SECONDS_MAX = 0.1, 120.0


@pytest.mark.integration
@pytest.mark.timeout(600)
async def test_a_config_that_is_put_changes_the_rules_under_the_connection(
    kafka: KafkaStack, topic_name: str, tmp_path: Path
) -> None:
    """Posts of the new keyword come, those of the old one do not, and X has seen one connection all the time."""
    worker_properties = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": topic_name,
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(tmp_path / "data"),
    }
    job = make_job(worker_properties, ())
    async with (
        XSimulator(XSettings(keep_alive_seconds=1.0)) as x,
        open_worker(job, conversion=InstantConversion()) as worker,
        Background() as background,
        aiohttp.ClientSession(worker.addresses.rest) as client,
    ):
        background.start(worker.worker.run(idle_seconds=None), name="worker")
        config = {
            "connector.class": "XStreamSource",
            "topic": topic_name,
            "x.base.url": x.url,
            "x.bearer.token": x.settings.bearer_token,
            # A busy machine that is silent for as long as X is allowed to be costs no connection.
            "x.silence.ms": "300000",
        }

        async def is_put(keywords: str) -> bool:
            body = {**config, "x.keywords": keywords}
            async with client.put(f"/connectors/{topic_name}/config", json=body) as answer:
                return answer.status in {200, 201}

        async def has_texts(*texts: str) -> bool:
            return await _texts(kafka.bootstrap, topic_name) == list(texts)

        async def has_rules(*rules: str) -> bool:
            return set(x.rules.values) == set(rules)

        await _wait(lambda: is_put("kafka,gnu"))
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await x.wait_for_connections(1)
        x.post("of kafka")
        await _wait(lambda: has_texts("of kafka"))
        assert await is_put("kafka,zebra")
        await _wait(lambda: has_rules("kafka", "zebra"))
        x.post("a gnu")
        x.post("a zebra")
        await _wait(lambda: has_texts("of kafka", "a zebra"))
        assert sum(request.path == STREAM_PATH for request in x.requests) == 1
        async with client.get(f"/connectors/{topic_name}/status") as answer:
            assert [task["state"] for task in (await answer.json())["tasks"]] == ["RUNNING"]
        worker.worker.request_stop("the test is over")


async def _wait(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not await is_so():
            await asyncio.sleep(LOOK_SECONDS)


async def _texts(bootstrap: str, topic: str) -> list[str]:
    """Of the posts in the topic; none while it is not there."""
    try:
        found = [r async for batch in read_topic(KafkaSettings(bootstrap=bootstrap), topic) for r in batch]
    except DeliveryFatal:
        return []
    return [json.loads(record.value or b"")["data"]["text"] for record in found]
