"""How much log the server keeps for the slot: told again and again, whatever the task waits for meanwhile.

While a page waits for Kafka nothing is confirmed to the server, and its log grows: a figure from before the wait would
say that nothing is the matter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fetchers.postgres_cdc.catalogue import catalogue
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.sdk import Fatal, FetchContext, Retriable
from fetchers.sdk.ahead import Ahead

BACKLOG_SECONDS = 30.0
"""Between two questions."""


@asynccontextmanager
async def telling_backlog(context: FetchContext, config: PostgresCdcConfig) -> AsyncIterator[None]:
    """Report the backlog before the block, and from time to time while it runs.

    A server that cannot be asked is none of its business: who reads the log hears of that, and by the log's own errors.
    """

    def asked() -> int:
        with catalogue(config) as server:
            return server.backlog()

    async def report() -> None:
        with suppress(Retriable, Fatal):
            context.report_backlog(await context.run_blocking(asked, subject="backlog"))

    async def go_on() -> None:
        while True:
            await asyncio.sleep(BACKLOG_SECONDS)  # not the task's own waiting, which its clock is for
            await report()

    await report()
    async with Ahead[None]() as reporting:
        reporting.start(go_on(), name="backlog")
        yield
