"""Sessions of Spark Connect whose server takes calls and answers none: what is given up ends, and holds nobody up."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import grpc
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import core
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator
from pyspark.sql.connect.client.retries import DefaultPolicy

from spark_batch import session_keeper
from spark_batch.compiled import CompiledPlans
from spark_batch.errors import ConversionError, ConversionRetriable, SparkUnavailable
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.runner import ConversionRunner
from spark_batch.session import Begun, SparkSettings, close_remote, connect, is_session_answering, start_session
from spark_batch.session_keeper import SessionKeeper
from tests.passing_time import let_pass

PLAN = ConversionPlan(PayloadFormat.JSON, value_converter=ConverterSpec(ConverterKind.JSON))
ENDS_SECONDS_MAX = 60.0


@dataclass
class SilentServer(grpc.GenericRpcHandler):  # type: ignore[misc] # gRPC's types are Any
    """Takes every call, and answers none until it may."""

    url: str = ""
    called: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)
    answer: grpc.StatusCode = grpc.StatusCode.ABORTED
    methods: list[str] = field(default_factory=list)
    """Those called, by their names."""

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """Asked for by gRPC, for each call."""
        self.methods.append(call.method.rpartition("/")[2])
        return grpc.unary_unary_rpc_method_handler(self._hang)

    def _hang(self, _request: bytes, context: grpc.ServicerContext) -> None:
        self.called.set()
        self.may_answer.wait()
        context.abort(self.answer, "too late")


@pytest.fixture(name="server")
async def server_fixture(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SilentServer]:
    """One that listens; before the loop waits for its threads it answers, so that a test that fails ends."""
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads)
        silent = SilentServer()
        server.add_generic_rpc_handlers((silent,))
        silent.url = f"sc://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        yield silent
        silent.may_answer.set()
        server.stop(None).wait()


class LoopThreads(ThreadPoolExecutor):
    """Those in which a loop does what blocks."""

    def __init__(self) -> None:
        super().__init__(2)
        self._given: list[Future[Any]] = []

    def submit(self, *args: Any, **more: Any) -> Future[Any]:
        """Asked for by the loop."""
        self._given.append(super().submit(*args, **more))
        return self._given[-1]

    def have_ended(self) -> bool:
        """Whether all that was given to them has."""
        return all(each.done() for each in self._given)


@pytest.fixture(name="threads")
async def threads_fixture() -> LoopThreads:
    """Of the test's loop."""
    found = LoopThreads()
    asyncio.get_running_loop().set_default_executor(found)
    return found


async def test_a_start_that_is_given_up_ends(
    server: SilentServer, threads: LoopThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread is one of the few that all of a worker shares, and the worker's end waits for it."""
    monkeypatch.setattr(session_keeper, "START_SECONDS_MAX", 0.05)
    await refused(SessionKeeper(SparkSettings(remote=server.url), launch=start_session, tell=lambda _: None))
    await until(threads.have_ended)


async def test_a_stop_ends_a_start_whose_server_does_not_answer(server: SilentServer, threads: LoopThreads) -> None:
    """Who waits for the start is told that there is no Spark."""
    await stopped_while_it_starts(server)
    await until(threads.have_ended)


async def stopped_while_it_starts(server: SilentServer) -> None:
    """A keeper whose server has been asked."""
    keeper = SessionKeeper(SparkSettings(remote=server.url), launch=start_session, tell=lambda _: None)
    async with asyncio.TaskGroup() as group:
        group.create_task(refused(keeper))
        await until(server.called.is_set)
        await keeper.stop()


async def test_a_start_that_waits_for_its_next_attempt_is_ended(
    server: SilentServer, threads: LoopThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark sleeps for up to a minute before it asks a server again that is not there; here for an hour."""
    monkeypatch.setattr(core, "DefaultPolicy", partial(DefaultPolicy, initial_backoff=3_600_000))
    server.answer = grpc.StatusCode.UNAVAILABLE
    server.may_answer.set()
    await stopped_while_it_starts(server)
    await until(threads.have_ended)


async def test_a_start_that_was_given_up_before_it_had_a_thread_begins_nothing(
    server: SilentServer, threads: LoopThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would end what it begins."""
    monkeypatch.setattr(session_keeper, "START_SECONDS_MAX", 0.05)
    monkeypatch.setattr(session_keeper, "START_ENDS_SECONDS_MAX", 0.05)
    may_go = threading.Event()
    for _ in range(2):
        threads.submit(may_go.wait)
    launched: list[SparkSession] = []

    def launch(*_: object) -> SparkSession:
        launched.append(connected(server))
        return launched[-1]

    keeper = SessionKeeper(SparkSettings(remote=server.url), launch=launch, tell=lambda _: None)
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 0.05)
    await refused(keeper)
    may_go.set()
    await until(threads.have_ended)
    assert launched == []


async def test_a_start_that_fails_leaves_no_session_open(server: SilentServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is asked to forget it; and PySpark asks for each that is open at the end of the process, for long."""
    begun: list[SparkSession] = []

    def launch(_: SparkSettings, tell: Begun) -> SparkSession:
        begun.append(connected(server))
        tell(begun[-1])
        raise RuntimeError("no tiny job")

    keeper = SessionKeeper(SparkSettings(remote=server.url), launch=launch, tell=lambda _: None)
    await answered_too_late(server, refused(keeper), monkeypatch)
    assert [client_of(session).is_closed for session in begun] == [True]
    assert server.methods == ["ReleaseSession"]


async def test_a_session_for_which_nobody_waits_any_more_is_closed(
    server: SilentServer, threads: LoopThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start goes on where the one who waited for it is cancelled."""
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 0.05)
    begun: list[SparkSession] = []
    may_begin = threading.Event()

    def launch(_: SparkSettings, tell: Begun) -> SparkSession:
        assert may_begin.wait(ENDS_SECONDS_MAX)
        begun.append(connected(server))
        tell(begun[-1])
        return begun[-1]

    keeper = SessionKeeper(SparkSettings(remote=server.url), launch=launch, tell=lambda _: None)
    async with asyncio.TaskGroup() as group:
        waits = group.create_task(keeper.ready())
        await until(lambda: keeper._starting is not None)
        waits.cancel()
    may_begin.set()
    await until(threads.have_ended)
    await keeper.stop()
    assert [client_of(session).is_closed for session in begun] == [True]


async def ready_keeper(server: SilentServer) -> SessionKeeper:
    """With a session of the server."""
    keeper = SessionKeeper(SparkSettings(remote=server.url), launch=lambda *_: connected(server), tell=lambda _: None)
    await keeper.ready()
    return keeper


async def test_a_stop_waits_for_no_server(
    server: SilentServer, threads: LoopThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked to forget the session; whether it does is its own affair, and the thread that asks ends."""
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 0.05)
    keeper = await ready_keeper(server)
    session = keeper.session
    await keeper.stop()
    await until(threads.have_ended)
    assert keeper.session is None
    assert client_of(session).is_closed


async def test_a_stop_beside_a_restart_waits_for_one_limit_alone(
    server: SilentServer, threads: LoopThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost session is being left, whose server does not answer: the worker ends all the same."""
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 3600.0)
    monkeypatch.setattr(session_keeper, "STOP_SECONDS_MAX", 0.05)
    keeper = await ready_keeper(server)
    session = keeper.present()
    async with asyncio.TaskGroup() as group:
        sees = group.create_task(keeper.restart(0, "lost"))
        await until(server.called.is_set)
        async with asyncio.timeout(ENDS_SECONDS_MAX):
            await keeper.stop()
        assert not sees.done()
        sees.cancel()
    await until(lambda: bool(client_of(session).is_closed))
    await until(threads.have_ended)


@pytest.mark.parametrize("is_lost", [True, False])
async def test_a_session_is_closed_where_all_threads_wait_for_its_server(
    server: SilentServer, threads: LoopThreads, monkeypatch: pytest.MonkeyPatch, *, is_lost: bool
) -> None:
    """Conversions that fail beside each other ask whether it is still there, each in one of the loop's few threads."""
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 0.05)
    keeper = await ready_keeper(server)
    session = keeper.present()
    for _ in range(2):
        threads.submit(is_session_answering, session)
    await (keeper.restart(0, "lost") if is_lost else keeper.stop())
    await until(threads.have_ended)
    await keeper.stop()


async def test_a_session_is_closed_where_who_has_seen_it_lost_is_cancelled(
    server: SilentServer, threads: LoopThreads
) -> None:
    """A task is stopped whose conversion has begun to start Spark anew, while the server has not said a last word."""
    keeper = await ready_keeper(server)
    session = keeper.present()
    async with asyncio.TaskGroup() as group:
        sees = group.create_task(keeper.restart(0, "lost"))
        await until(server.called.is_set)
        sees.cancel()
    await until(lambda: bool(client_of(session).is_closed))
    await until(threads.have_ended)
    await keeper.stop()


async def test_a_server_is_asked_to_forget_a_session_that_is_lost(
    server: SilentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends what it does for it, and would else keep it for an hour."""
    keeper = await ready_keeper(server)
    await answered_too_late(server, keeper.restart(0, "too slow"), monkeypatch)
    assert server.methods == ["ReleaseSession"]
    server.may_answer.set()
    await keeper.stop()


def test_nothing_keeps_a_session_that_is_closed(server: SilentServer) -> None:
    """PySpark would have each client that there ever was do something at the end of the process."""
    found: list[weakref.ref[Any]] = []

    def close_one() -> None:
        session = connected(server)
        close_remote(session)
        found.append(weakref.ref(client_of(session)))

    beside = threading.Thread(target=close_one)  # PySpark keeps the first session of each thread while that runs
    beside.start()
    beside.join()
    gc.collect()
    assert [each() for each in found] == [None]


def test_closing_a_session_waits_for_no_other(server: SilentServer) -> None:
    """PySpark has all sessions of a process release what was executed in one pool, and its ``close`` waits for that."""
    other, session = connected(server), connected(server)
    client = client_of(other)
    plan = client._execute_plan_request_with_metadata()
    executed = ExecutePlanResponseReattachableIterator(plan, client._stub, client._retrying, client._builder.metadata())
    executed._release_all()
    try:

        def close() -> None:
            close_remote(session)
            cast("Any", session).__del__()  # as when nobody has it any more, in whatever thread

        closing = threading.Thread(target=close, daemon=True)
        closing.start()
        closing.join(ENDS_SECONDS_MAX)
        assert not closing.is_alive()
    finally:
        close_remote(other)


@pytest.mark.parametrize("is_stopped", [True, False])
async def test_a_call_on_a_closed_channel_condemns_no_plan(
    server: SilentServer, monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool
) -> None:
    """A conversion beside a loss or a stop meets gRPC's ValueError, by which a plan too says that it is wrong."""
    loop = asyncio.get_running_loop()
    runner = ConversionRunner(SparkSettings(remote=server.url), launch=lambda *_: connected(server))
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 0.05)

    def compile_late(_: CompiledPlans, session: SparkSession, _plan: ConversionPlan, *, generation: int) -> None:
        ended = runner._sessions.stop() if is_stopped else runner._sessions.restart(generation, "lost beside it")
        asyncio.run_coroutine_threadsafe(ended, loop).result(ENDS_SECONDS_MAX)
        client_of(session)._channel.unary_unary("/late")(b"")

    monkeypatch.setattr(CompiledPlans, "of", compile_late)
    batch = pa.table({"key": [None], "value": [b"{}"], "timestamp": [None]}, schema=INPUT_SCHEMA)
    with pytest.raises(ConversionError) as told:
        await runner.convert(PLAN, batch)
    assert isinstance(told.value, ConversionRetriable)
    await runner.stop()


async def answered_too_late(
    server: SilentServer, work: Coroutine[Any, Any, None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Do what asks the server, whose answer is waited for until the question is there, and for no longer."""
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 3600.0)
    async with asyncio.TaskGroup() as group:
        group.create_task(work)
        await until(server.called.is_set)
        let_pass(session_keeper.ANSWER_SECONDS_MAX)


def connected(server: SilentServer) -> SparkSession:
    """A session of which nothing was asked yet."""
    return connect(server.url)


def client_of(session: SparkSession | None) -> Any:
    """PySpark's own, which its types do not tell of."""
    return cast("Any", session).client


async def refused(keeper: SessionKeeper) -> None:
    """It does not start."""
    with pytest.raises(SparkUnavailable):
        await keeper.ready()


async def until(condition: Callable[[], bool]) -> None:
    """Without a thread of the loop's, for those are what a call that is not answered takes."""
    async with asyncio.timeout(ENDS_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.01)
