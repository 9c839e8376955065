"""A server of this worker's own: one JVM at a time behind one port, which it keeps however often it is restarted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from service.embedded.child import GuardedJvm
from service.embedded.errors import StartFailed
from service.embedded.ownership import owned
from service.embedded.ports import free_ports, require_free

START_ATTEMPTS_MAX = 3
ADDRESS_FILE = "address"
"""In the server's folder, while it runs: for who finds the folder in use, and wants to read."""
OWNER_STOP_SECONDS_MAX = 5.0
"""For an earlier owner of the data to let go, besides what its server may take to stop."""


class Program(Protocol):
    """What sets one server apart from another."""

    @property
    def name(self) -> str:
        """What the server is called in messages to people."""

    @property
    def port_key(self) -> str:
        """Key of a worker's file that names its port."""

    @property
    def port_taken_text(self) -> str:
        """What its log says where somebody was quicker with the port."""

    def address(self, port: int) -> str:
        """What clients connect to: host and port, or a URL, as their settings want it."""

    async def launch(self, port: int) -> GuardedJvm:
        """Start it and wait until it serves clients; raises StartFailed, and then nothing of it runs."""


class EmbeddedServer:
    """A server that runs as a guarded child process, and can be started again in its place."""

    def __init__(self, program: Program, *, port: int) -> None:
        """Take the port that was asked for; 0: any free one, chosen at the first start."""
        self._program = program
        self._is_port_chosen = port == 0
        self._port = port
        self._jvm: GuardedJvm | None = None
        self._changing = asyncio.Lock()

    @property
    def name(self) -> str:
        """What the server is called in messages to people."""
        return self._program.name

    @property
    def address(self) -> str:
        """What clients connect to, once it was started."""
        return self._program.address(self._port)

    @property
    def pid(self) -> int:
        """The process id of the JVM that runs now, or ran last."""
        return self._last_jvm.pid

    def is_alive(self) -> bool:
        """Whether its process runs; it may be busy starting."""
        return self._jvm is not None and self._jvm.is_alive()

    async def wait_exited(self) -> int:
        """Wait until its process has ended; the exit code, 128 + signal if it was killed."""
        return await self._last_jvm.wait_exited()

    async def start(self) -> None:
        """Start it unless it runs, and wait until it serves clients. Raises EmbeddedError, and OSError of its files."""
        async with self._changing:
            if not self.is_alive():
                await self._start()

    async def stop(self) -> None:
        """Stop it in its own way, by force after its grace."""
        async with self._changing:
            if self._jvm is not None:
                await self._jvm.stop()

    async def restart(self) -> None:
        """Stop it, if it still runs, and start it again with the same port on the same data."""
        await self.stop()
        await self.start()

    @property
    def _last_jvm(self) -> GuardedJvm:
        if self._jvm is None:
            raise StartFailed(f"{self.name} has never been started")
        return self._jvm

    async def _start(self) -> None:
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            if self._is_port_chosen and self._jvm is None:
                (self._port,) = free_ports(1)
            else:
                require_free(self._port, key=self._program.port_key)
            try:
                self._jvm = await self._program.launch(self._port)
            except StartFailed as failure:
                # Somebody may have been quicker with a port that was free a moment ago.
                if attempt == START_ATTEMPTS_MAX or self._program.port_taken_text not in str(failure):
                    raise
            else:
                return


@asynccontextmanager
async def serving(
    folder: Path, make_program: Callable[[int], Program], *, port: int, stop_seconds_max: float
) -> AsyncIterator[EmbeddedServer]:
    """Run a server on the data in ``folder``; ready on entry, gone on exit. ``make_program`` takes the folder's lock.

    Raises DataDirectoryBusy where another worker uses the folder, PortBusy where the port is taken, StartFailed with
    the end of its log where the server does not come up.
    """
    async with owned(folder, wait_seconds_max=stop_seconds_max + OWNER_STOP_SECONDS_MAX) as lock:
        server = EmbeddedServer(make_program(lock), port=port)
        try:
            await server.start()
            (folder / ADDRESS_FILE).write_text(f"{server.address}\n", encoding="utf-8")
            yield server
        finally:
            (folder / ADDRESS_FILE).unlink(missing_ok=True)
            await server.stop()


@asynccontextmanager
async def stopped_unless_ready(jvm: GuardedJvm) -> AsyncIterator[None]:
    """For ``launch``: an error in the block, or a cancellation, ends the JVM."""
    try:
        yield
    except BaseException:
        await jvm.stop()
        raise
