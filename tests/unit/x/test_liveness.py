"""Keep-alives and silence, in virtual time: a connection of which nothing comes is dead, one that blinks is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from fetchers.sdk import HttpDoor
from fetchers.sdk.testing import FakeContext
from fetchers.x.config import XStreamConfig
from fetchers.x.fetcher import XStreamSource

KEEP_ALIVE_SECONDS = 20.0


@dataclass(slots=True)
class Answer:
    """An answer of X."""

    body: bytes = b""
    blinks: int = 0
    """Keep-alives that come before it falls silent."""
    status: int = 200
    is_skipped: bool = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """Keep-alives, then nothing for ever."""
        for _ in range(self.blinks):
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            yield b"\r\n"
        await asyncio.Event().wait()


@dataclass(slots=True)
class Blinking:
    """An X that has our rule, and whose streams blink so often each; a stand-in for the http client."""

    blinks: int
    connected_at: list[float] = field(default_factory=list)
    """Virtual seconds."""

    def for_task(self, asker: object) -> Blinking:
        """The client of a task."""
        del asker
        return self

    async def request(self, method: str, url: str, **options: Any) -> Answer:
        """The list of rules."""
        assert (method, url.rpartition("/")[2]) == ("GET", "rules"), options
        return Answer(b'{"data":[{"id":"1","value":"kafka","tag":"headrace:test:1"}],"meta":{}}')

    @asynccontextmanager
    async def stream(self, method: str, url: str, **options: Any) -> AsyncIterator[Answer]:
        """One connection."""
        assert (method, url.rpartition("/")[2]) == ("GET", "stream"), options
        self.connected_at.append(asyncio.get_running_loop().time())
        yield Answer(blinks=self.blinks)


async def listen_for(seconds: float, http: Blinking) -> FakeContext:
    """Run the connector so long."""
    config = XStreamConfig.parse({"topic": "t", "x.bearer.token": "b", "x.keywords": "kafka", "x.recovery": "none"})
    assert config.config is not None
    context = FakeContext(http=cast("HttpDoor", http))
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            async for page in XStreamSource(config.config).fetch(context):
                assert len(page) == 0
    return context


@pytest.mark.looptime
async def test_keep_alives_alone_for_five_minutes_are_no_reason_to_connect_again() -> None:
    """Every 20 s, as X promises; the limit is 21 s."""
    http = Blinking(blinks=100)
    context = await listen_for(300.0, http)
    assert len(http.connected_at) == 1
    assert context.retries == []


@pytest.mark.looptime
async def test_silence_of_21_seconds_is_a_dead_connection_and_the_next_one_is_made_at_once() -> None:
    """Counted from the last sign of life."""
    http = Blinking(blinks=2)
    context = await listen_for(70.0, http)
    first, second = http.connected_at
    assert second - first == pytest.approx(2 * KEEP_ALIVE_SECONDS + 21.0)
    assert [wait for _, wait in context.retries] == [0.0]
    assert "said nothing for 21 s" in str(context.retries[0][0])
