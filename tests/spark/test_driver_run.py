"""Jobs that the driver runs itself: the same rows as by a Spark job, and a Spark job wherever that is not certain."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from service.config.transformations import read_transformations
from spark_batch import driver_run
from spark_batch.compiled import compile_plan
from spark_batch.driver_run import ALWAYS, JOBS_KEY
from spark_batch.job import Job
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.runner import ConversionRunner
from tests.spark.engines import LocalEngine, local_settings, table

AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=9)
SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "x", "type": "long"},
            {"name": "text", "type": "string"},
            {"name": "items", "type": {"type": "array", "items": ["null", "int"]}},
        ],
    }
)
TYPED = ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA), value_converter=AVRO)
SWIFT = ConversionPlan(PayloadFormat.JSON, dedupe_fields=("x",), value_converter=ConverterSpec(ConverterKind.JSON))


def by_rule(expression: str) -> ConversionPlan:
    """Avro by a contract with one rule."""
    return ConversionPlan(PayloadFormat.JSON, Contract(SCHEMA, (Rule("r", expression),)), value_converter=AVRO)


def payloads(start: int, count: int = 3_000) -> pa.Table:
    """Records of different lengths."""
    body = b'{"x":%d,"text":"%s","items":[%d,null]}'
    return table([body % (n, b"t" * (n % 50), n) for n in range(start, start + count)])


@pytest.fixture(name="jobs")
def jobs_fixture(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each frame to which a Spark job, or a compilation for the driver, was applied."""
    seen: list[int] = []
    applied = Job.applied

    def counted(job: Job, frame: DataFrame) -> DataFrame:
        seen.append(frame.count())
        return applied(job, frame)

    monkeypatch.setattr(Job, "applied", counted)
    return seen


@pytest.mark.parametrize("plan", [TYPED, SWIFT, by_rule("x % 3 <> 0")], ids=["typed", "swift", "rule"])
def test_the_driver_gives_what_a_spark_job_gives(
    local_engine: LocalEngine, plan: ConversionPlan, jobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row, with a compilation for the first micro-batch and nothing but the projection for the next."""
    batches = [payloads(start) for start in (0, 10_000, 20_000)]
    compiled = local_engine.compiled(plan)
    by_driver = [local_engine.convert_by(compiled, batch) for batch in batches]
    assert jobs in ([], [1])  # none where another test has had it compiled
    monkeypatch.setattr("spark_batch.driver_run.DriverRuns.run", lambda *_: None)
    assert [local_engine.convert_by(compiled, batch) for batch in batches] == by_driver
    assert jobs[-3:] == [3_000] * 3


def test_threads_share_no_buffers(local_engine: LocalEngine) -> None:
    """Micro-batches of one plan, converted side by side, come out as one after the other."""
    compiled = local_engine.compiled(by_rule("text rlike '^t*$'"))
    batches = [payloads(start) for start in range(0, 24_000, 1_000)]
    alone = [local_engine.convert_by(compiled, batch) for batch in batches]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda batch: local_engine.convert_by(compiled, batch), batches))
    assert together == alone


def test_a_rule_that_raises_is_left_to_a_spark_job(local_engine: LocalEngine, jobs: list[int]) -> None:
    """Only its records are rejected, no memory is kept, and the next micro-batches are not tried for a while."""
    compiled = local_engine.compiled(by_rule("if(x = 3, raise_error('no') is null, true)"))
    outcome = local_engine.convert_by(compiled, payloads(0, 6))
    assert outcome.column("reason").to_pylist() == [None, None, None, "rule_failed", None, None]
    assert memory_held(local_engine) == 0
    jobs.clear()
    assert local_engine.convert_by(compiled, payloads(10, 6)).column("reason").null_count == 6
    assert jobs == [6]
    jobs.clear()
    assert local_engine.convert_by(compiled, payloads(10, 6)).column("reason").null_count == 6
    assert jobs == [1]
    assert memory_held(local_engine) == 0


def test_a_rule_of_the_clock_is_asked_in_each_micro_batch(local_engine: LocalEngine, jobs: list[int]) -> None:
    """The optimizer writes down the time at which it runs, so what it has optimized is not kept."""
    compiled = local_engine.compiled(by_rule("unix_micros(current_timestamp()) > x"))
    for _ in range(2):
        assert local_engine.convert_by(compiled, payloads(0, 6)).column("reason").null_count == 6
    assert jobs == [1, 6, 6]


def test_every_micro_batch_is_a_job_where_that_is_asked_for(local_engine: LocalEngine, jobs: list[int]) -> None:
    """The way back, without another build: a setting of the session."""
    local_engine.session.conf.set(JOBS_KEY, ALWAYS)
    try:
        compiled = local_engine.compiled(by_rule("x >= 0"))
        for _ in range(2):
            assert local_engine.convert_by(compiled, payloads(0, 6)).column("reason").null_count == 6
    finally:
        local_engine.session.conf.unset(JOBS_KEY)
    assert jobs == [6, 6]


NESTED = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "x", "type": "long"},
            {"name": "text", "type": ["null", "string"]},
            {
                "name": "inner",
                "type": {
                    "type": "record",
                    "name": "I",
                    "fields": [{"name": "n", "type": ["null", "int"]}, {"name": "yes", "type": "boolean"}],
                },
            },
        ],
    }
)
AS_JSON = ConverterSpec(ConverterKind.JSON)
FLAT = {"transforms": "f", "transforms.f.type": "org.apache.kafka.connect.transforms.Flatten$Value"}
LINES = ConversionPlan(PayloadFormat.TEXT, value_converter=AS_JSON)
RECORDS = ConversionPlan(
    PayloadFormat.JSON,
    Contract(NESTED),
    value_converter=AS_JSON,
    transformations=read_transformations(FLAT).steps,
    topic="t",
)


@pytest.mark.parametrize(
    ("plan", "batches", "sent"),
    [
        (LINES, [[b"a", b'"'], [b"b", None, b"\xff"]], [["ordinal"], ["payload"]]),
        (
            RECORDS,
            [
                [
                    b'{"x":1,"text":"a","inner":{"n":1,"yes":true}}',
                    b'{"x":2,"text":null,"inner":{"n":null,"yes":false}}',
                ]
            ],
            [["ordinal"]],
        ),
    ],
    ids=["lines", "records"],
)
def test_what_comes_out_as_it_went_in_stays_out_of_the_jvm(
    *,
    local_engine: LocalEngine,
    monkeypatch: pytest.MonkeyPatch,
    plan: ConversionPlan,
    batches: list[list[bytes | None]],
    sent: list[list[str]],
) -> None:
    """Columns, and fields of records in records; the rows are those of a Spark job all the same."""
    seen: list[list[str]] = []
    taken: set[str] = set()
    run = driver_run._Compiled.run

    def watched(compiled: Any, session: Any, frame: pa.Table) -> pa.Table:
        seen.append([name.removeprefix("__headrace_") for name in compiled.needed])
        taken.update(compiled.taken)
        written = run(compiled, session, frame)
        assert not set(written.column_names) & set(compiled.taken)
        return written

    monkeypatch.setattr(driver_run._Compiled, "run", watched)
    compiled = compile_plan(local_engine.session, plan)
    by_driver = [local_engine.convert_by(compiled, table(batch)) for batch in batches]
    assert seen == sent
    assert len(taken) > 1
    monkeypatch.setattr("spark_batch.driver_run.DriverRuns.run", lambda *_: None)
    assert [local_engine.convert_by(compiled, table(batch)) for batch in batches] == by_driver


def memory_held(engine: LocalEngine) -> int:
    """Bytes outside of the JVM's heap that Spark's Arrow has not given back."""
    session: Any = engine.session
    return int(session._jvm.org.apache.spark.sql.util.ArrowUtils.rootAllocator().getAllocatedMemory())


@pytest.mark.parametrize(
    ("expression", "body"),
    [
        ("coalesce(cast(text as int), 0) >= 0", b'{"x":1,"text":"abc","items":[]}'),
        ("timestamp_micros(x) = TIMESTAMP '2026-01-01 00:00:00'", b'{"x":1767225600000000,"text":"","items":[]}'),
    ],
    ids=["cast", "zone"],
)
def test_every_thread_goes_by_the_settings_of_the_session(
    local_engine: LocalEngine, monkeypatch: pytest.MonkeyPatch, expression: str, body: bytes
) -> None:
    """One that has never used the session, too: Spark asks for settings in the thread that parses and that runs."""
    runner = ConversionRunner(local_settings(), slots=1, job_seconds_max=60)
    monkeypatch.setattr(type(runner._sessions), "present", lambda _: local_engine.session)
    with ThreadPoolExecutor(1) as fresh:
        outcome = fresh.submit(runner._convert, by_rule(expression), table([body])).result(60)
    assert outcome.column("reason").to_pylist() == [None]


@pytest.mark.parametrize("word", ["cast('now' as timestamp)", "to_timestamp('n' || 'ow')"])
def test_words_for_the_time_of_day_are_read_in_each_micro_batch(
    local_engine: LocalEngine, jobs: list[int], word: str
) -> None:
    """The optimizer writes down what ``now`` or ``today`` means as it runs, so what it has optimized is not kept."""
    compiled = local_engine.compiled(by_rule(f"x <= unix_micros({word})"))
    for _ in range(2):
        assert local_engine.convert_by(compiled, payloads(0, 6)).column("reason").null_count == 6
    assert jobs == [1, 6, 6]
