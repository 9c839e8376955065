"""A connector that is deleted over REST takes its slot away, and one that is stopped does not."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import pytest

from tests.databases import Postgres
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import wait_for_commits
from tests.faults.worker_life import WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]
SECONDS_MAX = 180.0


@pytest.mark.timeout(600)
def test_a_delete_takes_the_slot_away_and_a_stop_does_not(
    kafka: KafkaStack, postgres: Postgres, topic_name: str, tmp_path: Path
) -> None:
    """The connector is STOPPED when it is deleted, so that no task of it is there to do it."""
    postgres.run("create table t (id serial primary key)", "insert into t default values")
    worker, _ = job_files(tmp_path, bootstrap=kafka.bootstrap, topic=topic_name, source=tmp_path / "unused")
    connector = write_properties(
        tmp_path / "changes.properties",
        {
            "name": topic_name,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            **postgres.change_keys,
            "topic.prefix": topic_name,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        },
    )
    life = WorkerLife(worker, connector, log=tmp_path / "worker.log")
    slots = f"select 1 from pg_replication_slots where slot_name = '{postgres.name}'"  # noqa: S608 - our own name
    try:
        life.start()
        assert wait_for_commits(kafka.bootstrap, f"{topic_name}.public.t", beyond=0, seconds_max=SECONDS_MAX)
        _ask(life, "PUT", f"/connectors/{topic_name}/stop")
        assert wait_until(lambda: _has_no_tasks(life, topic_name), seconds_max=SECONDS_MAX)
        assert postgres.rows(slots)
        _ask(life, "DELETE", f"/connectors/{topic_name}")
        assert wait_until(lambda: bool(life.events("deleted_source_gone")), seconds_max=SECONDS_MAX), life.log_text()
        assert [event["has_offsets"] for event in life.events("deleted_source_gone")] == [False]
        assert not postgres.rows(slots)
        assert not postgres.rows("select 1 from pg_publication")
    finally:
        life.end()


def _has_no_tasks(life: WorkerLife, name: str) -> bool:
    status, text = life.get(f"/connectors/{name}/status")
    return status == 200 and json.loads(text)["tasks"] == []


def _ask(life: WorkerLife, method: str, path: str) -> None:
    life.get("/")
    request = urllib.request.Request(life._url + path, method=method)  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=120):  # noqa: S310 - our own
        pass
