"""The end of a redrive: when everything is idle, in virtual time."""

from __future__ import annotations

import asyncio
import re

import pytest

from fetchers.sdk import Fatal, SystemClock
from metrics.events import ComponentStateChanged, Event, StopReported, TaskEvents, TaskFailed
from service.config.definition import read_definition
from service.kafka.errors import DeliveryRetriable
from service.redrive.run import RedriveReport, TypedRowsError, redrivable, run_until_idle
from service.worker.reporting import TaskReporter
from spark_batch.errors import ConversionFatal
from tests.unit.pipeline.fake_kafka import TOPIC
from tests.unit.pipeline.fakes import FakeConversion, World, numbers, payloads
from tests.unit.worker.lives import life_of

pytestmark = pytest.mark.looptime


async def test_until_idle_ends_when_everything_was_idle_that_long() -> None:
    """Not before: the slow conversion of the last records counts as work."""
    world = World(conversion=FakeConversion(script=lambda _: 20.0))
    await run_until_idle([life_of(world, numbers(payloads(20)))], SystemClock(), seconds=5)
    assert len(world.kafka.values(TOPIC)) == 20
    assert world.told(StopReported)[0].left_records == 0


async def test_until_idle_zero_still_does_the_whole_work() -> None:
    """Busy is not idle for zero seconds."""
    world = World(conversion=FakeConversion(script=lambda _: 1.0))
    await run_until_idle([life_of(world, numbers(payloads(20)))], SystemClock(), seconds=0)
    assert len(world.kafka.values(TOPIC)) == 20


async def test_one_busy_task_keeps_all_running() -> None:
    """A source in the middle of its first round is busy, however silent."""
    quiet, slow = World(name="quiet"), World(name="slow")
    source = numbers(payloads(2))
    source.script = lambda _: asyncio.sleep(300)
    await run_until_idle([life_of(quiet, numbers(payloads(2))), life_of(slow, source)], SystemClock(), seconds=5)
    assert len(slow.kafka.values(TOPIC)) == 2
    assert asyncio.get_running_loop().time() >= 305


async def test_a_failed_task_does_not_hold_up_the_end_and_is_remembered() -> None:
    """The other connector finishes its work; the exit code is 1."""
    broken, well, report = World(name="broken"), World(name="well"), RedriveReport()
    source = numbers(payloads(4))
    source.script = lambda _: Fatal("401")
    lives = [life_of(broken, source), life_of(well, numbers(payloads(30)))]
    await run_until_idle(lives, SystemClock(), seconds=5)
    for event in (*well.events, *broken.events):
        report(event)
    assert report.is_failed
    assert len(well.kafka.values(TOPIC)) == 30


async def test_what_is_hopeless_is_not_waited_for() -> None:
    """Without Spark nothing of the letters can be converted: the redrive ends, and says so in one line."""
    world, report = World(conversion=FakeConversion(script=lambda _: 3_600.0)), RedriveReport()
    for detail in ("starting", "Spark cannot be started: [JAVA_GATEWAY_EXITED] it ended\n\tat org.apache.spark"):
        assert not report.is_failed
        report(ComponentStateChanged(component="spark", is_ready=False, detail=detail))
    lives = [life_of(world, numbers(payloads(4)))]
    await run_until_idle(lives, SystemClock(), seconds=5, is_hopeless=lambda: report.is_without_spark)
    assert asyncio.get_running_loop().time() < 60
    assert report.failure == "Spark cannot be started: [JAVA_GATEWAY_EXITED] it ended"


async def test_spark_that_comes_back_is_waited_for() -> None:
    """A JVM that was killed is started anew, and the redrive goes on."""
    report = RedriveReport()
    report(ComponentStateChanged(component="spark", is_ready=False, detail="lost during a conversion: gone"))
    assert not report.is_failed
    assert not report.is_without_spark


@pytest.mark.parametrize(
    ("error", "is_traced"),
    [
        (ConversionFatal("the conversion failed: An error occurred while calling o1.collect."), False),
        (Fatal("contract.rules.adult: no such field"), False),
        (KeyError("x"), True),
    ],
)
async def test_a_failure_that_was_raised_on_purpose_is_a_sentence(error: Exception, *, is_traced: bool) -> None:
    """Its chain of causes ends in Java, which says nothing to whoever redrives; a bug keeps its trace."""
    told: list[Event] = []
    reporter = TaskReporter(TaskEvents(told.append, "c", 0), is_every_failure_traced=False)
    reporter.on_failure(error, trace="Traceback\npy4j.protocol.Py4JJavaError: …")
    report = RedriveReport()
    (event,) = told
    report(event)
    assert isinstance(event, TaskFailed)
    assert (event.trace != "") == is_traced
    assert report.failure == str(error)


async def test_a_task_that_waits_for_its_restart_is_not_idle() -> None:
    """The redrive ends only when it is through."""
    world, starts = World(), []

    async def turn(place: str) -> None:
        if place == "writer.start":
            starts.append(place)
            if len(starts) < 4:
                message = "away"
                raise DeliveryRetriable(message)

    world.kafka.turn = turn
    await run_until_idle([life_of(world, numbers(payloads(4)))], SystemClock(), seconds=0.1)
    assert len(starts) == 4
    assert len(world.kafka.values(TOPIC)) == 4


async def test_without_tasks_until_idle_ends_at_once() -> None:
    """There is nothing to wait for."""
    await run_until_idle([], SystemClock(), seconds=60)
    assert asyncio.get_running_loop().time() < 1


def test_letters_of_typed_rows_are_not_put_in_again_and_it_is_said_why(caplog: pytest.LogCaptureFixture) -> None:
    """Bytes that are written as if they were rows would be others than the topic's schema says; others go on."""
    worker = {"key.converter": "string", "value.converter": "json"}
    table = {"connector.class": "JdbcSource", "connection.url": "jdbc:sqlite:x.db", "mode": "bulk"}
    rows = read_definition({"name": "shop", **table, "topic.prefix": "t."}, worker=worker).definition
    lines = read_definition(
        {"name": "lines", "connector.class": "FileStreamSource", "file": "x", "topic": "t"}, worker=worker
    ).definition
    assert rows is not None
    assert lines is not None
    why = r"letters of shop.*column types.*PATCH /connectors/shop/offsets"
    with pytest.raises(TypedRowsError, match=why):
        redrivable([rows])
    assert not caplog.messages
    assert redrivable([rows, lines]) == [lines]
    assert re.search(why, caplog.text)
