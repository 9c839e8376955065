"""Dead letters after the contract was mended, and what people see of topics."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fetchers.sdk.clock import SystemClock
from service.kafka.client import KafkaSettings
from service.kafka.errors import WriterFenced
from service.kafka.producer import TransactionalWriter
from service.kafka.records import TopicRecords
from service.simulators.mixpanel_process import simulator_process
from service.simulators.mixpanel_settings import CONTRACT_PATH, MixpanelSettings
from tests.faults.topic_watch import committed_values
from tests.faults.worker_life import ROOT, write_properties
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

STRICT = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": "string"}],
}
MENDED = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "by", "type": ["null", "string"], "default": None}],
}
LINES = b'{"id": 1, "by": "Ada"}\n{"id": 2}\n{"id": 3, "by": null}\n{"id": "four"}\n'


def headrace(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def job(
    kafka: KafkaStack, topic: str, folder: Path, contract: Mapping[str, Any], *, remote: str = ""
) -> tuple[str, str]:
    """A worker and one connector of a file, under this contract."""
    connector = {
        "connector.class": "FileStreamSource",
        "file": str(folder / "orders.jsonl"),
        "contract.schema": json.dumps(contract),
    }
    return files(kafka, topic, folder, connector, remote=remote)


def files(
    kafka: KafkaStack, topic: str, folder: Path, connector: Mapping[str, str], *, remote: str = ""
) -> tuple[str, str]:
    """A worker's file and a connector's; without a server for Spark the worker launches a JVM."""
    worker = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": f"redrive-{topic}",
        "listeners": "http://127.0.0.1:0",
        "offset.storage.topic": f"{topic}-offsets",
        "data.dir": str(folder / "data"),
        **({"spark.remote": remote} if remote else {}),
    }
    common = {"name": topic, "topic": topic, "errors.tolerance": "all", "value.converter": "json"}
    paths = folder / "worker.properties", folder / "connector.properties"
    return str(write_properties(paths[0], worker)), str(write_properties(paths[1], {**common, **connector}))


def redriven(letters: str, *job_files: str) -> tuple[int, int, int]:
    """Passed, passed before, failed again."""
    done = headrace("redrive", letters, *job_files)
    assert done.returncode == 0, done.stderr
    passed, passed_before, failed_again = (int(word) for word in done.stdout.split() if word.isdecimal())
    return passed, passed_before, failed_again


@pytest.mark.timeout(600)
def test_what_passes_the_mended_contract_is_delivered_once_and_the_rest_stays(
    kafka: KafkaStack, spark_remote: str, topic_name: str, tmp_path: Path
) -> None:
    """A second redrive delivers nothing twice, tries again what failed, and keeps where it came from."""
    (tmp_path / "orders.jsonl").write_bytes(LINES)
    letters = f"{topic_name}-dead-letters"
    done = headrace("standalone", *job(kafka, topic_name, tmp_path, STRICT, remote=spark_remote), "--until-idle", "1")
    assert done.returncode == 0, done.stderr
    assert committed_values(kafka.bootstrap, topic_name) == {b'{"id":1,"by":"Ada"}': 1}
    assert committed_values(kafka.bootstrap, letters).total() == 3

    asked = ("dead-letters", topic_name, "--bootstrap", kafka.bootstrap, "--offsets", f"{topic_name}-offsets", "--json")
    before = json.loads(headrace(*asked).stdout)
    assert {(each["reason"], each["field"]): each["open"] for each in before["groups"]} == {
        ("missing_field", "by"): 1,
        ("null_not_allowed", "by"): 1,
        ("wrong_type", "id"): 1,
    }

    mended = job(kafka, topic_name, tmp_path, MENDED, remote=spark_remote)
    assert redriven(letters, *mended) == (2, 0, 1)
    assert redriven(letters, *mended) == (0, 0, 1)
    after = json.loads(headrace(*asked).stdout)
    assert (after["open"], after["redriven"]) == (1, 4)
    (group,) = after["groups"]
    assert (group["reason"], group["tries_max"], group["samples"][0]["offending"]) == ("wrong_type", 3, 'id: "four"')
    values = {b'{"id":1,"by":"Ada"}': 1, b'{"id":2,"by":null}': 1, b'{"id":3,"by":null}': 1}
    assert committed_values(kafka.bootstrap, topic_name) == values

    shown = headrace("topic", "read", letters, "--bootstrap", kafka.bootstrap, "--json")
    assert shown.returncode == 0, shown.stderr
    last = json.loads(shown.stdout.split("\n")[-2])
    assert last["value"] == {"id": "four"}
    assert last["headers"]["__headrace.errors.reason"] == "wrong_type"
    assert json.loads(last["headers"]["__headrace.errors.source.partition"]) == {
        "filename": str(tmp_path / "orders.jsonl")
    }


@pytest.mark.timeout(600)
def test_a_letter_whose_day_is_read_again_is_delivered_once(
    kafka: KafkaStack, spark_remote: str, topic_name: str, tmp_path: Path
) -> None:
    """Whichever comes first: the redrive, or the look-back over a day that is still open for late events."""
    bad = 4
    today = SystemClock().now().date()
    project = MixpanelSettings(
        first_day=today - timedelta(days=4), days=2, events_per_day=200, malformed_per_day=1, wrong_typed_per_day=1
    )
    letters = f"{topic_name}-dead-letters"

    with simulator_process(project) as simulator:

        def under(*rules: str) -> tuple[str, str]:
            connector = {
                "connector.class": "MixpanelSource",
                "from_date": project.first_day.isoformat(),
                "mixpanel.to.date": project.last_day.isoformat(),
                "mixpanel.project.id": project.project_id,
                "mixpanel.service.account.username": project.username,
                "mixpanel.service.account.secret": project.secret,
                "mixpanel.base.url": simulator.url,
                "contract.schema": f"file:{CONTRACT_PATH}",
            }
            refused = {f"contract.rules.no_{name}": f"event NOT LIKE '{name}%'" for name in rules}
            return files(kafka, topic_name, tmp_path, {**connector, **refused}, remote=spark_remote)

        def backfill(*rules: str) -> None:
            done = headrace("standalone", *under(*rules), "--until-idle", "1")
            assert done.returncode == 0, done.stderr

        backfill("Signed", "Opened")
        rejected = [json.loads(value or b"{}")["event"] for value in _events(kafka, letters, bad)]
        of_signed, of_opened = (sum(name in event for event in rejected) for name in ("Signed", "Opened"))
        assert len(rejected) == of_signed + of_opened
        assert min(of_signed, of_opened) > 0

        assert redriven(letters, *under("Opened")) == (of_signed, 0, of_opened + bad)
        backfill()
        assert _repeated(kafka, topic_name) == []
        assert committed_values(kafka.bootstrap, topic_name).total() == project.days * project.events_per_day

        assert redriven(letters, *under()) == (0, of_opened, bad)
        assert committed_values(kafka.bootstrap, topic_name).total() == project.days * project.events_per_day


def _events(kafka: KafkaStack, topic: str, bad: int) -> list[bytes | None]:
    """Letters that are whole events: all but the ``bad`` ones, which the simulator made bad."""
    values = list(committed_values(kafka.bootstrap, topic).elements())
    whole = [value for value in values if value is not None and (b"Signed" in value or b"Opened" in value)]
    assert len(values) - len(whole) == bad
    return list(whole)


def _repeated(kafka: KafkaStack, topic: str) -> list[tuple[Any, ...]]:
    """What stands in a topic more than once, by Mixpanel's own key."""
    events = [json.loads(value or b"") for value in committed_values(kafka.bootstrap, topic).elements()]
    names = ("distinct_id", "time", "insert_id")
    keys = Counter((event["event"], *(event["properties"].get(name) for name in names)) for event in events)
    return [key for key, count in keys.items() if count > 1]


@pytest.mark.timeout(600)
async def test_a_task_that_may_still_write_is_fenced(
    kafka: KafkaStack, spark_remote: str, topic_name: str, tmp_path: Path
) -> None:
    """A connector that de-duplicates has to be stopped for a redrive; one that was not cannot repeat what it brings.

    This redrive launches a JVM of its own, as a person's does.
    """
    (tmp_path / "orders.jsonl").write_bytes(LINES)
    connector = {
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "orders.jsonl"),
        "contract.schema": json.dumps(STRICT),
        "dedupe.fields": "id",
    }
    job_files = files(kafka, topic_name, tmp_path, connector, remote=spark_remote)
    done = await asyncio.to_thread(headrace, "standalone", *job_files, "--until-idle", "1")
    assert done.returncode == 0, done.stderr
    settings = KafkaSettings(bootstrap=kafka.bootstrap)
    job_files = files(kafka, topic_name, tmp_path, connector)
    writer = TransactionalWriter(settings, transactional_id=f"redrive-{topic_name}-{topic_name}-0")
    await writer.start()
    try:
        assert await asyncio.to_thread(redriven, f"{topic_name}-dead-letters", *job_files) == (0, 0, 3)
        with pytest.raises(WriterFenced):
            await writer.commit([TopicRecords(topic_name, pa.array([b"late"], pa.binary()))])
    finally:
        await writer.stop()
    values = await asyncio.to_thread(committed_values, kafka.bootstrap, topic_name)
    assert values == {b'{"id":1,"by":"Ada"}': 1}


@pytest.mark.timeout(600)
def test_letters_of_several_connectors_in_one_topic_go_each_its_way(
    kafka: KafkaStack, spark_remote: str, topic_name: str, tmp_path: Path
) -> None:
    """By their own contract, to their own topic; a redrive of one leaves the letters of the other alone."""
    letters = f"{topic_name}-letters"
    (tmp_path / "orders.jsonl").write_bytes(LINES)
    (tmp_path / "others.jsonl").write_bytes(b'{"id": 5, "by": "Eve"}\n{"id": 6}\n')
    every, worker = [], ""
    for name in ("orders", "others"):
        connector = {
            "name": f"{topic_name}-{name}",
            "topic": f"{topic_name}-{name}",
            "connector.class": "FileStreamSource",
            "file": str(tmp_path / f"{name}.jsonl"),
            "contract.schema": json.dumps(STRICT),
            "errors.deadletterqueue.topic.name": letters,
        }
        (tmp_path / name).mkdir()
        worker, file = files(kafka, topic_name, tmp_path / name, connector, remote=spark_remote)
        every.append(file)
    done = headrace("standalone", worker, *every, "--until-idle", "1")
    assert done.returncode == 0, done.stderr
    assert committed_values(kafka.bootstrap, letters).total() == 4

    for file in every:
        text = Path(file).read_text(encoding="utf-8")
        Path(file).write_text(text.replace(json.dumps(STRICT), json.dumps(MENDED)), encoding="utf-8")
    assert redriven(letters, worker, every[1]) == (1, 0, 0)
    assert redriven(letters, worker, *every) == (2, 0, 1)
    assert committed_values(kafka.bootstrap, f"{topic_name}-others").keys() == {
        b'{"id":5,"by":"Eve"}',
        b'{"id":6,"by":null}',
    }
    assert committed_values(kafka.bootstrap, f"{topic_name}-orders").total() == 3


def test_letters_of_no_connector_of_the_job_are_refused(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """The topics that could be meant are named; exit code 2."""
    done = headrace("redrive", "others-dead-letters", *job(kafka, topic_name, tmp_path, STRICT))
    assert done.returncode == 2, done.stdout
    assert f"{topic_name}-dead-letters" in done.stderr


def test_a_topic_that_is_not_there_is_said_in_one_line(kafka: KafkaStack) -> None:
    """No trace; exit code 1."""
    done = headrace("topic", "read", "no-such-topic", "--bootstrap", kafka.bootstrap)
    assert done.returncode == 1
    assert "no-such-topic" in done.stderr
    assert "Traceback" not in done.stderr
