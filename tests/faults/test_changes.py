# ruff: noqa: S608 - statements of tests
"""Kill a worker that follows a log, and the database: the topic's state is the table, no change comes twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.databases import MariaDb, Postgres
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import committed_end, committed_values, wait_for_commits
from tests.faults.worker_life import LOG_LOOK_SECONDS, WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]
PROGRESS_SECONDS_MAX = 300.0


@pytest.mark.timeout(900)
def test_killed_worker_and_killed_mariadb_leave_every_change_once(
    kafka: KafkaStack, mariadb: MariaDb, topic_name: str, tmp_path: Path
) -> None:
    """A snapshot, then transactions while the worker and the server are killed in turn."""
    mariadb.run(
        "create table t (id int primary key, n int not null, v varchar(20))",
        "insert into t select seq, 0, 'first' from seq_1_to_500",
    )
    properties = {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.port": str(mariadb.server.port),
        "database.user": "root",
        "database.server.id": "54321",
        "database.include.list": mariadb.name,
        "max.batch.bytes": "3000",
    }
    topic = f"{topic_name}.{mariadb.name}.t"

    def difference() -> str:
        rows = asyncio.run(mariadb.rows("select id, n, v from t"))
        expected = {int(row[0]): (int(row[1]), row[2]) for row in rows}
        return _difference(_state(kafka, topic, place=("file", "pos", "row")), expected)

    _killed_in_turn(
        kafka,
        topic,
        _life(kafka, topic_name, tmp_path, properties),
        server=mariadb.server,
        run=lambda statements: mariadb.run(*statements),
        difference=difference,
    )


@pytest.mark.timeout(900)
def test_killed_worker_and_killed_postgresql_leave_every_change_once(
    kafka: KafkaStack, postgres: Postgres, topic_name: str, tmp_path: Path
) -> None:
    """The slot holds the log for the worker that comes next, and no change that is in the topic comes again."""
    postgres.run(
        "create table t (id int primary key, n int not null, v varchar(20))",
        "alter table t replica identity full",
        "insert into t select g, 0, 'first' from generate_series(1, 500) g",
    )
    properties = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput",
        **postgres.change_keys,
        "schema.include.list": "public",
        "max.batch.size": "30",
    }

    def run(statements: Sequence[str]) -> None:
        with postgres.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    topic = f"{topic_name}.public.t"

    def difference() -> str:
        expected = {row[0]: (row[1], row[2]) for row in postgres.rows("select id, n, v from t")}
        return _difference(_state(kafka, topic, place=("lsn",)), expected)

    life = _life(kafka, topic_name, tmp_path, properties)
    try:
        _killed_in_turn(kafka, topic, life, server=postgres.server, run=run, difference=difference)
    finally:
        postgres.drop_slots()


def _life(kafka: KafkaStack, name: str, folder: Path, properties: dict[str, str]) -> WorkerLife:
    worker, _ = job_files(folder, bootstrap=kafka.bootstrap, topic=name, source=folder / "unused")
    connector = write_properties(
        folder / "changes.properties",
        {
            "name": name,
            "database.hostname": "127.0.0.1",
            "topic.prefix": name,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.restart.backoff.ms": "200",
            **properties,
        },
    )
    return WorkerLife(worker, connector, log=folder / "worker.log")


def _killed_in_turn(
    kafka: KafkaStack,
    topic: str,
    life: WorkerLife,
    *,
    server: Any,
    run: Callable[[Sequence[str]], None],
    difference: Callable[[], str],
) -> None:
    """Kill the worker, then the database, while rows are changed; at the end the worker has read all.

    ``difference``: between what the topic and what the table holds; empty where there is none.
    """
    try:
        seen = committed_end(kafka.bootstrap, topic)
        life.start()
        run(_transactions(0))
        has_moved = wait_for_commits(kafka.bootstrap, topic, beyond=0, seconds_max=PROGRESS_SECONDS_MAX)
        assert has_moved, life.log_text()[-6000:]
        run(_transactions(10))
        life.kill()
        life.start()
        seen = committed_end(kafka.bootstrap, topic)
        run(_transactions(20))
        assert wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
        server.kill()
        server.start()
        run(_transactions(21))
        is_read = wait_until(lambda: not difference(), seconds_max=PROGRESS_SECONDS_MAX, look_seconds=LOG_LOOK_SECONDS)
        assert is_read, f"{difference()}\n{life.log_text()[-6000:]}"
        assert life.stop(seconds_max=300) == 0, life.log_text()[-6000:]
        assert not difference()
    finally:
        life.end()


def _state(kafka: KafkaStack, topic: str, *, place: Sequence[str]) -> dict[int, tuple[int, str]]:
    """What the changes make of the table, in the order of the log; each is in the topic once.

    ``place``: the fields of ``source`` that tell changes apart, in the order of the log.
    """
    changes: list[dict[str, Any]] = []
    counts: Counter[tuple[Any, ...]] = Counter()
    for value, count in committed_values(kafka.bootstrap, topic).items():
        if value:
            changes.append(json.loads(value))
            if changes[-1]["op"] != "r":
                counts[(*_place(changes[-1], place), changes[-1]["op"])] += count
    assert set(counts.values()) <= {1}, "a change was delivered twice"
    changes.sort(key=lambda change: (change["op"] != "r", *_place(change, place)))
    state: dict[int, tuple[int, str]] = {}
    for change in changes:
        if change["before"] is not None:
            state.pop(change["before"]["id"], None)
        if change["after"] is not None:
            state[change["after"]["id"]] = (change["after"]["n"], change["after"]["v"])
    return state


def _difference(found: dict[int, tuple[int, str]], expected: dict[int, tuple[int, str]]) -> str:
    """Empty where there is none."""
    differing = [key for key in {*found, *expected} if found.get(key) != expected.get(key)]
    return f"{len(differing)} rows, such as {sorted(differing)[:5]}" if differing else ""


def _place(change: dict[str, Any], names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(change["source"][name] for name in names)


def _transactions(number: int) -> list[str]:
    """Twenty transactions of several rows; one of four is rolled back."""
    statements = []
    for at in range(20):
        key = 1000 * (number + 1) + at
        statements += [
            "begin",
            f"insert into t values ({key}, {at}, 'new')",
            f"update t set n = n + 1 where id between {at * 10} and {at * 10 + 9}",
            f"delete from t where id = {at + 1}",
            "rollback" if at % 4 == 3 else "commit",
        ]
    return statements
