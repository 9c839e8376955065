"""``PostgresCdcSource`` in a worker with a registry: a snapshot that is asked for by REST, a schema that is refused."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import journal
from tests.databases import Postgres
from tests.faults.numbered_lines import job_files
from tests.faults.worker_life import ANSWER_SECONDS_MAX, WorkerLife, wait_until, write_properties
from tests.stack import KafkaStack, RegistryStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
SECONDS_MAX = 300.0


class Shop:
    """A worker that follows a database, and the topics of it."""

    def __init__(self, kafka: KafkaStack, registry: RegistryStack, postgres: Postgres, folder: Path) -> None:
        self.kafka, self.registry, self.postgres, self.name = kafka, registry, postgres, postgres.name
        worker, _ = job_files(
            folder,
            bootstrap=kafka.bootstrap,
            topic=self.name,
            source=folder / "unused",
            worker={"schema.registry.url": registry.url},
        )
        connector = {
            "name": self.name,
            "connector.class": "PostgresCdcSource",
            **postgres.change_keys,
            "schema.include.list": "public",
            "topic.prefix": self.name,
            "key.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "errors.restart.backoff.ms": "200",
        }
        self.life = WorkerLife(
            worker, write_properties(folder / "changes.properties", connector), log=folder / "worker.log"
        )

    def records(self, table: str) -> list[tuple[str, Any]]:
        """Operation and row of each record of a table's topic; none while there is no such topic."""
        try:
            found = journal.committed_records(self.kafka.bootstrap, f"{self.name}.public.{table}")
        except Exception as error:
            if "does not exist" not in str(error):
                raise
            return []
        told = journal.decoded([record.value for record in found], registry_url=self.registry.url)
        return [(value["op"], value["after"]) for value in told if value is not None]

    def demand(self, table: str, *expected: tuple[str, Any]) -> None:
        """That these come, and nothing else."""
        is_so: Callable[[], bool] = lambda: self.records(table) == list(expected)  # noqa: E731
        assert wait_until(is_so, seconds_max=SECONDS_MAX, look_seconds=0.5), (
            f"{self.records(table)}\n{self.life.log_text()[-6000:]}"
        )

    def task(self) -> dict[str, Any]:
        """As the REST API tells it; empty while it tells none."""
        status, text = self.life.get(f"/connectors/{self.name}/status")
        tasks = json.loads(text)["tasks"] if status == 200 else []
        return dict(tasks[0]) if tasks else {}

    def send(self, url: str, method: str, body: object = None) -> None:
        """A request that is obeyed."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310 - our own
            assert answer.status in {200, 202, 204}

    def worker(self, path: str, method: str, body: object = None) -> None:
        """A request to the worker."""
        (started,) = self.life.events("worker_started")
        self.send(f"{started['rest_url']}/connectors/{self.name}{path}", method, body)


@pytest.fixture
def shop(kafka: KafkaStack, registry: RegistryStack, postgres: Postgres, tmp_path: Path) -> Iterator[Shop]:
    """Its worker is ended, its slot dropped."""
    made = Shop(kafka, registry, postgres, tmp_path)
    yield made
    made.life.end()
    postgres.drop_slots()


def test_a_snapshot_on_request_and_a_schema_that_the_registry_refuses(shop: Shop) -> None:
    """The table is read again beside the log; the task stops before the first row of the form, and loses nothing."""
    run = shop.postgres.run
    run(
        "create table t (id int primary key, v int)",
        "create table other (id int primary key)",
        "insert into t values (1, 10)",
        "insert into other values (1)",
    )
    shop.life.start()
    first: list[tuple[str, Any]] = [("r", {"id": 1, "v": 10})]
    shop.demand("t", *first)
    run("insert into t values (2, 20)")
    first.append(("c", {"id": 2, "v": 20}))
    shop.demand("t", *first)

    shop.worker("/config", "PATCH", {"snapshot.request.id": "again", "snapshot.request.tables": "public\\.t"})
    first += [("r", {"id": 1, "v": 10}), ("r", {"id": 2, "v": 20})]
    shop.demand("t", *first)
    run("insert into t values (3, 30)", "insert into other values (2)")
    first.append(("c", {"id": 3, "v": 30}))
    shop.demand("t", *first)
    shop.demand("other", ("r", {"id": 1}), ("c", {"id": 2}))

    run("alter table t alter column v type text using 'text ' || v", "insert into t values (4, 'words')")
    run("insert into other values (3)")
    assert wait_until(lambda: shop.task().get("state") == "FAILED", seconds_max=SECONDS_MAX), shop.life.log_text()[
        -6000:
    ]
    subject = f"{shop.name}.public.t-value"
    assert f"subject '{subject}' does not take the schema" in shop.task()["trace"]
    assert shop.records("t") == first
    # By Apicurio's own API: NONE in Confluent's form has its subject go by the rule of all subjects.
    base = shop.registry.url.partition("/apis/")[0]
    rule = {"ruleType": "COMPATIBILITY", "config": "NONE"}
    shop.send(f"{base}/apis/registry/v3/groups/default/artifacts/{subject}/rules", "POST", rule)
    shop.worker("/tasks/0/restart", "POST")
    shop.demand("t", *first, ("c", {"id": 4, "v": "words"}))
    shop.demand("other", ("r", {"id": 1}), ("c", {"id": 2}), ("c", {"id": 3}))
    assert shop.life.stop(seconds_max=300) == 0, shop.life.log_text()[-6000:]
