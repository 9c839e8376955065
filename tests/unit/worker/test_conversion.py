"""What the conversion service tells of Spark, at the moment it happens. Sessions are fakes; columns are Connect's."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from fetchers.sdk import SystemClock
from metrics.events import ComponentStateChanged, Event, SparkStarted
from service.background import Background
from service.config.worker import WorkerConfig
from service.worker.conversion import ConversionService, SparkUse
from spark_batch.errors import ConversionFatal, ConversionRetriable, SparkUnavailable
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.session import Begun, SparkSettings

BYTES = ConversionPlan(PayloadFormat.BYTES, value_converter=ConverterSpec(ConverterKind.BYTES))
"""Needs a session, and asks nothing of it."""
JSON = ConversionPlan(PayloadFormat.JSON, value_converter=ConverterSpec(ConverterKind.JSON))
BATCH = pa.table({"key": [None], "value": [b"{}"], "timestamp": [None]}, schema=INPUT_SCHEMA)
RESET = ConnectionResetError("the server is gone")


class HurriedClock(SystemClock):
    """Waits for nothing."""

    async def sleep(self, seconds: float) -> None:
        """Others have their turn."""
        assert seconds > 0
        await asyncio.sleep(0)


@dataclass
class FakeSession:
    """Ends every job with an error."""

    error: Exception
    session_id: str = "fake"
    client: None = None

    @property
    def conf(self) -> Any:
        """Settings, each of which has a value."""
        return {"spark.sql.session.timeZone": "UTC"}

    def createDataFrame(self, _frame: pa.Table) -> Any:  # noqa: N802 - PySpark's name
        """What each job begins with."""
        raise self.error

    def stop(self) -> None:
        """Nothing to end."""


@dataclass
class HangingSession(FakeSession):
    """Ends no job until it may."""

    error: Exception = RESET
    may_end: threading.Event = field(default_factory=threading.Event)

    def createDataFrame(self, _frame: pa.Table) -> Any:  # noqa: N802 - PySpark's name
        """What each job begins with."""
        self.may_end.wait(60)
        raise self.error


@dataclass
class Scene:
    """A service whose sessions are made as the script says: an error for a start that fails."""

    script: list[Exception | None]
    error: Exception = RESET
    """Of every job."""
    events: list[Event] = field(default_factory=list)
    may_start: threading.Event = field(default_factory=threading.Event)
    service: ConversionService = field(init=False)

    def __post_init__(self) -> None:
        """Starts take no time unless the test says so."""
        self.may_start.set()
        config, settings = WorkerConfig.model_construct(conversion_slots=1), SparkSettings(remote="sc://nowhere")
        self.service = ConversionService(
            settings, config, clock=HurriedClock(), emit=self.events.append, launch=cast("Any", self.launch)
        )

    def launch(self, _: SparkSettings, _begun: Begun) -> FakeSession:
        """In a thread of the runner's."""
        self.may_start.wait(60)
        if (error := self.script.pop(0)) is not None:
            raise error
        return FakeSession(self.error)

    @property
    def told(self) -> list[bool | str]:
        """Whether Spark is ready, and how it was started, in the order it was told."""
        found: list[bool | str] = []
        for event in self.events:
            if isinstance(event, ComponentStateChanged):
                found.append(event.is_ready)
            elif isinstance(event, SparkStarted):
                found.append("restart" if event.is_restart else "start")
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        """Until what is told is so."""
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _columns_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[None]:
    """As a worker runs it, until it is stopped."""
    async with Background() as beside:
        beside.start(scene.service.run(), name="spark")
        yield
    await scene.service.stop()


async def test_a_start_that_fails_is_told_and_tried_again() -> None:
    """Not ready until a session is there, ready as soon as it is."""
    scene = Scene([OSError("no port"), None])
    async with running(scene):
        await scene.until(lambda: scene.told[-1:] == [True])
        assert scene.told == [False, False, "start", True]
        assert (await scene.service.convert(BYTES, BATCH)).num_rows == 1


async def test_spark_is_not_ready_while_it_is_started_anew() -> None:
    """Told when it is lost, not when its replacement is there, which may take minutes."""
    scene = Scene([None, None])
    async with running(scene):
        await scene.until(lambda: scene.told[-1:] == [True])
        scene.may_start.clear()
        async with asyncio.TaskGroup() as group:
            group.create_task(lost(scene))
            await scene.until(lambda: scene.told[-1:] == [False])
            assert "the server is gone" in str(scene.events[-1])
            await asyncio.sleep(0.05)
            assert scene.told == [False, "start", True, False]
            scene.may_start.set()
        assert scene.told == [False, "start", True, False, "restart", True]


async def test_a_restart_that_fails_is_tried_again_with_nothing_to_convert() -> None:
    """Whoever starts Spark in the end, it is told: a worker that works is not called unready for ever."""
    scene = Scene([None, OSError("no port"), OSError("no port"), None])
    async with running(scene):
        await scene.until(lambda: scene.told[-1:] == [True])
        with pytest.raises(SparkUnavailable, match="no port"):
            await scene.service.convert(JSON, BATCH)
        await scene.until(lambda: scene.told[-1:] == [True])
        assert scene.told == [False, "start", True, False, False, False, "restart", True]
        assert (await scene.service.convert(BYTES, BATCH)).num_rows == 1


async def test_a_conversion_that_starts_spark_tells_it() -> None:
    """A restart that failed is made good by the next conversion, where that comes first."""
    scene = Scene([None, OSError("no port"), None])
    await scene.service.runner.start()
    scene.service._is_started.set()
    with pytest.raises(SparkUnavailable, match="no port"):
        await scene.service.convert(JSON, BATCH)
    assert (await scene.service.convert(BYTES, BATCH)).num_rows == 1
    assert scene.told == ["start", True, False, False, "restart", True]
    await scene.service.stop()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_full_disk_is_no_loss_of_spark_and_not_the_batch_s_fault(number: int) -> None:
    """The session stays, and the micro-batch may come again as often as it takes."""
    scene = Scene([None], error=OSError(number, "no room"))
    async with running(scene):
        with pytest.raises(SparkUnavailable, match="no room"):
            await scene.service.convert(JSON, BATCH)
        assert (await scene.service.convert(BYTES, BATCH)).num_rows == 1
    assert scene.service.runner.statistics.restarts == 0
    assert scene.told == [False, "start", True]


async def test_lost_executors_are_no_loss_of_spark_and_may_be_the_batch_s_fault() -> None:
    """The session stays; the micro-batch comes again as often as one that is lost may."""
    aborted = (
        "Job aborted due to stage failure: most recent failure: Lost task 0.3 in stage 3.0 (TID 9) (a executor 1): "
    )
    scene = Scene([None], error=PySparkException(f"{aborted}ExecutorLostFailure (executor 1 exited) Reason: killed"))
    async with running(scene):
        with pytest.raises(ConversionRetriable, match="executors were lost") as raised:
            await scene.service.convert(JSON, BATCH)
        assert not isinstance(raised.value, SparkUnavailable)
    assert scene.told == [False, "start", True]


async def test_what_is_no_loss_is_fatal_and_spark_stays_ready() -> None:
    """The session still answers: the plan or the job is wrong."""
    scene = Scene([None], error=ValueError("a bug"))
    async with running(scene):
        with pytest.raises(ConversionFatal, match="a bug"):
            await scene.service.convert(JSON, BATCH)
    assert scene.told == [False, "start", True]


async def test_what_a_session_says_while_it_is_taken_away_is_not_believed() -> None:
    """A job that is interrupted may look like records on which a rule raises: its verdicts are asked for again."""
    scene, may_end = Scene([None, None]), threading.Event()
    runner = scene.service.runner
    await runner.start()
    async with asyncio.TaskGroup() as group:
        verdict = group.create_task(refused(runner._in_slot(lambda: may_end.wait(60))))
        await scene.until(lambda: runner.statistics.running == 1)
        await runner._sessions.restart(0, "another conversion took too long")
        may_end.set()
        await verdict
    assert runner.statistics.retriable_errors == 1
    await runner.stop()


async def refused(verdict: Awaitable[object]) -> None:
    """It is to be asked for again."""
    with pytest.raises(ConversionRetriable, match="taken away"):
        await verdict


async def lost(scene: Scene) -> None:
    """A conversion in which Spark is lost."""
    with pytest.raises(ConversionRetriable, match="lost"):
        await scene.service.convert(JSON, BATCH)


async def test_a_conversion_is_given_up_after_the_time_that_the_key_says() -> None:
    """``conversion.seconds.max``; Spark is started anew for the next one."""
    config = WorkerConfig.parse({"conversion.seconds.max": "0.05", "conversion.slots": "1"}).config
    assert config is not None
    session = HangingSession()
    service = ConversionService(
        SparkSettings(remote="sc://nowhere"),
        config,
        clock=HurriedClock(),
        emit=lambda _event: None,
        launch=cast("Any", lambda *_: session),
    )
    async with Background() as beside:
        beside.start(service.run(), name="spark")
        with pytest.raises(ConversionRetriable, match=r"took longer than 0\.05 s"):
            await service.convert(JSON, BATCH)
        session.may_end.set()
    await service.stop()


@pytest.mark.looptime
async def test_one_that_is_alone_has_nobody_beside_it() -> None:
    """It waits for those who run, and those who come later wait for it."""
    use, log = SparkUse(), list[str]()

    async def take(name: str, *, is_alone: bool, seconds: float) -> None:
        async with use.alone() if is_alone else use.beside_others():
            log.append(f"+{name}")
            await asyncio.sleep(seconds)
            log.append(f"-{name}")

    async with asyncio.TaskGroup() as group:
        for name, is_alone in (("a", False), ("b", False), ("x", True), ("c", False)):
            group.create_task(take(name, is_alone=is_alone, seconds=1))
            await asyncio.sleep(0.1)
    assert log == ["+a", "+b", "-a", "-b", "+x", "-x", "+c", "-c"]


@pytest.mark.looptime
async def test_one_that_gives_up_waiting_holds_nobody_up() -> None:
    """Cancelled while it waited to be alone, it leaves Spark to others."""
    use = SparkUse()
    async with use.beside_others():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1), use.alone():
                pytest.fail("somebody else converted")
        async with asyncio.timeout(1), use.beside_others():
            pass
