"""Brings an embedded server back when it dies under a living worker, as an operator would an external one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from service.embedded.errors import EmbeddedError

RESTART_WAIT_SECONDS_MIN = 0.5
RESTART_WAIT_SECONDS_MAX = 30.0


class Restartable(Protocol):
    """What of an ``EmbeddedServer`` matters here."""

    async def wait_exited(self) -> int:
        """Wait for its end and return the exit code."""

    async def start(self) -> None:
        """Start it unless it runs; ready on return. Raises EmbeddedError or, as of a full disk, OSError."""


async def keep_running(server: Restartable, *, tell: Callable[[str], None]) -> None:
    """Start the server again whenever it has ended, until cancelled; cancel this before stopping the server.

    `tell` gets one line for every end, every start that failed and every one that succeeded. The wait between
    starts doubles up to RESTART_WAIT_SECONDS_MAX while they fail.
    """
    wait_seconds = RESTART_WAIT_SECONDS_MIN
    while True:
        code = await server.wait_exited()
        tell(f"ended with code {code}; starting it again in {wait_seconds:g} s")
        await asyncio.sleep(wait_seconds)
        try:
            await server.start()
        except (EmbeddedError, OSError) as error:
            tell(str(error))
            wait_seconds = min(wait_seconds * 2, RESTART_WAIT_SECONDS_MAX)
        else:
            tell("runs again")
            wait_seconds = RESTART_WAIT_SECONDS_MIN
