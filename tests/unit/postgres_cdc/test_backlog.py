"""The backlog of a slot is told while a page waits for Kafka: that is when it grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from fetchers.postgres_cdc import backlog
from fetchers.postgres_cdc.backlog import telling_backlog
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.sdk import Fatal, Retriable
from fetchers.sdk.testing import FakeClock, FakeContext

WAIT_SECONDS_MAX = 120.0
KEYS = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "srv"}


class Server:
    """Its log grows by a byte from question to question; in between it is away, in one way and in another."""

    def __init__(self, asked: Iterator[int]) -> None:
        self._asked = asked

    def backlog(self) -> int:
        """Bytes."""
        number = next(self._asked)
        if number == 2:
            raise Retriable("the server is away")
        if number == 3:
            raise Fatal("the login is refused")
        return number


async def until(condition: Callable[[], bool]) -> None:
    """Let others get on until it is true."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.001)


async def test_the_backlog_is_told_while_a_page_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the block, and on while nobody asks for more pages; not behind it. A server that is away ends nothing."""
    found, server = PostgresCdcConfig.parse(KEYS), Server(count())
    assert found.config is not None

    @contextmanager
    def catalogue(_config: PostgresCdcConfig) -> Iterator[Server]:
        yield server

    monkeypatch.setattr(backlog, "catalogue", catalogue)
    monkeypatch.setattr(backlog, "BACKLOG_SECONDS", 0.001)
    clock = FakeClock()
    context = FakeContext(clock=clock)
    async with telling_backlog(context, found.config):
        assert context.backlogs == [0]
        await until(lambda: len(context.backlogs) > 4)
        told = [*context.backlogs]
    assert told[:4] == [0, 1, 4, 5]
    assert not clock.slept, "the clock of a test would jump from question to question, beside what the fetcher does"
    ended = len(context.backlogs)
    await asyncio.sleep(0.05)
    assert len(context.backlogs) == ended
