"""A source of numbers for tests of Spark's data source, found by its module's name in processes that Spark starts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from pydantic import Field

from fetchers.sdk import DedupeScope, FetchContext, FetcherConfig, Offset, Page, Partition, Rejection, SourceConnector

CLASS = "tests.counting_source:CountingSource"
SCHEMA = '{"type":"record","name":"Count","fields":[{"name":"n","type":"long"},{"name":"text","type":"string"}]}'


def grow_to(until: Path, count: int) -> None:
    """Say that there are so many numbers now, in one step."""
    written = until.with_suffix(".new")
    written.write_text(str(count))
    written.replace(until)


class CountingConfig(FetcherConfig):
    """What there is to count."""

    counting_until: Path
    """File that says how many numbers there are now; it may grow. What is committed is noted beside it."""
    counting_page: int = Field(default=10, ge=1)
    """Records of a page."""
    counting_bad: int = 0
    """Every so manieth record is none of ``SCHEMA``; 0: all are."""
    counting_twice: int = 0
    """Every so manieth record comes twice."""
    counting_gate: Path | None = None
    """A folder: the first who fetches the second page notes its process there, and waits to be killed."""
    counting_first: int = 0
    counting_step: int = 1
    """A task has every so manieth number from the first on."""


class CountingSource(SourceConnector[CountingConfig]):
    """Numbers from 0 on, split among tasks by their remainder."""

    def partition(self) -> Partition:
        """By task."""
        return {"first": self.config.counting_first}

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """As many as are allowed."""
        return [{"counting.first": str(at), "counting.step": str(tasks_max)} for at in range(tasks_max)]

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Count, look again, and go on for ever."""
        config = self.config
        position = context.offset.get("next", config.counting_first)
        at = position if isinstance(position, int) else config.counting_first
        is_second = False
        while True:
            until = int(config.counting_until.read_text())
            while at < until:
                if is_second:
                    await self._pass_gate()
                last = min(until, at + config.counting_page * config.counting_step)
                numbers = range(at, last, config.counting_step)
                at = numbers[-1] + config.counting_step
                is_second = True
                yield self._page(numbers, at)
            context.finish_round()
            await context.clock.sleep(config.poll_interval)

    async def on_committed(self, partition: Partition, offset: Offset) -> None:
        """Note it."""
        del partition
        with self.config.counting_until.with_suffix(".committed").open("a") as file:
            file.write(f"{offset['next']}\n")

    def _page(self, numbers: range, at: int) -> Page:
        config = self.config
        payloads = []
        for number in numbers:
            is_bad = config.counting_bad and number % config.counting_bad == 0
            payload = b'{"n":"%d"}' % number if is_bad else b'{"n":%d,"text":"t%d"}' % (number, number)
            payloads += [payload] * (2 if config.counting_twice and number % config.counting_twice == 0 else 1)
        return Page(payloads, {"next": at}, self.partition(), dedupe=DedupeScope("a", "a"))

    async def _pass_gate(self) -> None:
        gate = self.config.counting_gate
        if gate is None:
            return
        try:
            with (gate / "pid").open("x") as file:
                file.write(f"{os.getpid()}\n")
        except FileExistsError:
            return
        await asyncio.Event().wait()


class DoubtingSource(CountingSource):
    """Cannot vouch for the first record of a page."""

    def _page(self, numbers: range, at: int) -> Page:
        page = super()._page(numbers, at)
        own = (Rejection(0, "too_large", "record: longer than the source allows"),)
        return Page(page.payloads, page.offset, page.partition, rejections=own)
