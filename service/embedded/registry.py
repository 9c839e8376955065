"""The embedded schema registry: Apicurio Registry, which speaks the Confluent API (ccompat v7).

Its schemas are kept in an H2 database file under the data directory: a topic of Avro records is worth nothing
without the ids that its records carry. Ready means that the API answers and that the global compatibility
level is BACKWARD, Confluent's default, where Apicurio's own is NONE.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp

from service.embedded.child import GuardedJvm, JvmCommand, shown_folder
from service.embedded.jars import java_program, registry_folder
from service.embedded.ports import LOOPBACK
from service.embedded.server import EmbeddedServer, serving, stopped_unless_ready

HEAP_MIB = 256
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 15.0

_ANSWER_SECONDS_MAX = 5.0
_COMPATIBILITY_MARK = "compatibility-set"


class RegistryProgram:
    """How the registry is configured and started."""

    name = "the embedded schema registry"
    port_key = "embedded.registry.port"
    # What Quarkus says when it cannot bind.
    port_taken_text = "seems to be in use by another process"

    def __init__(self, folder: Path, *, heap_mib: int, lock: int) -> None:
        """Take the owned directory and the heap's size."""
        self._folder = folder
        self._heap_mib = heap_mib
        self._lock = lock

    def address(self, port: int) -> str:
        """What clients take as `schema.registry.url`."""
        return f"http://{LOOPBACK}:{port}/apis/ccompat/v7"

    async def launch(self, port: int) -> GuardedJvm:
        """Start the registry and wait until it answers."""
        command = self._command(port)
        command.console.unlink(missing_ok=True)
        jvm = await GuardedJvm.start(self.name, command)
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS_MAX)
        async with stopped_unless_ready(jvm), aiohttp.ClientSession(timeout=timeout) as session:
            await jvm.wait_ready(lambda: self._is_ready(session, self.address(port)), seconds_max=START_SECONDS_MAX)
        return jvm

    async def _is_ready(self, session: aiohttp.ClientSession, url: str) -> bool:
        """Whether it answers; the first answer of a new registry is followed by setting its level, once."""
        mark = self._folder / _COMPATIBILITY_MARK
        try:
            async with session.get(f"{url}/subjects") as answer:
                if not answer.ok:
                    return False
            if not mark.exists():
                async with session.put(f"{url}/config", json={"compatibility": "BACKWARD"}) as answer:
                    if not answer.ok:
                        return False
                # From now on the level is its user's to change.
                mark.touch()
        except (aiohttp.ClientError, TimeoutError):
            return False
        return True

    def _command(self, port: int) -> JvmCommand:
        installed = registry_folder()
        (program,) = installed.glob("apicurio-registry-app-*-runner.jar")
        options = (
            f"-Xmx{self._heap_mib}m",
            shown_folder(self._folder),
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            # It is asked a few times in its life: thorough compilation would cost nearly as much as the start itself.
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            f"-Dquarkus.http.host={LOOPBACK}",
            f"-Dquarkus.http.port={port}",
            # H2 keeps commits in memory for half a second unless told to write at once: a kill would lose schemas
            # whose ids are in topics already. The path is one within the working folder: a semicolon would end it.
            "-Dapicurio.datasource.url=jdbc:h2:file:./schemas;DB_CLOSE_ON_EXIT=FALSE;WRITE_DELAY=0",
        )
        return JvmCommand(
            arguments=(str(java_program()), *options, "-jar", str(program)),
            working_folder=self._folder,
            console=self._folder / "registry.log",
            grace_seconds=STOP_SECONDS_MAX,
            inherited_lock=self._lock,
        )


def embedded_registry(
    *, data_dir: Path, port: int = 0, heap_mib: int = HEAP_MIB
) -> AbstractAsyncContextManager[EmbeddedServer]:
    """Run a schema registry with its schemas under `data_dir`/registry, as `service.embedded.server.serving` does.

    `port` 0 chooses a free one; `address` is what clients take as `schema.registry.url`.
    """
    folder = data_dir.absolute() / "registry"

    def make_program(lock: int) -> RegistryProgram:
        return RegistryProgram(folder, heap_mib=heap_mib, lock=lock)

    return serving(folder, make_program, port=port, stop_seconds_max=STOP_SECONDS_MAX)
