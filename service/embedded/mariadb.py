"""MariaDB as it is installed on this machine, as a child process with data of its own, for the demo's pipeline."""

from __future__ import annotations

import asyncio
import getpass
import os
import shutil
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from service.embedded.child import GuardedJvm, JvmCommand
from service.embedded.errors import StartFailed
from service.embedded.jars import PartsMissing
from service.embedded.ports import LOOPBACK
from service.embedded.server import EmbeddedServer, serving, stopped_unless_ready

START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0
_DATA, _UNFINISHED_DATA = "data", "data.unfinished"
_GREETING_SECONDS_MAX = 5.0


def mariadb_program(name: str) -> str:
    """The path of ``mariadbd`` or ``mariadb-install-db``; raises PartsMissing with what to install."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        message = f"there is no {name} on the PATH: install MariaDB (Debian, Ubuntu: apt-get install mariadb-server)"
        raise PartsMissing(message)
    return found


class MariaDbProgram:
    """How the server is started: on loopback alone, where ``root`` needs no password."""

    name = "MariaDB"
    port_key = "the port of MariaDB"
    port_taken_text = "Address already in use"

    def __init__(self, folder: Path, *, lock: int) -> None:
        """Take the owned directory."""
        self._folder = folder
        self._lock = lock

    def address(self, port: int) -> str:
        """What a JDBC URL has between its scheme and the name of the database."""
        return f"{LOOPBACK}:{port}"

    async def launch(self, port: int) -> GuardedJvm:
        """Make the system's tables if there are none, start the server and wait until it greets clients."""
        if not (self._folder / _DATA).exists():
            await self._install()
        command = self._command(
            mariadb_program("mariadbd"),
            *("--no-defaults", f"--datadir={self._folder / _DATA}", f"--user={getpass.getuser()}"),
            # Relative to the data: names of sockets are short, and folders need not be.
            *(f"--bind-address={LOOPBACK}", f"--port={port}", "--socket=socket", "--pid-file=pid"),
            *("--innodb-buffer-pool-size=32M", "--performance-schema=OFF", "--skip-log-bin"),
        )
        command.console.unlink(missing_ok=True)
        server = await GuardedJvm.start(self.name, command)
        async with stopped_unless_ready(server):
            await server.wait_ready(lambda: _greets(port), seconds_max=START_SECONDS_MAX)
        return server

    async def _install(self) -> None:
        """Whole or not at all, by renaming."""
        unfinished = self._folder / _UNFINISHED_DATA
        shutil.rmtree(unfinished, ignore_errors=True)
        command = self._command(
            mariadb_program("mariadb-install-db"),
            *("--no-defaults", f"--datadir={unfinished}", f"--user={getpass.getuser()}"),
            *("--auth-root-authentication-method=normal", "--skip-test-db"),
        )
        made = await GuardedJvm.start("mariadb-install-db", command)
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                code = await made.wait_exited()
        except TimeoutError:
            message = f"MariaDB's tables were not made within {START_SECONDS_MAX:g} s:\n{made.log_tail()}"
            raise StartFailed(message) from None
        finally:
            await made.stop()
        if code != 0:
            message = f"MariaDB's tables could not be made:\n{made.log_tail()}"
            raise StartFailed(message)
        unfinished.rename(self._folder / _DATA)

    def _command(self, *arguments: str) -> JvmCommand:
        return JvmCommand(
            arguments=arguments,
            working_folder=self._folder,
            console=self._folder / "mariadb.log",
            grace_seconds=STOP_SECONDS_MAX,
            inherited_lock=self._lock,
        )


async def _greets(port: int) -> bool:
    """Whether it says its version first, as the protocol has it: a listening socket alone is none that serves."""
    try:
        async with asyncio.timeout(_GREETING_SECONDS_MAX):
            reader, writer = await asyncio.open_connection(LOOPBACK, port)
            try:
                return b"MariaDB" in await reader.read(256)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False


def embedded_mariadb(*, data_dir: Path, port: int = 0) -> AbstractAsyncContextManager[EmbeddedServer]:
    """Run MariaDB with its data under ``data_dir``/mariadb, as ``service.embedded.server.serving`` does.

    Raises PartsMissing, too, where it is not installed.
    """
    folder = data_dir.absolute() / "mariadb"

    def make_program(lock: int) -> MariaDbProgram:
        return MariaDbProgram(folder, lock=lock)

    return serving(folder, make_program, port=port, stop_seconds_max=STOP_SECONDS_MAX)
