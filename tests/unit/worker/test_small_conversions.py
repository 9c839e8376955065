"""Which micro-batches the conversion service converts without Spark, and what it tells of that."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest

from fetchers.sdk import RowSchema
from fetchers.sdk import rows as forms
from metrics.events import ConversionEnded
from service.background import Background
from service.config.worker import WorkerConfig
from service.worker.conversion import ConversionService
from spark_batch.errors import ConversionFatal, ConversionRetriable
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.session import SparkSettings
from spark_batch.small import BYTES_MAX, VALUES_MAX, WRITTEN_VALUES_MAX
from tests.unit.worker.test_conversion import FakeSession, HurriedClock

pytestmark = pytest.mark.usefixtures("_columns_of_connect")
LOST = ConnectionResetError("every job of this Spark is lost")
KIND = pa.struct([("id", pa.int64()), ("text", pa.string())])
JSON = ConverterSpec(ConverterKind.JSON)
DECIMAL = forms.decimal(9, 2)


@pytest.fixture
def _columns_of_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")


def plan_of(spec: ConverterSpec = JSON, *, fields: int = 1, kind: Any = DECIMAL) -> ConversionPlan:
    """Of rows with an id, a text and so many more fields; those with decimals are not written as JSON by Arrow."""
    more = {f"f{number}": forms.optional(kind) for number in range(fields)}
    schema = RowSchema.of("t", {"id": forms.INT64, "text": forms.optional(forms.STRING), **more})
    base = ConversionPlan(PayloadFormat.ROWS, value_converter=spec)
    return base.for_rows(schema=schema.avro, key_schema=None, topic="t")


def rows(count: int, text: str = "a") -> pa.Table:
    """A micro-batch."""
    values = pa.array([{"id": at, "text": text} for at in range(count)], KIND)
    return pa.table({"key": pa.nulls(count, pa.binary()), "value": values, "timestamp": pa.nulls(count, pa.int64())})


async def ways(
    *batches: tuple[ConversionPlan, pa.Table], settings: dict[str, str] | None = None, options: tuple[Any, ...] = ()
) -> list[str]:
    """By which way each goes on a worker whose Spark loses every job; ``lost``: by Spark."""
    config = WorkerConfig.parse({"conversion.slots": "1", **(settings or {})}).config
    assert config is not None
    told: list[Any] = []
    service = ConversionService(
        SparkSettings(remote="sc://nowhere", options=options),
        config,
        clock=HurriedClock(),
        emit=told.append,
        launch=cast("Any", lambda *_: FakeSession(LOST)),
    )
    found = []
    async with Background() as beside:
        beside.start(service.run(), name="spark")
        for plan, batch in batches:
            try:
                outcome = await service.convert(plan, batch)
            except ConversionRetriable:
                found.append("lost")
            else:
                assert outcome.num_rows == batch.num_rows
                found.append([event.way for event in told if isinstance(event, ConversionEnded)][-1])
    await service.stop()
    return found


async def test_few_rows_need_no_spark_and_many_do() -> None:
    """By their number, by their fields (fewer where Arrow writes them), and by their bytes."""
    plan = plan_of()
    wide, by_arrow = plan_of(fields=VALUES_MAX // 2), plan_of(fields=WRITTEN_VALUES_MAX // 2, kind=forms.INT64)
    assert await ways(
        (plan, rows(1)),
        (plan, rows(64)),
        (plan, rows(65)),
        (wide, rows(1)),
        (wide, rows(2)),
        (by_arrow, rows(1)),
        (by_arrow, rows(2)),
        (plan, rows(1, "x" * BYTES_MAX)),
    ) == ["small", "small", "lost", "small", "lost", "small", "spark", "lost"]


async def test_the_threshold_is_a_key_of_the_worker_and_0_leaves_all_to_spark() -> None:
    """So does the setting by which every micro-batch is a Spark job."""
    plan, key = plan_of(), "conversion.small.records.max"
    assert await ways((plan, rows(2)), (plan, rows(3)), settings={key: "2"}) == ["small", "lost"]
    assert await ways((plan, rows(1)), settings={key: "0"}) == ["lost"]
    assert await ways((plan, rows(1)), options=(("spark.headrace.jobs", "always"),)) == ["lost"]


async def test_what_the_exact_path_cannot_do_is_given_to_spark() -> None:
    """An Avro plan without the registry's id is wrong by both ways: Spark's words are what the task hears."""
    with pytest.raises(ConversionFatal, match="schema id"):
        await ways((plan_of(ConverterSpec(ConverterKind.AVRO)), rows(1)))


async def test_columns_that_can_never_fit_are_fatal_by_the_small_way_too() -> None:
    """They would not fit in Spark either."""
    text = pa.array([{"id": "x", "text": "a"}], pa.struct([("id", pa.string()), ("text", pa.string())]))
    batch = pa.table({"key": pa.nulls(1, pa.binary()), "value": text, "timestamp": pa.nulls(1, pa.int64())})
    with pytest.raises(ConversionFatal, match="expected whole numbers"):
        await ways((plan_of(), batch))
