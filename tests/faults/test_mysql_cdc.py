# ruff: noqa: S608 - statements of tests
"""Kill a worker that follows a log, and the database: the topic's state is the table, no change comes twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.databases import MariaDb
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import committed_end, committed_values, wait_for_commits
from tests.faults.worker_life import WorkerLife, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]
PROGRESS_SECONDS_MAX = 180.0


@pytest.mark.timeout(900)
def test_killed_worker_and_killed_database_leave_every_change_once(
    kafka: KafkaStack, mariadb: MariaDb, topic_name: str, tmp_path: Path
) -> None:
    """A snapshot, then transactions while the worker and the server are killed in turn."""
    mariadb.run(
        "create table t (id int primary key, n int not null, v varchar(20))",
        "insert into t select seq, 0, 'first' from seq_1_to_500",
    )
    worker, _ = job_files(tmp_path, bootstrap=kafka.bootstrap, topic=topic_name, source=tmp_path / "unused")
    connector = write_properties(
        tmp_path / "changes.properties",
        {
            "name": topic_name,
            "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(mariadb.server.port),
            "database.user": "root",
            "database.server.id": "54321",
            "database.include.list": mariadb.name,
            "topic.prefix": topic_name,
            "max.batch.bytes": "3000",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.restart.backoff.ms": "200",
        },
    )
    topic = f"{topic_name}.{mariadb.name}.t"
    life = WorkerLife(worker, connector, log=tmp_path / "worker.log")
    try:
        life.start()
        _write(mariadb, 0)
        seen = committed_end(kafka.bootstrap, topic)
        has_moved = wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
        assert has_moved, life.log_text()[-6000:]
        _write(mariadb, 10)
        life.kill()
        life.start("--until-idle", "5")
        seen = committed_end(kafka.bootstrap, topic)
        _write(mariadb, 20)
        assert wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
        mariadb.server.kill()
        mariadb.server.start()
        _write(mariadb, 21)
        assert life.wait(seconds_max=300) == 0, life.log_text()[-6000:]
    finally:
        life.end()
    assert _state(kafka, topic) == _rows(mariadb)


def _state(kafka: KafkaStack, topic: str) -> dict[int, tuple[int, str]]:
    """What the changes make of the table, in the order of the log; each is in the topic once."""
    changes: list[dict[str, Any]] = []
    counts: Counter[str] = Counter()
    for value, count in committed_values(kafka.bootstrap, topic).items():
        if value:
            changes.append(json.loads(value))
            if changes[-1]["op"] != "r":
                place = changes[-1]["source"]
                counts[f"{place['file']} {place['pos']} {place['row']} {changes[-1]['op']}"] += count
    assert counts
    assert set(counts.values()) == {1}, "a change was delivered twice"
    changes.sort(key=lambda one: (one["op"] != "r", one["source"]["file"], one["source"]["pos"], one["source"]["row"]))
    state: dict[int, tuple[int, str]] = {}
    for change in changes:
        if change["before"] is not None:
            state.pop(change["before"]["id"], None)
        if change["after"] is not None:
            state[change["after"]["id"]] = (change["after"]["n"], change["after"]["v"])
    return state


def _write(mariadb: MariaDb, number: int) -> None:
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
    mariadb.run(*statements)


def _rows(mariadb: MariaDb) -> dict[int, tuple[int, str]]:
    rows = asyncio.run(mariadb.rows("select id, n, v from t"))
    return {int(row[0]): (int(row[1]), row[2]) for row in rows}
