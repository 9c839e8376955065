"""The seed's Twitter config through the real worker, broker and registry, on the simulated X."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest

from service.config.files import read_properties
from service.demo.x import AS_PRINTED, SEED
from service.embedded.running import running
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import StoredRecord
from service.simulators.x import XSimulator
from service.simulators.x_settings import XSettings
from tests import journal
from tests.bound import bound
from tests.faults.worker_life import ROOT, WorkerLife, pause, write_properties
from tests.stack import KafkaStack, RegistryStack

EXAMPLES = ROOT / "docs/examples/seeds"
RUN_SECONDS_MAX, LOOK_SECONDS = 280.0, 0.5


def with_addresses(properties: dict[str, str], *, x: str, registry: str) -> dict[str, str]:
    """The printed config, with the addresses of this run and nothing else changed."""
    return {key: registry if key.endswith("schema.registry.url") else value for key, value in properties.items()} | {
        "x.base.url": x
    }


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_seeds_config_runs_as_printed(kafka: KafkaStack, registry: RegistryStack, tmp_path: Path) -> None:
    """Keys and values are Avro of StatusKey and Status; the registry has the key's schema as it is printed."""
    printed = read_properties(EXAMPLES / "twitter-source.properties")
    assert printed == dict(SEED)
    printed |= read_properties(EXAMPLES / "avro-converters.properties")
    simulator = XSimulator(XSettings(consumer_key=AS_PRINTED, consumer_secret=AS_PRINTED))
    simulator.on_connect = lambda: [
        simulator.post("The olympics \u2028 in two lines 🐱 #games", author=7, media=1),
        simulator.post("nothing of it"),
        simulator.post("Jose, San Francisco"),
    ]
    with running(simulator, name="x") as x:
        worker = {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": f"seed-{uuid.uuid4().hex[:8]}",
            "listeners": "http://127.0.0.1:0",
            "data.dir": str(tmp_path / "data"),
            "log.format": "json",
        }
        files = [write_properties(tmp_path / "worker.properties", worker)]
        properties = with_addresses(printed, x=x.server.url, registry=registry.url)
        files.append(write_properties(tmp_path / "twitter.properties", properties))
        life = WorkerLife(*files, log=tmp_path / "worker.log")
        try:
            life.start()
            ids = {int(post.id) for post in _told(life, simulator, kafka.bootstrap)}
        finally:
            life.end()
    records = journal.committed_records(kafka.bootstrap, "twitter")
    keys = journal.decoded([record.key for record in records], registry_url=registry.url)
    rows = journal.decoded([record.value for record in records], registry_url=registry.url)
    assert [key["Id"] for key in keys] == [row["Id"] for row in rows]
    assert ids <= {row["Id"] for row in rows}
    first = next(row for row in rows if row["Id"] == min(ids))
    assert first["Text"] == "The olympics \u2028 in two lines 🐱 #games"
    assert (first["User"]["ScreenName"], len(first["User"])) == ("person_7", 48)
    assert [tag["Text"] for tag in first["HashtagEntities"]] == ["games"]
    assert first["CreatedAt"].tzinfo is not None
    assert _latest(registry.url, "twitter-key") == {
        "type": "record",
        "name": "StatusKey",
        "namespace": "io.confluent.examples.kafka.connect.twitter",
        "fields": [{"name": "Id", "type": ["null", "long"]}],
        "connect.doc": "Key for a twitter status.",
        "connect.name": "io.confluent.examples.kafka.connect.twitter.StatusKey",
    }
    assert _latest(registry.url, "twitter-value")["connect.name"].endswith(".twitter.Status")


def _told(life: WorkerLife, simulator: XSimulator, bootstrap: str) -> list[Any]:
    """The posts that meet a rule, once as many records are in the topic."""
    for _ in range(int(RUN_SECONDS_MAX / LOOK_SECONDS)):
        posts = [post for _, post in list(simulator.history) if post.id in simulator.ledger.matching]
        if posts and len(_records(bootstrap)) >= len(posts):
            return posts
        assert life.is_running, life.log_text()[-4000:]
        assert life.events("task_failed") == []
        pause(LOOK_SECONDS)
    message = f"the posts did not come: {life.log_text()[-4000:]}"
    raise AssertionError(message)


def _records(bootstrap: str) -> list[StoredRecord]:
    """What is in the printed topic, which no other test writes to; nothing while it is not there."""
    try:
        return journal.committed_records(bootstrap, "twitter")
    except DeliveryFatal:
        return []


def _latest(registry_url: str, subject: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{registry_url}/subjects/{subject}/versions/latest", timeout=180) as answer:  # noqa: S310 - our own
        schema: dict[str, Any] = json.loads(json.load(answer)["schema"])
    return schema


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_demo_of_x_balances_its_accounts(kafka: KafkaStack, registry: RegistryStack, tmp_path: Path) -> None:
    """In small: cuts, doubles, deletions and withheld posts, each counted on both sides."""
    name, figures_file = f"demo-x-{uuid.uuid4().hex[:8]}", tmp_path / "figures.json"
    options = {
        "folder": str(tmp_path / "demo"),
        "posts": 200,
        "servers": {"bootstrap.servers": kafka.bootstrap, "schema.registry.url": registry.url, "group.id": name},
        # Connections are counted: a busy machine that is silent for a while costs none.
        "changes": {
            "kafka.status.topic": name,
            "kafka.delete.topic": f"{name}-deleted",
            "x.silence.ms": "300000",
        },
    }
    done = subprocess.run(
        bound([sys.executable, "-m", "tests.integration.demo_process", "x", json.dumps(options), str(figures_file)]),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(figures_file.read_text())
    assert figures["differences"] == []
    assert figures["balanced"] is True
    assert figures["connections"] == 3
    assert min(figures[name] for name in ("posts", "deletes", "doubles_dropped", "gap_messages")) > 0
    assert figures["left_out"]["deleted"] == 1
