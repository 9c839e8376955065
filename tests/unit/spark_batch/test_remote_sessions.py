"""Sessions of Spark Connect whose server takes calls and answers none: what is given up ends, and holds nobody up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.reattach import ExecutePlanResponseReattachableIterator

from spark_batch import session_keeper
from spark_batch.compiled import CompiledPlans
from spark_batch.errors import ConversionRetriable, SparkUnavailable
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.runner import ConversionRunner
from spark_batch.session import SparkSettings, close_remote, start_session
from spark_batch.session_keeper import SessionKeeper

PLAN = ConversionPlan(PayloadFormat.JSON, value_converter=ConverterSpec(ConverterKind.JSON))
ENDS_SECONDS_MAX = 60.0


@dataclass
class SilentServer(grpc.GenericRpcHandler):  # type: ignore[misc] # gRPC's types are Any
    """Takes every call, and answers none until it may."""

    url: str = ""
    called: threading.Event = field(default_factory=threading.Event)
    may_answer: threading.Event = field(default_factory=threading.Event)

    def service(self, _call: object) -> grpc.RpcMethodHandler:
        """Asked for by gRPC, for each call."""
        return grpc.unary_unary_rpc_method_handler(self._hang)

    def _hang(self, _request: bytes, context: grpc.ServicerContext) -> None:
        self.called.set()
        self.may_answer.wait()
        context.abort(grpc.StatusCode.ABORTED, "too late")


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
        super().__init__()
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
    keeper = SessionKeeper(SparkSettings(remote=server.url), launch=start_session, tell=lambda _: None)
    async with asyncio.TaskGroup() as group:
        group.create_task(refused(keeper))
        await until(server.called.is_set)
        await keeper.stop()
    await until(threads.have_ended)


async def test_a_stop_waits_for_no_server(
    server: SilentServer, threads: LoopThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked to forget the session; whether it does is its own affair, and the thread that asks ends."""
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 0.05)
    keeper = SessionKeeper(SparkSettings(remote=server.url), launch=lambda *_: connected(server), tell=lambda _: None)
    await keeper.ready()
    session = keeper.session
    await keeper.stop()
    await until(threads.have_ended)
    assert keeper.session is None
    assert client_of(session).is_closed


def test_closing_a_session_waits_for_no_other(server: SilentServer) -> None:
    """PySpark has all sessions of a process release what was executed in one pool, and its ``close`` waits for that."""
    other, session = connected(server), connected(server)
    client = client_of(other)
    plan = client._execute_plan_request_with_metadata()
    executed = ExecutePlanResponseReattachableIterator(plan, client._stub, client._retrying, client._builder.metadata())
    executed._release_all()
    try:
        closing = threading.Thread(target=close_remote, args=(session,), daemon=True)
        closing.start()
        closing.join(ENDS_SECONDS_MAX)
        assert not closing.is_alive()
    finally:
        close_remote(other)


async def test_a_call_on_a_closed_channel_condemns_no_plan(
    server: SilentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conversion beside the one that was lost meets gRPC's ValueError, by which a plan too says that it is wrong."""
    loop = asyncio.get_running_loop()
    runner = ConversionRunner(SparkSettings(remote=server.url), launch=lambda *_: connected(server))
    monkeypatch.setattr(session_keeper, "ANSWER_SECONDS_MAX", 0.05)

    def compile_late(_: CompiledPlans, session: SparkSession, _plan: ConversionPlan, *, generation: int) -> None:
        lost = runner._sessions.restart(generation, "lost beside it")
        asyncio.run_coroutine_threadsafe(lost, loop).result(ENDS_SECONDS_MAX)
        client_of(session)._channel.unary_unary("/late")(b"")

    monkeypatch.setattr(CompiledPlans, "of", compile_late)
    batch = pa.table({"key": [None], "value": [b"{}"], "timestamp": [None]}, schema=INPUT_SCHEMA)
    with pytest.raises(ConversionRetriable, match="lost") as told:
        await runner.convert(PLAN, batch)
    assert isinstance(told.value.__cause__, ValueError)
    await runner.stop()


def connected(server: SilentServer) -> SparkSession:
    """A session of which nothing was asked yet."""
    return cast("SparkSession", SparkSession.builder.remote(server.url).create())


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
