"""The convert stage by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest

from fetchers.sdk import BackOff, SystemClock
from metrics.events import BatchConverted, Event, RetryScheduled, TaskEvents
from service.domain.errors import PoisonedBatchError
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import Convert, ConvertStage, input_table
from service.registry.errors import IncompatibleSchema
from spark_batch.errors import ConversionError, ConversionFatal, ConversionRetriable, SparkUnavailable
from spark_batch.outcome import INPUT_SCHEMA, OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan, PayloadFormat
from spark_batch.transforms.catalog import HoistField, Side, Step
from tests.unit.pipeline.fakes import page, queued

PLAN = ConversionPlan(PayloadFormat.BYTES)


def batch_of(*payloads: bytes) -> MicroBatch:
    """One page."""
    return MicroBatch((queued(page(*payloads)),), CloseReason.COUNT, 0.0)


def stage(convert: Convert, events: list[Event]) -> ConvertStage:
    """A stage that tells ``events``."""
    return ConvertStage(convert, PLAN, TaskEvents(events.append, "c", 0), SystemClock())


async def test_a_missing_verdict_is_refused() -> None:
    """Records would get the verdicts of others."""

    async def convert(_: ConversionPlan, records: pa.Table, /, **_options: bool) -> pa.Table:
        return pa.table({"value": records.column("value")}).slice(1)

    events: list[Event] = []
    with pytest.raises(ConversionFatal, match="2 records were converted to 1 verdicts"):
        await stage(convert, events).run(batch_of(b"1", b"2"))
    assert not [event for event in events if isinstance(event, BatchConverted)]


async def test_nothing_to_convert_asks_nobody() -> None:
    """Pages that only move the offset get by without Spark."""

    async def convert(_: ConversionPlan, __: pa.Table, /, **_options: bool) -> pa.Table:
        pytest.fail("asked")

    found = await stage(convert, []).run(batch_of())
    assert found.outcome.schema == OUTCOME_SCHEMA
    assert found.outcome.num_rows == 0


async def test_pages_of_one_topic_are_converted_together_wherever_they_stand() -> None:
    """A transformation may ask for the topic: one job for each of them, and every verdict in its record's place."""
    asked: list[tuple[str, list[bytes]]] = []

    async def convert(plan: ConversionPlan, records: pa.Table, /, **_options: bool) -> pa.Table:
        payloads = cast("list[bytes]", records.column("value").to_pylist())
        asked.append((plan.topic, payloads))
        return pa.table({"value": [f"{plan.topic}:".encode() + payload for payload in payloads]})

    pages = [
        page(b"1", b"2", topic="a"), page(b"3"), page(topic="a"), page(b"4", topic="a"), page(b"5", b"6", topic="c")
    ]  # fmt: skip
    batch = MicroBatch(tuple(map(queued, pages)), CloseReason.COUNT, 0.0)
    plan = replace(PLAN, topic="b", transformations=(Step("s", HoistField(Side.VALUE, "line")),))
    found = await replace(stage(convert, []), plan=plan).run(batch)
    assert asked == [("a", [b"1", b"2", b"4"]), ("b", [b"3"]), ("c", [b"5", b"6"])]
    assert found.outcome.column("value").to_pylist() == [b"a:1", b"a:2", b"b:3", b"a:4", b"c:5", b"c:6"]


async def test_a_missing_verdict_of_one_topic_is_refused() -> None:
    """Also where another topic's verdicts are one too many."""

    async def convert(plan: ConversionPlan, records: pa.Table, /, **_options: bool) -> pa.Table:
        values = records.column("value").to_pylist()
        return pa.table({"value": values[1:] if plan.topic == "a" else [*values, b"more"]})

    pages = [page(b"1", topic="a"), page(b"2")]
    plan = replace(PLAN, topic="b", transformations=(Step("s", HoistField(Side.VALUE, "line")),))
    with pytest.raises(ConversionFatal, match="1 records were converted to 0 verdicts"):
        await replace(stage(convert, []), plan=plan).run(MicroBatch(tuple(map(queued, pages)), CloseReason.COUNT, 0.0))


def test_the_input_has_the_columns_of_all_pages() -> None:
    """Columns that a page does not have are null; no payload is copied."""
    first, second = page(b"1", keys=[b"k"]), page(b"2", None, timestamps_ms=[5, None])
    table = input_table(MicroBatch((queued(first), queued(second)), CloseReason.COUNT, 0.0))
    assert table.schema == INPUT_SCHEMA
    assert table.to_pydict() == {
        "key": [b"k", None, None],
        "value": [b"1", b"2", None],
        "timestamp": [None, 5, None],
    }
    columns: list[Any] = [table.column("value").chunk(0), first.payload_column]
    assert len({column.buffers()[2].address for column in columns}) == 1


@pytest.mark.parametrize(
    ("error", "is_given_up"), [(ConversionRetriable("lost"), True), (SparkUnavailable("does not start"), False)]
)
async def test_only_lost_conversions_are_a_batch_s_own_doing(error: ConversionError, *, is_given_up: bool) -> None:
    """A batch that breaks Spark again and again is given up; one that waits for Spark to start is not."""
    asked: list[bool] = []

    async def convert(_: ConversionPlan, records: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        asked.append(is_alone)
        if len(asked) <= 10:
            raise error
        return pa.table({"value": records.column("value")})

    events: list[Event] = []
    converting = ConvertStage(
        convert,
        PLAN,
        TaskEvents(events.append, "c", 0),
        SystemClock(),
        BackOff(first_seconds=0.001, cap_seconds=0.001),
    )
    if is_given_up:
        with pytest.raises(PoisonedBatchError, match="lost 4 times"):
            await converting.run(batch_of(b"1"))
        assert asked == [False, False, True, True], "after two losses it must take no innocent one with it"
    else:
        assert (await converting.run(batch_of(b"1"))).outcome.num_rows == 1
    told = {event.message for event in events if isinstance(event, RetryScheduled)}
    assert told == {f"{type(error).__name__}: {error}"}, "the class alone does not say what is the matter"


async def test_topics_of_pages_are_admitted_once_before_their_first_record_is_converted() -> None:
    """Records and tombstones each, for they may go different ways; the connector's own topic was admitted before."""
    happened: list[object] = []

    async def convert(_: ConversionPlan, records: pa.Table, /, **_options: bool) -> pa.Table:
        happened.append(records.num_rows)
        return pa.table({"value": records.column("value")})

    async def admit(topic: str, *, is_tombstone: bool) -> None:
        happened.append((topic, is_tombstone))

    converting = replace(stage(convert, []), admit=admit)
    for pages in (
        [page(b"1")],
        [page(b"2", topic="a"), page(None, topic="a")],
        [page(b"3", None, topic="b"), page(topic="c")],
        [page(b"4", topic="a"), page(None, topic="b")],
    ):
        await converting.run(MicroBatch(tuple(map(queued, pages)), CloseReason.COUNT, 0.0))
    assert happened == [1, ("a", False), ("a", True), 2, ("b", False), ("b", True), 2, 2]


async def test_no_record_is_converted_for_a_topic_whose_subject_takes_no_such_schema() -> None:
    """Asked again, the subject may have been mended."""
    answers = iter([IncompatibleSchema("b-value: a field is missing"), None])

    async def convert(_: ConversionPlan, records: pa.Table, /, **_options: bool) -> pa.Table:
        return pa.table({"value": records.column("value")})

    async def admit(topic: str, *, is_tombstone: bool) -> None:
        if error := next(answers):
            raise error
        assert (topic, is_tombstone) == ("b", False)

    converting = replace(stage(convert, []), admit=admit)
    batch = MicroBatch((queued(page(b"1", topic="b")),), CloseReason.COUNT, 0.0)
    with pytest.raises(IncompatibleSchema):
        await converting.run(batch)
    assert (await converting.run(batch)).outcome.num_rows == 1
