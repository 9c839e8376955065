"""A physical standby of a PostgreSQL, which may take over: a copy of it that follows its log."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from service.embedded.jars import class_path
from service.embedded.ports import free_ports
from tests.databases import DatabaseServer, Postgres

SECONDS_MAX = 300.0
LOOK_SECONDS = 0.05


@contextmanager
def running_standby(folder: Path, primary: DatabaseServer) -> Iterator[DatabaseServer]:
    """A copy of the primary that follows it, with a port and a folder of its own and the primary's settings."""
    server, program = _server_beside(folder, primary), _program(primary)
    copied = [*primary.command[:program], str(Path(primary.command[program]).with_name("pg_basebackup"))]
    copied += ["-D", str(server.folder / "data"), "-d", f"host=127.0.0.1 port={primary.port} user=postgres"]
    copied += ["--write-recovery-conf", "--checkpoint=fast", "--create-slot", "--slot=standby", "--no-sync"]
    _run(copied)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def running_keeper(folder: Path, primary: DatabaseServer) -> Iterator[DatabaseServer]:
    """A standby, from version 17 on, that keeps its primary's slots when ``keep_slot`` says so, which starts it, too.

    The primary has no slot yet, and is stopped for the copy: the jars of these versions have no ``pg_basebackup``. What
    a running standby tells of its own transactions would hold back the slots that the primary makes.
    """
    server, user = _server_beside(folder, primary), primary.command[: _program(primary)]
    data = server.folder / "data"
    primary.stop()
    _run([*user, "cp", "-r", str(primary.folder / "data"), str(data)])
    _run([*user, "touch", str(data / "standby.signal")])
    primary.start()
    Postgres(primary, "postgres").run("select pg_create_physical_replication_slot('standby', true)")
    told = f"primary_conninfo=host=127.0.0.1 port={primary.port} user=postgres dbname=postgres"
    for setting in (told, "primary_slot_name=standby", "hot_standby_feedback=on"):
        server.command = [*server.command, "-c", setting]
    try:
        yield server
    finally:
        server.stop()


def newer_program(folder: Path, version: str) -> Path:
    """PostgreSQL of a version that the system may not have, out of its jar into the folder."""
    with (
        zipfile.ZipFile(class_path(f"postgres{version}")) as jar,
        jar.open("postgres-linux-x86_64.txz") as packed,
        tarfile.open(fileobj=packed, mode="r:xz") as archive,
    ):
        archive.extractall(folder / "programs", filter="data")
    return folder / "programs/bin/postgres"


def _server_beside(folder: Path, primary: DatabaseServer) -> DatabaseServer:
    """With a folder of its own, which has no data yet, and a port of its own; it is not started."""
    own, (port,) = folder / "standby", free_ports(1)
    own.mkdir()
    shutil.chown(own, primary.folder.owner(), primary.folder.group())
    changed = {str(primary.port): str(port), str(primary.folder): str(own)}
    changed[str(primary.folder / "data")] = str(own / "data")
    command = [changed.get(part, part) for part in primary.command]
    return replace(primary, command=command, port=port, folder=own, pid=0, process=None)


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


async def keep_slot(primary: Postgres, standby: Postgres) -> None:
    """Have the standby keep its primary's only slot that was made with ``FAILOVER``, as that is now.

    Nothing may have been written since it was made: else the standby would wait for it to move on. It starts for this.
    """
    standby.server.start()
    await until_replayed(primary, standby)
    kept = "select synced and not temporary from pg_replication_slots"
    async with asyncio.timeout(SECONDS_MAX):
        while standby.rows(kept) != [(True,)]:
            standby.run("select pg_sync_replication_slots()")
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
