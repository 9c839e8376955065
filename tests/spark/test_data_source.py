"""``spark.read.format("headrace")`` where users have Spark: a standalone cluster, Spark Connect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import IO, Any

import psutil
import pytest
from pyspark.errors.exceptions.connect import AnalysisException
from pyspark.sql import SparkSession

from service.embedded.ports import free_ports
from service.simulators.mixpanel_process import RunningSimulator, simulator_process
from service.simulators.mixpanel_settings import CONTRACT_PATH, MixpanelSettings
from service.spark_source.source import HeadraceSource
from tests.counting_source import CLASS, SCHEMA, grow_to
from tests.spark_server import CONNECT_FLAG, GUARD, ROOT, spark_home

PROJECT = MixpanelSettings(
    first_day=date(2026, 1, 1),
    days=3,
    events_per_day=2_000,
    malformed_per_day=5,
    wrong_typed_per_day=7,
    duplicates_per_day=40,
)
READY_SECONDS_MAX = 240.0
STEP_SECONDS_MAX = 280.0
TEST_SECONDS_MAX = 900


class Program:
    """A process of Spark's behind the guard, so that it ends with this one; its lines are read as they come."""

    def __init__(self, command: list[str], folder: Path) -> None:
        environment = {
            **{name: value for name, value in os.environ.items() if name != CONNECT_FLAG},
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(GUARD), "5", *command],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def line(self, marker: str, *, seconds_max: float) -> str:
        """The first line with the marker, once it has come; it is forgotten with those before it."""

        def places() -> list[int]:
            return [at for at, line in enumerate(self._lines) if marker in line]

        with self._news:
            self._news.wait_for(lambda: places() or self._process.poll() is not None, seconds_max)
            found = places()
            assert found, "".join(self._lines[-60:])
            line = self._lines[found[0]]
            del self._lines[: found[0] + 1]
            return line

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End it; nothing of it is left."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=120)
        self._reader.join(timeout=120)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()
        self._process.wait()
        with self._news:
            self._news.notify_all()


@pytest.fixture(name="master", scope="module")
def master_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master with one worker of two cores."""
    folder = tmp_path_factory.mktemp("standalone")
    port, web, worker_web = free_ports(3)
    url = f"spark://127.0.0.1:{port}"
    run = str(spark_home() / "bin" / "spark-class")
    address = ["--host", "127.0.0.1"]
    deploy = "org.apache.spark.deploy"
    master = Program([run, f"{deploy}.master.Master", *address, "--port", str(port), "--webui-port", str(web)], folder)
    try:
        master.line("New state: ALIVE", seconds_max=READY_SECONDS_MAX)
        sizes = ["--cores", "2", "--memory", "1g", "--webui-port", str(worker_web)]
        worker = Program([run, f"{deploy}.worker.Worker", *address, *sizes, url], folder)
        try:
            worker.line("Successfully registered", seconds_max=READY_SECONDS_MAX)
            yield url
        finally:
            worker.stop()
    finally:
        master.stop()


@pytest.fixture(name="simulator", scope="module")
def simulator_fixture() -> Iterator[RunningSimulator]:
    """A project of three days, with bad lines and copies."""
    with simulator_process(PROJECT, is_prepared=True) as simulator:
        yield simulator


def mixpanel_options(simulator: RunningSimulator) -> dict[str, str]:
    """As the demo's connector has them."""
    return {
        "connector.class": "MixpanelSource",
        "from_date": PROJECT.first_day.isoformat(),
        "mixpanel.to.date": PROJECT.last_day.isoformat(),
        "mixpanel.project.id": PROJECT.project_id,
        "mixpanel.service.account.username": PROJECT.username,
        "mixpanel.service.account.secret": PROJECT.secret,
        "mixpanel.base.url": simulator.url,
        "contract.schema": f"file:{CONTRACT_PATH}",
        "errors.tolerance": "all",
    }


def counting_options(until: Path, count: int) -> dict[str, str]:
    """So many numbers."""
    grow_to(until, count)
    return {
        "connector.class": CLASS,
        "counting.until": str(until),
        "contract.schema": SCHEMA,
        "poll.interval.ms": "20",
        "batch.records.max": "10",
    }


@pytest.mark.slow
@pytest.mark.timeout(TEST_SECONDS_MAX)
def test_a_driver_on_a_cluster(master: str, simulator: RunningSimulator, tmp_path: Path) -> None:
    """A backfill has the counts of the demo's accounts; a killed executor and a stopped query cost and repeat nothing.

    The accounts (``Truth``) are those by which the demo audits what the service delivers of the same project.
    """
    gate = tmp_path / "gate"
    gate.mkdir()
    streamed = {"batch.records.max": "20", "headrace.trigger.records.max": "60"}
    options: Mapping[str, Mapping[str, str]] = {
        "mixpanel": mixpanel_options(simulator),
        "gated": counting_options(tmp_path / "gated-until", 40) | {"tasks.max": "2", "counting.gate": str(gate)},
        "streamed": counting_options(tmp_path / "streamed-until", 240) | streamed,
    }
    script = [sys.executable, "-m", "tests.spark.data_source_driver", master, str(tmp_path), json.dumps(options)]
    driver = Program(script, tmp_path)
    try:
        found = said(driver, "backfill")
        truth = simulator.truth()
        assert (found["valid"], found["rejected"]) == (truth.delivered, truth.dead_lettered)
        assert found["distinct"] == found["valid"] == PROJECT.days * PROJECT.events_per_day

        kill_executor_of(gate / "pid", driver)
        assert said(driver, "killed")["numbers"] == list(range(40))

        written = said(driver, "stopped")["numbers"]
        assert written == list(range(len(written)))
        assert 0 < len(written) <= 240
        assert said(driver, "resumed")["numbers"] == list(range(300))
    finally:
        driver.stop()


def said(driver: Program, step: str) -> dict[str, Any]:
    """What the driver says of a step."""
    found: dict[str, Any] = json.loads(driver.line(f'{{"step": "{step}"', seconds_max=STEP_SECONDS_MAX))
    return found


def kill_executor_of(note: Path, driver: Program) -> None:
    """Wait until a task has noted its process in the middle of its pages, and kill the executor above it."""
    waiting = threading.Event()
    while not (note.exists() and note.read_text().endswith("\n")):
        assert driver.is_running
        waiting.wait(0.05)
    executor = next(parent for parent in psutil.Process(int(note.read_text())).parents() if parent.name() == "java")
    executor.send_signal(signal.SIGKILL)
    executor.wait(120)


@pytest.mark.timeout(TEST_SECONDS_MAX)
def test_spark_connect_reads_it_too(
    spark_remote: str, simulator: RunningSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's Python imports headrace; rows, rejected records and refusals come to the client."""
    monkeypatch.setenv(CONNECT_FLAG, "1")
    spark = SparkSession.builder.remote(spark_remote).create()
    try:
        spark.dataSource.register(HeadraceSource)
        source = spark.read.format("headrace").options(**mixpanel_options(simulator))
        rejected = source.option("headrace.rejected", "only").load().toArrow()
        assert rejected.num_rows == PROJECT.days * 12
        assert rejected.column("payload").null_count == 0
        with pytest.raises(AnalysisException, match=r"contract\.schema: Invalid value"):
            _ = source.option("contract.schema", "{").load().schema
    finally:
        spark.stop()
