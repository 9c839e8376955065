"""What the worker needs goes away and comes back: it waits, says so, and loses nothing."""

from __future__ import annotations

import json
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from aiohttp import web

from service.embedded.running import running
from tests import journal
from tests.contracts.loopback import serve
from tests.faults.numbered_lines import GrowingFile, demand_exactly_once, job_files
from tests.faults.topic_watch import committed_end, wait_for_commits
from tests.faults.worker_life import WorkerLife, pause, wait_until, write_properties
from tests.stack import KafkaStack, RegistryStack

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ITEMS = 30
BROKER_AWAY_SECONDS = 20.0
NOISE_LINES_MAX = 100
FULL_DISK_BYTES = 1_000_000
"""Where the broker's disk seems to end: less than one of its index files takes."""


class Api:
    """Answers 503 until it is mended."""

    def __init__(self) -> None:
        """Broken at first."""
        self.is_mended = threading.Event()

    async def answer(self, _: web.Request) -> web.Response:
        """Items, or an apology."""
        if not self.is_mended.is_set():
            return web.Response(status=503, text="come back later")
        return web.json_response([{"id": number} for number in range(ITEMS)])


@dataclass
class Stage:
    """A worker with two connectors, one on the registry, one on an API, and what they stand on."""

    life: WorkerLife
    kafka: KafkaStack
    registry: RegistryStack
    api: Api
    source: GrowingFile
    topic: str

    def wait_for_health(self, is_as_wanted: Callable[[int, str], bool], *, what: str) -> None:
        """Ask ``/health/ready`` until it says so."""
        is_told = wait_until(lambda: is_as_wanted(*self.life.get("/health/ready")), seconds_max=300)
        assert is_told, f"{what}: {self.life.get('/health/ready')}\n{self.life.log_text()[-3000:]}"

    def wait_for_progress(self) -> None:
        """More is committed than now."""
        seen = committed_end(self.kafka.bootstrap, self.topic)
        has_moved = wait_for_commits(self.kafka.bootstrap, self.topic, beyond=seen, seconds_max=300)
        assert has_moved, self.life.log_text()[-4000:]


@pytest.fixture
def stage(
    kafka: KafkaStack, registry: RegistryStack, *, spark_remote: str, topic_name: str, tmp_path: Path
) -> Iterator[Stage]:
    """The registry is dead and the API broken when the worker starts; all are brought back for others."""
    api, source = Api(), GrowingFile(tmp_path / "lines.jsonl")
    source.path.touch()
    with ExitStack() as stack:
        url = stack.enter_context(running(serve(api.answer), name="api")).server
        worker, lines = job_files(
            tmp_path,
            bootstrap=kafka.bootstrap,
            topic=topic_name,
            source=source.path,
            worker={"spark.remote": spark_remote},
            connector={"key.converter": "avro", "key.converter.schema.registry.url": registry.url},
        )
        properties = {
            "name": f"{topic_name}-api",
            "topic": f"{topic_name}-api",
            "connector.class": "HttpSource",
            "http.url": f"{url}/items",
            "http.offset.field": "id",
            "poll.interval.ms": "200",
            "errors.retry.delay.max.ms": "1000",
        }
        items = write_properties(tmp_path / "api.properties", properties)
        life = WorkerLife(worker, lines, items, log=tmp_path / "worker.log")
        registry.kill()
        stack.callback(_bring_back, kafka, registry)
        stack.callback(life.end)
        yield Stage(life, kafka, registry, api, source, topic_name)


def _bring_back(kafka: KafkaStack, registry: RegistryStack) -> None:
    if not kafka.is_alive():
        kafka.restart()
    if not registry.registry.server.is_alive():
        registry.restart()


def test_outages_are_waited_for(stage: Stage) -> None:
    """Registry, API, broker and a full disk: told in health and log while they last, nothing lost or repeated."""
    life, task = stage.life, f"{stage.topic}-0"
    with stage.source.growing():
        life.start()
        _see_registry_and_api_missing(stage, task)
        stage.registry.restart()
        stage.api.is_mended.set()
        stage.wait_for_health(lambda status, _: status == 200, what="all is there")
        stage.wait_for_progress()
        _lose_broker(stage)
        stage.wait_for_progress()
        _fill_disk(stage)
        stage.wait_for_progress()
        stage.wait_for_health(lambda status, _: status == 200, what="all is back")
    assert life.stop(seconds_max=300) == 0, life.log_text()[-4000:]
    life.start("--until-idle", "2")
    assert life.wait(seconds_max=300) == 0, life.log_text()[-4000:]
    assert life.events("task_failed") == []
    demand_exactly_once(stage.kafka.bootstrap, stage.topic, lines=stage.source.lines)
    items = journal.committed_records(stage.kafka.bootstrap, f"{stage.topic}-api")
    assert [json.loads(item.value or b"")["id"] for item in items] == list(range(ITEMS))


def _see_registry_and_api_missing(stage: Stage, task: str) -> None:
    def is_told(status: int, text: str) -> bool:
        tasks = json.loads(text)["tasks"] if status else {}
        waiting = tasks.get(task, {"reason": "", "state": ""})
        is_retrying = any(
            retry["stage"] == "fetch" for retry in tasks.get(f"{stage.topic}-api-0", {}).get("retrying", ())
        )
        return status == 503 and "no schema registry answers" in waiting["reason"] and is_retrying

    stage.wait_for_health(is_told, what="what is missing is told")
    assert wait_until(lambda: len(stage.life.events("task_restarted")) >= 2, seconds_max=300)
    assert any(retry["stage"] == "fetch" for retry in stage.life.events("retry_scheduled"))


def _lose_broker(stage: Stage) -> None:
    """Away for a while under full load: told at once, and no task fails."""
    stage.kafka.kill()
    stage.wait_for_health(
        lambda status, text: status == 503 and json.loads(text)["components"]["kafka"]["ready"] is False,
        what="a lost broker is told",
    )
    pause(BROKER_AWAY_SECONDS)
    assert stage.life.is_running
    noise = [event for event in stage.life.events() if event["logger"].startswith("aiokafka")]
    stage.kafka.restart()
    assert len(noise) < NOISE_LINES_MAX, f"the client fills the log: {len(noise)} lines in {BROKER_AWAY_SECONDS:.0f} s"


def _fill_disk(stage: Stage) -> None:
    """From here on the broker can write no further; it gives up its only disk, and ends."""
    broker = psutil.Process(stage.kafka.pid)
    _, hard = broker.rlimit(resource.RLIMIT_FSIZE)
    broker.rlimit(resource.RLIMIT_FSIZE, (FULL_DISK_BYTES, hard))
    assert wait_until(lambda: not stage.kafka.is_alive(), seconds_max=300), "the broker takes no notice"
    stage.kafka.restart()
