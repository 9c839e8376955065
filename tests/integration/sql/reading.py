"""What tests of ``JdbcSource`` on real databases share: a source that is read until it has said enough."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from fetchers.sdk import Page, SystemClock
from fetchers.sdk.testing.context import FakeContext
from fetchers.sql.config import JdbcConfig
from fetchers.sql.fetcher import JdbcSource

SECONDS_MAX = 300.0


class RealContext(FakeContext):
    """A context whose clock is the machine's, because the databases' clocks are; it counts sleeps."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.clock = CountingClock()  # type: ignore[assignment]

    async def wait_looks(self, count: int) -> None:
        """Return when the source has found nothing to hand over so many times."""
        end = self.clock.count + count  # type: ignore[attr-defined]
        while self.clock.count < end:  # type: ignore[attr-defined]
            await asyncio.sleep(0.02)


class CountingClock(SystemClock):
    """The machine's clock."""

    count = 0

    async def sleep(self, seconds: float) -> None:
        """Count, and wait."""
        self.count += 1
        await super().sleep(seconds)


def source(properties: Mapping[str, str]) -> JdbcSource:
    """A valid one, that polls often."""
    defaults = {"topic.prefix": "t.", "poll.interval.ms": "20", "table.poll.interval.ms": "20"}
    parsed = JdbcConfig.parse(defaults | dict(properties))
    assert parsed.config is not None, parsed.findings
    connector = JdbcSource(parsed.config)
    assert not [finding for finding in connector.findings() if finding.is_error]
    return connector


async def read_until(
    properties: Mapping[str, str], is_enough: Callable[[list[Page]], bool], context: FakeContext | None = None
) -> list[Page]:
    """Pages up to the one with which it is enough; each is committed as the worker would."""
    context = context or RealContext()
    pages: list[Page] = []
    async with asyncio.timeout(SECONDS_MAX), aclosing(source(properties).fetch(context)) as fetched:
        async for page in fetched:
            pages.append(page)
            context.commit(page)
            if is_enough(pages):
                break
    return pages


async def read_rows(properties: Mapping[str, str], count: int, context: FakeContext | None = None) -> list[Any]:
    """At least so many rows, as JSON."""
    pages = await read_until(properties, lambda pages: sum(map(len, pages)) >= count, context)
    return rows_of(pages)


def rows_of(pages: list[Page]) -> list[Any]:
    """Every row, numbers with all their digits."""
    return [json.loads(value or b"null", parse_float=str) for page in pages for value in page.values()]
