"""A server on a thread of its own: what becomes of an error after its start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from service.embedded.running import running


@asynccontextmanager
async def failing() -> AsyncIterator[str]:
    """Is there, and fails a moment later."""
    async with asyncio.TaskGroup() as group:
        group.create_task(fail())
        yield "server"


async def fail() -> None:
    """Soon."""
    await asyncio.sleep(0)
    raise LookupError


def test_who_ended_by_itself_says_why() -> None:
    """Not that its loop is closed, which is only what follows from it."""
    with pytest.raises(ExceptionGroup) as found, running(failing(), name="failing") as serving:
        wait_closed(serving.loop)
    assert isinstance(found.value.exceptions[0], LookupError)


def wait_closed(loop: asyncio.AbstractEventLoop) -> None:
    """Until the thread has left it."""
    while not loop.is_closed():
        os.sched_yield()
