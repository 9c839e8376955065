"""Time that passes for the timers of an event loop, and for nobody else.

A limit in a test is either so generous that no slow machine reaches it, or is what the test is about. Of the second
kind, a short one would strike where it should not. With this it may be long, and the test says when it is over.
"""

from __future__ import annotations

import asyncio
import time


def let_pass(seconds: float) -> None:
    """From now on the running loop finds that so much more time has passed than really has.

    What is due by then is called at the loop's next turn, as after a process was stopped for so long. Whoever runs
    under a limit of real time beside it loses the same time.
    """
    loop = asyncio.get_running_loop()
    ahead_seconds = loop.time() + seconds - time.monotonic()
    loop.time = lambda: time.monotonic() + ahead_seconds  # type: ignore[method-assign]


async def let_pass_until_done(task: asyncio.Task[object] | asyncio.Future[object], seconds: float) -> None:
    """Let so much time pass again and again until the task is done, because only a limit can end what it waits for."""
    while not task.done():
        let_pass(seconds)
        await asyncio.sleep(0)
