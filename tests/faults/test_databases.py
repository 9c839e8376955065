"""Kill a worker that reads a database, and the database: the topic's rows are the table's, each once."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.databases import Postgres
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import committed_end, committed_values, wait_for_commits
from tests.faults.worker_life import LOG_LOOK_SECONDS, WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow]
PROGRESS_SECONDS_MAX = 300.0
WRITERS = 4


@pytest.mark.timeout(900)
def test_killed_worker_and_killed_database_leave_the_topic_equal_to_the_table(
    kafka: KafkaStack, postgres: Postgres, topic_name: str, tmp_path: Path
) -> None:
    """Rows of transactions that commit out of order; what Connect's Decimal cannot hold is a dead letter."""
    postgres.run("create table t (id serial primary key, price numeric(5,2) not null, name text)")
    worker, _ = job_files(tmp_path, bootstrap=kafka.bootstrap, topic=topic_name, source=tmp_path / "unused")
    connector = write_properties(
        tmp_path / "rows.properties",
        {
            "name": topic_name,
            "connector.class": "io.confluent.connect.jdbc.JdbcSourceConnector",
            "connection.url": postgres.url,
            "mode": "incrementing",
            "incrementing.column.name": "id",
            "table.whitelist": "t",
            "topic.prefix": f"{topic_name}-",
            "poll.interval.ms": "100",
            "batch.max.rows": "50",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": f"{topic_name}-bad",
            "errors.restart.backoff.ms": "200",
        },
    )
    topic = f"{topic_name}-t"
    life = WorkerLife(worker, connector, log=tmp_path / "worker.log")
    try:
        for _ in range(2):
            seen = committed_end(kafka.bootstrap, topic)  # before there is anything new: all of it may be read soon
            life.start()
            _write(postgres)
            has_moved = wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
            assert has_moved, life.log_text()[-6000:]
            _write(postgres)
            life.kill()
        seen = committed_end(kafka.bootstrap, topic)
        life.start()
        _write(postgres)
        assert wait_for_commits(kafka.bootstrap, topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
        postgres.server.kill()
        postgres.server.start()
        _write(postgres)
        good = postgres.rows("select id, name from t where price <> 'NaN' order by id")
        bad = postgres.rows("select id from t where price = 'NaN' order by id")
        assert good
        assert bad
        expected = {topic: Counter(row[0] for row in good), f"{topic_name}-bad": Counter(row[0] for row in bad)}
        is_read = wait_until(
            lambda: all(_ids(kafka, each).keys() >= ids.keys() for each, ids in expected.items()),
            seconds_max=PROGRESS_SECONDS_MAX,
            look_seconds=LOG_LOOK_SECONDS,
        )
        assert is_read, life.log_text()[-6000:]
        assert life.stop(seconds_max=300) == 0, life.log_text()[-6000:]
    finally:
        life.end()
    assert {each: _ids(kafka, each) for each in expected} == expected
    assert _names(kafka, topic) == dict(good)


def _write(postgres: Postgres) -> None:
    with ThreadPoolExecutor(WRITERS) as threads:
        for done in [threads.submit(_transactions, postgres, number) for number in range(WRITERS)]:
            done.result()


def _transactions(postgres: Postgres, writer: int) -> None:
    """Each of two statements; every fourth is rolled back, and every seventh row is no number."""
    with postgres.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for number in range(20):
            price = "'NaN'" if number % 7 == 3 else f"{number}.05"
            cursor.execute(f"insert into t (price, name) values ({price}, 'ü{writer}')")  # noqa: S608
            cursor.execute(f"insert into t (price, name) select 1, 'x' from pg_sleep(0.00{writer})")  # noqa: S608
            if number % 4 == 1:
                connection.rollback()
            else:
                connection.commit()


def _ids(kafka: KafkaStack, topic: str) -> Counter[int]:
    values = committed_values(kafka.bootstrap, topic)
    return Counter({json.loads(value or b"")["id"]: count for value, count in values.items()})


def _names(kafka: KafkaStack, topic: str) -> dict[int, str]:
    rows = [json.loads(value or b"") for value in committed_values(kafka.bootstrap, topic)]
    return {row["id"]: row["name"] for row in rows}
