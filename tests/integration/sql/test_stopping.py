"""``JdbcSource`` stopped while its driver works: nothing of it stays at the server."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.databases import Postgres
from tests.integration.sql.reading import SECONDS_MAX, RealContext, source

pytestmark = pytest.mark.integration


class LateContext(RealContext):
    """A worker whose threads hand over what a call has returned only when the test allows it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_connected, self.may_return = threading.Event(), threading.Event()

    async def run_blocking(self, call: Any, *, subject: str = "", seconds_max: float = SECONDS_MAX) -> Any:
        """The call is over in its thread, and nobody has heard of it yet."""

        def late() -> Any:
            answer = call()
            self.has_connected.set()
            self.may_return.wait()
            return answer

        return await super().run_blocking(late, subject=subject, seconds_max=seconds_max)


async def test_a_task_stopped_while_it_connects_leaves_no_session(postgres: Postgres) -> None:
    """The connection is made in a thread; whoever awaited it has gone by then."""
    postgres.run("create table once (id bigserial primary key)")
    context = LateContext()
    keys = {"connection.url": postgres.url, "mode": "bulk", "table.whitelist": "once"}
    pages = source(keys).fetch(context)
    async with asyncio.TaskGroup() as group:
        fetching = group.create_task(anext(pages))
        await asyncio.to_thread(context.has_connected.wait)
        fetching.cancel()
    assert fetching.cancelled()
    context.may_return.set()
    sessions = "select count(*) from pg_stat_activity where datname = current_database()"
    sessions += " and application_name like 'headrace %'"
    async with asyncio.timeout(SECONDS_MAX):
        while (await asyncio.to_thread(postgres.rows, sessions))[0][0]:
            await asyncio.sleep(0.02)
