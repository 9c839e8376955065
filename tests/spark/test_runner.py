"""The runner: fair slots, time limits, lost JVMs, cancellation. Each test may kill the JVM it runs on."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator

import psutil
import pyarrow as pa
import pytest
import pytest_asyncio
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from spark_batch.errors import ConversionFatal, ConversionRetriable, SparkUnavailable
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.runner import ConversionRunner
from tests.spark.engines import local_settings, table, take_rules_as_they_are

JSON = ConverterSpec(ConverterKind.JSON)
PLAN = ConversionPlan(PayloadFormat.JSON, dedupe_fields=("a",), value_converter=JSON)
SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]})
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(name="_unjudged", scope="module", autouse=True)
def unjudged_fixture() -> Iterator[None]:
    """Rules that keep a core busy as none from a config can."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        take_rules_as_they_are(monkeypatch)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runner() -> AsyncIterator[ConversionRunner]:
    """A started runner with two slots."""
    found = ConversionRunner(local_settings(), slots=2, job_seconds_max=200)
    await found.start()
    yield found
    await found.stop()


def _slow_plan(rounds: int = 9_000_000) -> ConversionPlan:
    """A plan whose rule keeps a core busy with each record, by default for far longer than any limit here."""
    expression = (
        f"aggregate(sequence(1, {rounds}), 0L, (sum, n) -> sum + length(sha2(cast(n + x as string), 512))) >= 0"
    )
    return ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA, (Rule("slow", expression),)), value_converter=JSON)


async def _until(condition: object, runner: ConversionRunner) -> None:
    """Let the loop run until the statistics say so."""
    assert callable(condition)
    async with asyncio.timeout(200):
        while not condition(runner.statistics):
            await asyncio.sleep(0.01)


async def test_killed_jvm_is_retriable_and_replaced(runner: ConversionRunner) -> None:
    """A JVM killed in mid-job fails that conversion as retriable; the same micro-batch then passes on a new JVM."""
    first, restarts = runner.jvm_pid, runner.statistics.restarts
    assert first is not None
    async with asyncio.TaskGroup() as group:
        group.create_task(_killing(runner, first))
        with pytest.raises(ConversionRetriable, match="lost"):
            await runner.convert(_slow_plan(), table([b'{"x":1}'] * 200))
    assert not psutil.pid_exists(first)
    assert runner.jvm_pid not in {None, first}
    outcome = await runner.convert(PLAN, table([b'{"a":1}']))
    assert outcome.column("value").to_pylist() == [b'{"a":1}']
    assert runner.statistics.restarts == restarts + 1


async def _killing(runner: ConversionRunner, pid: int) -> None:
    await _until(lambda seen: seen.running == 1, runner)
    await asyncio.sleep(0.5)
    os.kill(pid, signal.SIGKILL)


async def test_jvm_killed_while_idle(runner: ConversionRunner) -> None:
    """A JVM that died between conversions costs one retriable error at most."""
    pid = runner.jvm_pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ConversionRetriable):
        await runner.convert(PLAN, table([b"{}"]))
    assert (await runner.convert(PLAN, table([b"{}"]))).num_rows == 1


async def test_full_disk_kills_no_jvm(runner: ConversionRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """A micro-batch for whose file there is no room waits until there is: neither it nor Spark is to blame."""

    def written(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pid, restarts = runner.jvm_pid, runner.statistics.restarts
    with monkeypatch.context() as patched:
        patched.setattr(ArrowStreamSerializer, "dump_stream", written)
        patched.setattr(pa.ipc, "new_stream", written)
        with pytest.raises(SparkUnavailable, match="No space left"):
            await runner.convert(PLAN, table([b"{}"]))
    assert (await runner.convert(PLAN, table([b"{}"]))).num_rows == 1
    assert (runner.jvm_pid, runner.statistics.restarts) == (pid, restarts)


async def test_hanging_conversion_is_given_up(runner: ConversionRunner) -> None:
    """Over the time limit: retriable, for the others in flight too, and the next conversion runs."""
    await runner.convert(_slow_plan(), table([None]))
    usual, runner._job_seconds_max = runner._job_seconds_max, 2.0
    try:
        with pytest.raises(ConversionRetriable, match="longer than"):
            await runner.convert(_slow_plan(), table([b'{"x":1}'] * 1_000))
    finally:
        runner._job_seconds_max = usual
    outcome = await runner.convert(PLAN, table([b"{}"]))
    assert outcome.column("reason").to_pylist() == [None]


async def test_cancelled_conversion_keeps_its_slot_until_it_ends(runner: ConversionRunner) -> None:
    """Cancelling is prompt for the caller, and no more jobs than slots ever run; here none ends, for the JVM stands."""
    await runner.start()
    pid = runner.jvm_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(runner.convert(PLAN, table([b"{}"]))) for _ in range(4)]
            await _until(lambda seen: seen.running == 2 and seen.waiting == 2, runner)
            for task in tasks:
                task.cancel()
        assert all(task.cancelled() for task in tasks)
        assert (runner.statistics.running, runner.statistics.waiting) == (2, 0)
    finally:
        os.kill(pid, signal.SIGCONT)
    await _until(lambda seen: seen.running == 0, runner)
    assert (await runner.convert(PLAN, table([b"{}"]))).num_rows == 1


async def test_plans_in_flight_do_not_mix(runner: ConversionRunner) -> None:
    """Many callers with different plans each get their own answer."""
    plans = [ConversionPlan(PayloadFormat.JSON, record_bytes_max=limit, value_converter=JSON) for limit in (3, 4, 5, 6)]

    async def reasons(plan: ConversionPlan) -> list[str | None]:
        outcome = await runner.convert(plan, table([b"1" * size for size in range(1, 9)]))
        return list(outcome.column("reason").to_pylist())

    async with asyncio.TaskGroup() as group:
        tasks = {plan.record_bytes_max: group.create_task(reasons(plan)) for plan in plans * 3}
    for limit, task in tasks.items():
        assert task.result() == [None] * limit + ["too_large"] * (8 - limit)


async def test_plan_that_cannot_run_is_fatal(runner: ConversionRunner) -> None:
    """Avro without a schema id, a rule that Spark refuses and a wrong batch are bugs, and told as fatal."""
    with pytest.raises(ConversionFatal, match="schema id"):
        await runner.convert(
            ConversionPlan(PayloadFormat.TEXT, value_converter=ConverterSpec(ConverterKind.AVRO)), table([b"a"])
        )
    wrong = ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA, (Rule("r", "nowhere > 1"),)), value_converter=JSON)
    assert [finding.key for finding in await runner.check(wrong)] == ["contract.rules.r"]
    with pytest.raises(ConversionFatal):
        await runner.convert(wrong, table([b'{"x":1}']))
    (unread,) = await runner.check(
        ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA, (Rule("r", "x >"),)), value_converter=JSON)
    )
    assert "Syntax error at or near end of input" in unread.expected
    with pytest.raises(ConversionFatal, match="columns"):
        await runner.convert(PLAN, table([b"{}"]).drop_columns(["key"]))


async def test_rule_that_raises_rejects_only_its_records(runner: ConversionRunner) -> None:
    """A rule may blow up on a record; the others of the micro-batch do not suffer for it."""
    rule = Rule("raises", "if(x = 3, raise_error('no') is null, true)")
    plan = ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA, (rule,)), value_converter=JSON)
    outcome = await runner.convert(plan, table([b'{"x":%d}' % n for n in range(6)]))
    assert outcome.column("reason").to_pylist() == [None, None, None, "rule_failed", None, None]
