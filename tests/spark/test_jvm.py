"""Spark's JVM is out of reach of what is meant for the worker, and speaks through the worker's log."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import psutil
import pyspark
import pytest
from pyspark.errors import AnalysisException, SparkRuntimeException
from pyspark.sql import SparkSession

from spark_batch.jvm import LOGGER, gateway_of_a_jvm, tell_lines
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.session import jvm_pid
from tests.faults.worker_life import wait_until
from tests.spark.engines import LocalEngine, table


@pytest.fixture
def session(local_engine: LocalEngine) -> SparkSession:
    """That of the engine, which runs."""
    plan = ConversionPlan(PayloadFormat.TEXT, value_converter=ConverterSpec(ConverterKind.STRING))
    local_engine.convert(plan, table([b"x"]))
    found = SparkSession.getActiveSession()
    assert found is not None
    return found


@pytest.mark.usefixtures("session")
def test_a_signal_for_the_workers_group_is_not_for_spark() -> None:
    """Ctrl-C or ``kill -- -PID`` asks the worker to stop in stages; what it has fetched needs Spark."""
    pid = jvm_pid()
    assert pid is not None
    assert (os.getpgid(pid), os.getsid(pid)) == (pid, pid)


def test_this_process_is_not_forked_for_a_jvm() -> None:
    """A fork beside threads that are within gRPC, as Spark Connect's are, crashes the child or hangs."""
    forks: list[str] = []
    os.register_at_fork(before=lambda: forks.append("forked"))
    with Path(os.devnull).open("wb") as nowhere:
        gateway = gateway_of_a_jvm(pyspark.SparkConf().set("spark.driver.memory", "256m"), nowhere.fileno())
    jvm_is_there = gateway.jvm.java.lang.Math.abs(-3) == 3
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=240)
    assert jvm_is_there
    assert forks == []


def test_what_spark_says_is_one_line_of_the_log_an_event(
    session: SparkSession, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """The trace of a failed job included; a refused expression is told by who gets the error, and nobody else."""
    with pytest.raises(AnalysisException):
        session.sql("SELECT nofield > 3")
    with pytest.raises(SparkRuntimeException):
        session.createDataFrame([("a",)], ["x"]).selectExpr("assert_true(x = 'b')").collect()

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == LOGGER]

    # What the JVM prints is read in a thread of its own, while the error comes by another way.
    assert wait_until(lambda: len(told()) >= 2, seconds_max=120)
    assert [text.split(":")[0] for text in told()] == ["Executor", "TaskSetManager"]
    assert "USER_RAISED_EXCEPTION" in told()[0]
    assert "\n\tat org.apache.spark" in told()[0]
    assert "".join(capfd.readouterr()) == ""


def test_each_line_has_its_level(caplog: pytest.LogCaptureFixture) -> None:
    """Spark's own; a warning for what a JVM says by itself, and nothing for what each says at its start."""
    lines = [
        "WARNING: Using incubator modules: jdk.incubator.vector",
        'Setting Spark log level to "ERROR".',
        "Error occurred during initialization of VM",
        "",
        r"log4j WARN TaskSetManager a \"quoted\" word\n",
        r"log4j FATAL Main torn \q",
    ]
    caplog.set_level(logging.INFO)
    reader, writer = os.pipe()
    os.write(writer, "".join(f"{line}\n" for line in lines).encode())
    os.close(writer)
    tell_lines(os.fdopen(reader))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "Error occurred during initialization of VM"),
        (logging.WARNING, 'TaskSetManager: a "quoted" word'),
        (logging.CRITICAL, r"Main: torn \q"),
    ]


def test_the_heap_is_kept_small_only_while_spark_starts(session: SparkSession) -> None:
    """So that a worker whose Spark has nothing to do stays small, and one that converts is not slowed down by it."""
    pid = jvm_pid()
    assert pid is not None
    assert {"-XX:MaxHeapFreeRatio=35", "-XX:MinHeapFreeRatio=10"} <= set(psutil.Process(pid).cmdline())
    jvm: Any = session._jvm
    gateway: Any = session.sparkContext._gateway
    kind = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    bean = jvm.java.lang.management.ManagementFactory.getPlatformMXBean(kind)
    asked = gateway.new_array(jvm.java.lang.Class, 1)
    asked[0] = jvm.java.lang.Class.forName("java.lang.String")
    method = kind.getMethod("getVMOption", asked)

    def value_of(name: str) -> str:
        given = gateway.new_array(jvm.java.lang.Object, 1)
        given[0] = name
        return str(method.invoke(bean, given).getValue())

    assert (value_of("MaxHeapFreeRatio"), value_of("MinHeapFreeRatio")) == ("100", "0")
