"""The runner with Spark Connect: a server that does not answer costs no slot, one that is started anew no record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from spark_batch.errors import ConversionRetriable
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.runner import ConversionRunner
from spark_batch.session import SparkSettings
from tests.spark.engines import table, take_rules_as_they_are
from tests.spark_server import CONNECT_FLAG, ConnectServer

JSON = ConverterSpec(ConverterKind.JSON)
PLAN = ConversionPlan(PayloadFormat.JSON, value_converter=JSON)
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]})
ENDLESS = "aggregate(sequence(1, 9000000), 0L, (sum, n) -> sum + length(sha2(cast(n + x as string), 512))) >= 0"
SLOW_PLAN = ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA, (Rule("slow", ENDLESS),)), value_converter=JSON)
RULED_PLAN = ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA, (Rule("positive", "x > 0"),)), value_converter=JSON)
ENDS_SECONDS_MAX = 180.0


@pytest.fixture(name="server", scope="module")
def server_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A server of their own, for it will hang and be ended; each test leaves one that answers."""
    server = ConnectServer(tmp_path_factory.mktemp("spark"))
    yield server
    server.stop()


@pytest.fixture(name="restart")
def restart_fixture(server: ConnectServer, runner: ConversionRunner, tmp_path: Path) -> Callable[[], None]:
    """Ends the server and starts another one at its address, which takes its place."""
    assert runner.is_started

    def restart() -> None:
        server.stop()
        server.__dict__ |= ConnectServer(tmp_path, port=server.port).__dict__

    return restart


@pytest.fixture(name="runner")
async def runner_fixture(server: ConnectServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ConversionRunner]:
    """One that has converted."""
    monkeypatch.setenv(CONNECT_FLAG, "1")
    take_rules_as_they_are(monkeypatch)
    async with started(server) as found:
        await found.convert(SLOW_PLAN, table([None]))
        yield found


async def test_what_is_given_up_gives_its_slot_back(runner: ConversionRunner, server: ConnectServer) -> None:
    """After a conversion that is too slow, and after one that a hanging server never answers, the next one runs."""
    runner._job_seconds_max = 3.0
    await refused(runner, SLOW_PLAN)
    await slots_given_back(runner)
    runner._job_seconds_max = 200.0
    assert (await runner.convert(PLAN, table([b"{}"]))).num_rows == 1

    runner._job_seconds_max = 3.0
    jvms = [child for child in server_processes(server) if child.name() == "java"]
    assert jvms
    for jvm in jvms:
        jvm.suspend()
    async with asyncio.TaskGroup() as group:
        group.create_task(refused(runner))
        await asyncio.sleep(0)
        assert runner.statistics.running == 1
        try:
            await slots_given_back(runner)
        finally:
            for jvm in jvms:
                jvm.resume()
    runner._job_seconds_max = 200.0
    assert (await runner.convert(PLAN, table([b"{}"]))).num_rows == 1


async def test_a_server_that_is_started_anew_condemns_nothing(
    runner: ConversionRunner, server: ConnectServer, restart: Callable[[], None]
) -> None:
    """It knows no session any more: no record, no rule and no plan is to blame, and new sessions are made."""
    batch = table([b'{"x":%d}' % number for number in range(5)])
    async with started(server) as ruled, started(server) as checking:
        before = [await each.convert(plan, batch) for each, plan in ((ruled, RULED_PLAN), (runner, PLAN))]
        await asyncio.to_thread(restart)
        for each, plan, seen in ((ruled, RULED_PLAN, before[0]), (runner, PLAN, before[1])):
            with pytest.raises(ConversionRetriable, match="lost"):
                await each.convert(plan, batch)
            assert (await each.convert(plan, batch)).column("reason") == seen.column("reason")
        with pytest.raises(ConversionRetriable, match="lost"):
            await checking.check(RULED_PLAN)
        assert await checking.check(RULED_PLAN) == []
        assert [each.statistics.restarts for each in (ruled, runner, checking)] == [1, 1, 1]


@asynccontextmanager
async def started(server: ConnectServer) -> AsyncIterator[ConversionRunner]:
    """A runner with a session of its own, and one slot, so that the first one lost would be the last."""
    runner = ConversionRunner(SparkSettings(remote=server.url), slots=1, job_seconds_max=200)
    await runner.start()
    yield runner
    await runner.stop()


async def refused(runner: ConversionRunner, plan: ConversionPlan = PLAN) -> None:
    """A conversion that is given up."""
    with pytest.raises(ConversionRetriable, match="longer than"):
        await runner.convert(plan, table([b'{"x":1}'] * 1_000))


def server_processes(server: ConnectServer) -> list[psutil.Process]:
    """Those behind the guard."""
    return psutil.Process(server._process.pid).children(recursive=True)


async def slots_given_back(runner: ConversionRunner) -> None:
    """Until no thread converts any more."""
    async with asyncio.timeout(ENDS_SECONDS_MAX):
        while runner.statistics.running:
            await asyncio.sleep(0.05)
