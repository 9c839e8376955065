"""A connector that hangs where it is told to, as a user's own may; found on the worker's PYTHONPATH."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping, Sequence

from fetchers.sdk import FetchContext, FetcherConfig, Finding, Page, SourceConnector


class HangingConfig(FetcherConfig):
    """Where to hang."""

    hang_in: str = "fetch"
    """``findings``, ``task_configs``, ``fetch``, or ``stubborn``: in a fetch that swallows its cancellation."""


class Hanging(SourceConnector[HangingConfig]):
    """Never yields anything."""

    def findings(self) -> Sequence[Finding]:
        """Block a thread."""
        self._block("findings")
        return ()

    def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
        """Block a thread."""
        del tasks_max
        self._block("task_configs")
        return ({},)

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Wait for nothing."""
        del context
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if self.config.hang_in != "stubborn":
                    raise
        yield

    def _block(self, where: str) -> None:
        if self.config.hang_in == where:
            threading.Event().wait()
