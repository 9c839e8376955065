"""A source of several parts that counts in each; a worker finds it as ``tests.scenarios.counting:Counting``.

Its parts are the names in a file where one is given, and may become more while it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from fetchers.sdk import FetchContext, FetcherConfig, Page, PayloadKind, SourceConnector, WorkContext

PARTS = ("x", "y")


class CountingConfig(FetcherConfig):
    """How far, and which parts."""

    count_to: int = 1
    parts: str = ",".join(PARTS)
    """Of this task."""
    parts_file: str = ""
    """A file with a part in each line."""


class Counting(SourceConnector[CountingConfig]):
    """Deals the parts to its tasks, and stays when it has counted."""

    payload_kind: ClassVar[PayloadKind] = PayloadKind.TEXT

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """One task for each part, or fewer that have several."""
        self.seen = self._look()
        count = min(tasks_max, len(self.seen))
        return [{"parts": ",".join(self.seen[number::count])} for number in range(count)]

    async def work_changed(self, context: WorkContext) -> None:
        """Until the file names other parts."""
        while not self.config.parts_file or await context.run_blocking(self._look) == self.seen:
            await context.clock.sleep(0.1)

    def _look(self) -> list[str]:
        path = self.config.parts_file
        return Path(path).read_text(encoding="utf-8").split() if path else list(PARTS)

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """One record a page, from where each part was left."""
        for part in self.config.parts.split(","):
            counted = int(context.offset_of({"part": part}).get("counted") or 0)
            for number in range(counted, self.config.count_to):
                yield Page([f"{part}{number}".encode()], {"counted": number + 1}, {"part": part})
        await asyncio.Event().wait()


def counted(count_to: int, parts: Sequence[str] = PARTS) -> list[str]:
    """All records there are then, sorted."""
    return sorted(f"{part}{number}" for part in parts for number in range(count_to))
