"""A stop ends a start that is under way: nobody waits for a session that is not wanted any more."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

from service.background import Background
from spark_batch.errors import SparkUnavailable
from spark_batch.runner import ConversionRunner
from spark_batch.session import jvm_pid, kill_jvm
from tests.spark.engines import local_settings

LOOK_SECONDS = 0.02
REACHED_SECONDS_MAX = 120.0
# PySpark leaves the pipe to a JVM that has ended before it was connected to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def _no_jvm_of_other_tests() -> Iterator[None]:
    """A session beside one that is there would start no JVM; who had that one starts it again."""
    kill_jvm(None)
    yield
    gc.collect()  # here, where the warning about the pipe is expected


def starting_jvms() -> list[int]:
    """JVMs of Spark that this process has launched, connected to or not."""
    found: list[int] = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.cmdline()[-1:] == ["pyspark-shell"] and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child.pid)
    return found


def is_launched() -> bool:
    """The JVM is there, and PySpark still waits for its word."""
    return bool(starting_jvms())


def is_connected() -> bool:
    """The session is being made."""
    return jvm_pid() is not None


@pytest.mark.parametrize("has_come_to", [is_launched, is_connected])
async def test_a_stop_ends_a_start_wherever_it_is(has_come_to: Callable[[], bool]) -> None:
    """Who waits for the start is told that there is no Spark, and no JVM is left."""
    runner = ConversionRunner(local_settings())
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(refused(runner))
        await reached(has_come_to)
        assert not waiting.done()
        await runner.stop()
    assert not runner.is_started
    assert starting_jvms() == []


async def test_a_start_that_nobody_waits_for_is_ended_too() -> None:
    """As a worker stops: first what runs beside it is cancelled, then Spark is stopped."""
    runner = ConversionRunner(local_settings())
    async with Background() as beside:
        beside.start(runner.start(), name="spark")
        await reached(is_launched)
    assert starting_jvms() != []
    await runner.stop()
    assert starting_jvms() == []
    await refused(runner)


async def refused(runner: ConversionRunner) -> None:
    """It does not start."""
    with pytest.raises(SparkUnavailable):
        await runner.start()


async def reached(condition: Callable[[], bool]) -> None:
    """Until the start has come so far."""
    async with asyncio.timeout(REACHED_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(LOOK_SECONDS)
