"""The embedded schema registry: Apicurio Registry, which speaks the Confluent API (ccompat v7).

Its schemas are kept in an H2 database file under the data directory: a topic of Avro records is worth nothing
without the ids that its records carry. Ready means that the API answers and that the global compatibility
level is BACKWARD, Confluent's default, where Apicurio's own is NONE.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp

from service.embedded.child import GuardedJvm, JvmCommand
from service.embedded.errors import StartFailed
from service.embedded.jars import java_program, registry_folder
from service.embedded.ownership import owned
from service.embedded.ports import LOOPBACK, free_ports, require_free

HEAP_MIB = 256
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 15.0
START_ATTEMPTS_MAX = 3

_ANSWER_SECONDS_MAX = 5.0
# What Quarkus says when it cannot bind.
_PORT_TAKEN = "seems to be in use by another process"
_COMPATIBILITY_MARK = "compatibility-set"


class EmbeddedRegistry:
    """A running registry. It keeps its port and its schemas however often it is restarted."""

    name = "the embedded schema registry"

    def __init__(self, folder: Path, *, port: int, heap_mib: int, lock: int) -> None:
        """Take the owned directory, the port that was asked for (0: any free one) and the heap's size."""
        self.folder = folder
        self.port = port
        self._is_port_chosen = port == 0
        self._heap_mib = heap_mib
        self._lock = lock
        self._jvm: GuardedJvm | None = None
        self._changing = asyncio.Lock()

    @property
    def url(self) -> str:
        """What clients take as `schema.registry.url`."""
        return f"http://{LOOPBACK}:{self.port}/apis/ccompat/v7"

    @property
    def pid(self) -> int:
        """The process id of the JVM that runs now, or ran last."""
        if self._jvm is None:
            raise StartFailed("the registry has never been started")
        return self._jvm.pid

    def is_alive(self) -> bool:
        """Whether its process runs."""
        return self._jvm is not None and self._jvm.is_alive()

    async def wait_exited(self) -> int:
        """Wait until the registry's process has ended; its exit code, 128 + signal if it was killed."""
        if self._jvm is None:
            raise StartFailed("the registry has never been started")
        return await self._jvm.wait_exited()

    async def start(self) -> None:
        """Start the registry and wait until it answers."""
        async with self._changing:
            if not self.is_alive():
                await self._start()

    async def stop(self) -> None:
        """Stop the registry, by force after STOP_SECONDS_MAX."""
        async with self._changing:
            if self._jvm:
                await self._jvm.stop()

    async def restart(self) -> None:
        """Stop it, if it still runs, and start it again with the same port on the same schemas."""
        await self.stop()
        await self.start()

    async def _start(self) -> None:
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            if self._is_port_chosen and self._jvm is None:
                (self.port,) = free_ports(1)
            else:
                require_free(self.port)
            try:
                await self._start_once()
            except StartFailed as failure:
                # Somebody may have been quicker with a port that was free a moment ago.
                if attempt == START_ATTEMPTS_MAX or _PORT_TAKEN not in str(failure):
                    raise
            else:
                return

    async def _start_once(self) -> None:
        self._command().console.unlink(missing_ok=True)
        jvm = await GuardedJvm.start(self.name, self._command())
        async with contextlib.AsyncExitStack() as unless_ready:
            unless_ready.push_async_callback(jvm.stop)
            async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS_MAX)) as session:
                await jvm.wait_ready(lambda: self._is_ready(session), seconds_max=START_SECONDS_MAX)
            unless_ready.pop_all()
        self._jvm = jvm

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        """Whether it answers; the first answer of a new registry is followed by setting its level, once."""
        mark = self.folder / _COMPATIBILITY_MARK
        try:
            async with session.get(f"{self.url}/subjects") as answer:
                if not answer.ok:
                    return False
            if not mark.exists():
                async with session.put(f"{self.url}/config", json={"compatibility": "BACKWARD"}) as answer:
                    if not answer.ok:
                        return False
                # From now on the level is its user's to change.
                mark.touch()
        except (aiohttp.ClientError, TimeoutError):
            return False
        return True

    def _command(self) -> JvmCommand:
        installed = registry_folder()
        (program,) = installed.glob("apicurio-registry-app-*-runner.jar")
        options = (
            f"-Xmx{self._heap_mib}m",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dquarkus.http.host={LOOPBACK}",
            f"-Dquarkus.http.port={self.port}",
            # H2 keeps commits in memory for half a second unless told to write at once: a kill would lose schemas
            # whose ids are in topics already.
            f"-Dapicurio.datasource.url=jdbc:h2:file:{self.folder / 'schemas'};DB_CLOSE_ON_EXIT=FALSE;WRITE_DELAY=0",
        )
        return JvmCommand(
            arguments=(str(java_program()), *options, "-jar", str(program)),
            working_folder=self.folder,
            console=self.folder / "registry.log",
            grace_seconds=STOP_SECONDS_MAX,
            inherited_lock=self._lock,
        )


@contextlib.asynccontextmanager
async def embedded_registry(
    *, data_dir: Path, port: int = 0, heap_mib: int = HEAP_MIB
) -> AsyncIterator[EmbeddedRegistry]:
    """Run a schema registry with its schemas under `data_dir`/registry; ready on entry, gone on exit.

    Errors as with `embedded_kafka`.
    """
    folder = data_dir.absolute() / "registry"
    async with owned(folder, wait_seconds_max=STOP_SECONDS_MAX + 5) as lock:
        registry = EmbeddedRegistry(folder, port=port, heap_mib=heap_mib, lock=lock)
        try:
            await registry.start()
            yield registry
        finally:
            await registry.stop()
