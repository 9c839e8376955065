# ruff: noqa: S608 - statements of tests
"""Clients that move money, a worker that is killed, and a topic that the broker compacts: by its keys it is the table.

And whoever reads the topic meanwhile sees a transaction of the database whole or not at all.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import adbc_driver_postgresql.dbapi as adbc
import asyncmy.errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from service.kafka.reader import StoredRecord
from tests import journal
from tests.databases import MySql, Postgres
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import committed_end, wait_for_commits
from tests.faults.worker_life import WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack, RegistryStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS_MAX = 300.0
ACCOUNTS, EACH, CLIENTS = 20, 100, 4
Run = Callable[[Sequence[str]], None]
"""Statements of one connection; what the server refuses of a transaction is rolled back and forgotten."""


def transaction(dice: random.Random) -> list[str]:
    """Money is moved, the sum of all accounts stays; one of six is rolled back, one of three has such a part."""
    giver, taker, other = (dice.randrange(ACCOUNTS) for _ in range(3))
    amount = dice.randrange(1, 50)
    statements = ["begin", f"update accounts set balance = balance - {amount} where id = {giver}"]
    if dice.random() < 0.33:
        statements += ["savepoint s", f"update accounts set balance = 0 where id <> {giver}", "rollback to savepoint s"]
    statements.append(f"update accounts set balance = balance + {amount} where id = {giver}")
    match dice.randrange(4):
        case 0:  # another key, and back
            statements += [f"update accounts set id = {1000 + taker} where id = {taker}"]
            statements += [f"update accounts set id = {taker} where id = {1000 + taker}"]
        case 1:  # a row that the next case deletes
            statements.append(f"insert into accounts values ({2000 + other}, 'new', 0)")
        case 2:
            statements.append(f"delete from accounts where id = {2000 + other} and balance = 0")
        case _:
            swap = f"case when id = {taker} then balance + {amount} else balance - {amount} end"
            statements.append(f"update accounts set balance = {swap} where id in ({taker}, {(taker + 1) % ACCOUNTS})")
    return [*statements, "rollback" if dice.random() < 0.17 else "commit"]


@contextmanager
def clients_at_work(run: Run) -> Iterator[None]:
    """Each does one transaction after another while the block runs."""
    stop = threading.Event()

    def work(seed: int) -> None:
        dice = random.Random(seed)
        while not stop.wait(0.01):
            run(transaction(dice))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


class Watched:
    """A topic of accounts, as its consumers see it."""

    def __init__(self, kafka: KafkaStack, registry: RegistryStack, prefix: str) -> None:
        self.kafka, self.registry, self.topic = kafka, registry, prefix
        self.ends: set[int] = set()
        """Where a consumer that reads what is committed has seen the topic end."""

    def follow(self, table: str) -> str:
        """The prefix of the topics, of which this table's is watched from now on."""
        prefix, self.topic = self.topic, f"{self.topic}.{table}"
        return prefix

    def look(self) -> bool:
        """Take note of the end."""
        self.ends.add(committed_end(self.kafka.bootstrap, self.topic))
        return False

    def roll(self) -> None:
        """Have the broker begin a segment each second: what is in the others is compacted."""

        async def alter() -> None:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka.bootstrap)
            await admin.start()
            try:
                rolled = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.001"}
                await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self.topic, configs=rolled)])
            finally:
                await admin.close()

        asyncio.run(alter())

    def records(self) -> list[StoredRecord]:
        """All that are there by now."""
        return journal.committed_records(self.kafka.bootstrap, self.topic)

    def told(self, records: Sequence[StoredRecord]) -> list[tuple[int, int, dict[str, Any] | None]]:
        """Offset, key, and the row; None: deleted."""
        keys = journal.decoded([record.key for record in records], registry_url=self.registry.url)
        values = journal.decoded([record.value for record in records], registry_url=self.registry.url)
        rows = [None if value is None else value["after"] for value in values]
        return [(record.offset, key["id"], row) for record, key, row in zip(records, keys, rows, strict=True)]


def table_of(told: Sequence[tuple[int, int, dict[str, Any] | None]], *, end: int = 1 << 62) -> dict[int, int]:
    """Balances by id, as a consumer has them that has read up to an offset."""
    last = {key: row for offset, key, row in told if offset < end}
    return {key: row["balance"] for key, row in last.items() if row is not None}


def demand_the_table_by_keys(watched: Watched, life: WorkerLife, run: Run, rows: Callable[[], dict[int, int]]) -> None:
    """Kill the worker twice among transactions; what is in the topic then, and when it is compacted, is the table."""
    try:
        life.start()
        assert wait_until(lambda: committed_end(watched.kafka.bootstrap, watched.topic) > 0, seconds_max=SECONDS_MAX)
        run(["begin", f"update accounts set balance = balance where id < {ACCOUNTS}", "commit"])
        first = len(watched.records())
        assert first >= ACCOUNTS, life.log_text()[-6000:]
        with clients_at_work(run):
            for _ in range(3):
                seen = committed_end(watched.kafka.bootstrap, watched.topic)
                assert wait_for_commits(watched.kafka.bootstrap, watched.topic, beyond=seen, seconds_max=SECONDS_MAX), (
                    life.log_text()[-6000:]
                )
                wait_until(watched.look, seconds_max=3)
                life.kill()
                life.start()
        told: list[tuple[int, int, dict[str, Any] | None]] = []

        def is_read() -> bool:
            told[:] = watched.told(watched.records())
            return table_of(told) == rows()

        assert wait_until(is_read, seconds_max=SECONDS_MAX, look_seconds=1), f"{table_of(told)}\n{rows()}"
        seen_whole = [end for end in sorted(watched.ends) if end > told[0][0] + first]
        assert seen_whole
        assert {sum(table_of(told, end=end).values()) for end in seen_whole} == {ACCOUNTS * EACH}

        watched.roll()

        def is_compacted() -> bool:
            run(["begin", "update accounts set owner = concat(owner, '.') where id = 0", "commit"])
            return len([record for record in watched.records() if record.offset <= told[-1][0]]) < len(told) / 2

        assert wait_until(is_compacted, seconds_max=SECONDS_MAX, look_seconds=1)
        assert table_of(watched.told(watched.records())) == rows()
        assert life.stop(seconds_max=300) == 0, life.log_text()[-6000:]
    finally:
        life.end()


def worker_life(watched: Watched, name: str, folder: Path, properties: dict[str, str]) -> WorkerLife:
    """With Avro, and a topic that is compacted, but for its last segment."""
    worker, _ = job_files(
        folder,
        bootstrap=watched.kafka.bootstrap,
        topic=name,
        source=folder / "unused",
        worker={"schema.registry.url": watched.registry.url},
    )
    compacted = {
        "partitions": "1",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.001",
        "delete.retention.ms": "600000",
    }
    told = {
        "name": name,
        "database.hostname": "127.0.0.1",
        "topic.prefix": name,
        "key.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "errors.restart.backoff.ms": "200",
        **{f"topic.creation.default.{key}": value for key, value in compacted.items()},
        **properties,
    }
    return WorkerLife(worker, write_properties(folder / "changes.properties", told), log=folder / "worker.log")


def accounts() -> list[str]:
    """The table, and its first rows."""
    rows = ", ".join(f"({number}, 'first', {EACH})" for number in range(ACCOUNTS))
    return [
        "create table accounts (id int primary key, owner varchar(1000), balance int)",
        f"insert into accounts values {rows}",
    ]


@pytest.fixture
def watched(kafka: KafkaStack, registry: RegistryStack, topic_name: str) -> Watched:
    """Nobody has made its topic yet."""
    return Watched(kafka, registry, topic_name)


def test_postgresql(watched: Watched, postgres: Postgres, tmp_path: Path) -> None:
    """By its log."""
    postgres.run(*accounts())
    name = watched.follow("public.accounts")
    properties = {
        "connector.class": "PostgresCdcSource",
        **postgres.change_keys,
        "schema.include.list": "public",
    }

    def run(statements: Sequence[str]) -> None:
        with postgres.connect() as connection, connection.cursor() as cursor:
            try:
                for statement in statements:
                    cursor.execute(statement)
            except adbc.Error:  # a key that is there, a deadlock
                cursor.execute("rollback")

    def rows() -> dict[int, int]:
        return {int(key): int(balance) for key, balance in postgres.rows("select id, balance from accounts")}

    try:
        demand_the_table_by_keys(watched, worker_life(watched, name, tmp_path, properties), run, rows)
    finally:
        postgres.drop_slots()


def test_mysql(watched: Watched, each_mysql: MySql, tmp_path: Path) -> None:
    """By its log."""
    each_mysql.run(*accounts())
    name = watched.follow(f"{each_mysql.name}.accounts")
    properties = {
        "connector.class": "MySqlCdcSource",
        "database.port": str(each_mysql.server.port),
        "database.user": "root",
        "database.server.id": "54329",
        "database.include.list": each_mysql.name,
    }

    def run(statements: Sequence[str]) -> None:
        try:
            each_mysql.run(*statements)
        except asyncmy.errors.Error:  # a key that is there, a deadlock; the connection ends, and with it all of it
            return

    def rows() -> dict[int, int]:
        found = asyncio.run(each_mysql.rows("select id, balance from accounts"))
        return {int(key): int(balance) for key, balance in found}

    demand_the_table_by_keys(watched, worker_life(watched, name, tmp_path, properties), run, rows)
