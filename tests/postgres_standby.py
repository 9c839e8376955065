"""A physical standby of a PostgreSQL, which may take over: a copy of it that follows its log."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from service.embedded.ports import free_ports
from tests.databases import DatabaseServer, Postgres

SECONDS_MAX = 300.0
LOOK_SECONDS = 0.05


@contextmanager
def running_standby(folder: Path, primary: DatabaseServer) -> Iterator[DatabaseServer]:
    """A copy of the primary that follows it, with a port and a folder of its own and the primary's settings."""
    own, (port,) = folder / "standby", free_ports(1)
    own.mkdir()
    shutil.chown(own, primary.folder.owner(), primary.folder.group())
    program = _program(primary)
    copied = [*primary.command[:program], str(Path(primary.command[program]).with_name("pg_basebackup"))]
    copied += ["-D", str(own / "data"), "-d", f"host=127.0.0.1 port={primary.port} user=postgres"]
    copied += ["--write-recovery-conf", "--checkpoint=fast", "--create-slot", "--slot=standby", "--no-sync"]
    _run(copied)
    changed = {str(primary.port): str(port), str(primary.folder): str(own)}
    changed[str(primary.folder / "data")] = str(own / "data")
    command = [changed.get(part, part) for part in primary.command]
    server = replace(primary, command=command, port=port, folder=own, pid=0, process=None)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS_MAX)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout.decode(errors='replace')[-4000:]}"


def _program(server: DatabaseServer) -> int:
    """Where the server's program stands in its command."""
    return list(server.command).index("-D") - 1


async def until_replayed(primary: Postgres, standby: Postgres) -> None:
    """Wait until the standby has all that the primary has written."""
    ((written,),) = primary.rows("select pg_current_wal_flush_lsn()::text")
    async with asyncio.timeout(SECONDS_MAX):
        while standby.rows(f"select pg_last_wal_replay_lsn() >= '{written}'") != [(True,)]:
            await asyncio.sleep(LOOK_SECONDS)


def copy_slot(primary: Postgres, standby: DatabaseServer, slot: str) -> None:
    """Give the standby the slot as it is while nobody reads it, as tools for high availability do before version 17."""
    primary.run("checkpoint")  # which writes it down
    kept = Path("data") / "pg_replslot"
    standby.stop()
    made = [*standby.command[: _program(standby)], "cp", "-r", str(primary.server.folder / kept / slot)]
    _run([*made, str(standby.folder / kept)])
    standby.start()


def promote(standby: Postgres) -> None:
    """Make it a primary, and return when it is one."""
    assert standby.rows(f"select pg_promote(true, {SECONDS_MAX:.0f})") == [(True,)]
