# ruff: noqa: S608 - statements of tests
"""Micro-batches that go by turns without Spark and through it, while both are killed: each change once, in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.databases import Postgres
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import committed_end, committed_values, wait_for_commits
from tests.faults.worker_life import WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]
PROGRESS_SECONDS_MAX = 300.0
MANY = 300
"""Rows of one transaction, which is one micro-batch: too many for the small way."""


@pytest.mark.timeout(900)
def test_a_connector_that_changes_its_way_keeps_order_and_delivers_each_change_once(
    kafka: KafkaStack, postgres: Postgres, topic_name: str, tmp_path: Path
) -> None:
    """Single rows, a large transaction, single rows, again and again; something is killed in each round."""
    postgres.run("create table t (id int primary key, v text)", "alter table t replica identity full")
    life = _life(kafka, postgres, topic_name, tmp_path)
    topic = f"{topic_name}.public.t"
    try:
        life.start()
        _single_rows(postgres, 0)
        assert wait_for_commits(kafka.bootstrap, topic, beyond=0, seconds_max=PROGRESS_SECONDS_MAX), life.log_text()
        for number, kill in enumerate(("worker", "spark", "worker"), start=1):
            _round(postgres, number)
            if kill == "worker":
                life.kill()
                life.start()
            else:
                assert wait_until(life.kill_spark, seconds_max=PROGRESS_SECONDS_MAX), "no Spark was started"
            seen = committed_end(kafka.bootstrap, topic)
            _single_rows(postgres, 10 + number)
            assert wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
        expected = _ids(postgres)
        assert wait_until(lambda: set(_delivered(kafka, topic)) >= expected, seconds_max=PROGRESS_SECONDS_MAX)
        assert life.stop(seconds_max=300) == 0
        delivered = _delivered(kafka, topic)
        assert set(delivered) == expected
        lsns = [lsn for lsn, _ in delivered.values()]
        assert lsns == sorted(lsns)
        assert {count for _, count in delivered.values()} == {1}
        ways = {event["way"] for event in life.events("conversion_ended")}
        assert {"small", "spark"} <= ways
        assert "spark_after_small" not in ways
    finally:
        life.end()
        postgres.drop_slots()


def _life(kafka: KafkaStack, postgres: Postgres, name: str, folder: Path) -> WorkerLife:
    worker, _ = job_files(
        folder, bootstrap=kafka.bootstrap, topic=name, source=folder / "unused", worker={"log.level": "DEBUG"}
    )
    connector = write_properties(
        folder / "changes.properties",
        {
            "name": name,
            "connector.class": "PostgresCdcSource",
            **postgres.change_keys,
            "schema.include.list": "public",
            "topic.prefix": name,
            "topic.creation.default.partitions": "1",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.restart.backoff.ms": "200",
        },
    )
    return WorkerLife(worker, connector, log=folder / "worker.log")


def _round(postgres: Postgres, number: int) -> None:
    _single_rows(postgres, 2 * number)
    first = 100_000 * number
    postgres.run(f"insert into t select g, 'many' from generate_series({first}, {first + MANY - 1}) g")
    _single_rows(postgres, 2 * number + 1)


def _single_rows(postgres: Postgres, number: int) -> None:
    """Ten transactions."""
    for at in range(10):
        postgres.run(f"insert into t values ({100 * number + at + 1}, 'one')")


def _ids(postgres: Postgres) -> set[int]:
    return {int(row[0]) for row in postgres.rows("select id from t")}


def _delivered(kafka: KafkaStack, topic: str) -> dict[int, tuple[int, int]]:
    """The ids in the order of the topic's only partition, each with its place in the log and how often it is there."""
    found: dict[int, tuple[int, int]] = {}
    for value, count in committed_values(kafka.bootstrap, topic).items():
        change: dict[str, Any] = json.loads(value or b"{}")
        known = found.get(change["after"]["id"], (0, 0))[1]
        found[change["after"]["id"]] = (change["source"]["lsn"], known + count)
    return found
