"""A source of several parts that counts in each; a worker finds it as ``tests.scenarios.counting:Counting``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import ClassVar

from fetchers.sdk import FetchContext, FetcherConfig, Page, PayloadKind, SourceConnector

PARTS = ("x", "y")


class CountingConfig(FetcherConfig):
    """How far, and which parts."""

    count_to: int = 1
    parts: str = ",".join(PARTS)
    """Of this task."""


class Counting(SourceConnector[CountingConfig]):
    """Deals the parts to its tasks, and stays when it has counted."""

    payload_kind: ClassVar[PayloadKind] = PayloadKind.TEXT

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """One task for each part, or fewer that have several."""
        count = min(tasks_max, len(PARTS))
        return [{"parts": ",".join(PARTS[number::count])} for number in range(count)]

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """One record a page, from where each part was left."""
        for part in self.config.parts.split(","):
            counted = int(context.offset_of({"part": part}).get("counted") or 0)
            for number in range(counted, self.config.count_to):
                yield Page([f"{part}{number}".encode()], {"counted": number + 1}, {"part": part})
        await asyncio.Event().wait()


def counted(count_to: int) -> list[str]:
    """All records there are then, sorted."""
    return sorted(f"{part}{number}" for part in PARTS for number in range(count_to))
