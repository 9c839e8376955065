"""Kill -9 a worker between a request of ``HttpSink`` and the commit: its page promises at least once."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.integration.sinks.sink_runs import Sinks, produce, wait_until
from tests.integration.sinks.test_file_sink_killed import process
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]
RECORDS = 200
HELD = RECORDS // 2


@dataclass
class Hook:
    """A server that does what it is asked, and keeps the answer to one record for itself until it is told to go on."""

    posts: Counter[int] = field(default_factory=Counter)
    """Requests by the number in the record."""
    named: dict[str, int] = field(default_factory=dict)
    """What a server has that takes each name of a request once."""
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: web.Request) -> web.Response:
        """One record."""
        number = (await request.json())["n"]
        self.posts[number] += 1
        self.named.setdefault(request.headers["Idempotency-Key"], number)
        if number == HELD:
            await self.may_answer.wait()
        return web.Response()


@pytest.mark.timeout(600)
async def test_no_record_is_lost_with_a_killed_worker(kafka: KafkaStack, topic_name: str) -> None:
    """What was posted and not committed is posted again; a server that knows the names of requests has it once."""
    hook = Hook()
    app = web.Application()
    app.router.add_post("/", hook.take)
    await produce(kafka.bootstrap, topic_name, [b'{"n":%d}' % number for number in range(RECORDS)])
    async with TestServer(app) as server:
        properties = {
            "name": topic_name,
            "connector.class": "HttpSink",
            "topics": topic_name,
            "http.api.url": str(server.make_url("/")),
            "idempotency.header": "Idempotency-Key",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        with process(kafka.bootstrap, properties):
            await wait_until(lambda: HELD in hook.posts)
        hook.may_answer.set()
        async with Sinks(kafka.bootstrap, properties, flush_seconds=0.5).running():
            await wait_until(lambda: RECORDS - 1 in hook.posts)
    assert sorted(hook.posts) == list(range(RECORDS))
    assert hook.posts[HELD] == 2
    assert max(hook.posts.values()) == 2
    assert list(hook.named.values()) == list(range(RECORDS))
