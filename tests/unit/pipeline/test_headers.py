"""Headers, times and filters in the convert stage: which plan a record goes by, and what becomes of its headers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pytest

from fetchers.sdk import Page, SystemClock
from metrics.events import TaskEvents
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import RUNS_MAX, ConvertStage
from spark_batch.plan import ConversionPlan, PayloadFormat
from spark_batch.transforms.catalog import (
    DropHeaders,
    Filter,
    HasHeaderKey,
    InsertHeader,
    RecordIsTombstone,
    Step,
    TimestampRouter,
)
from tests.unit.pipeline.fakes import queued, verdicts

PLAN = ConversionPlan(PayloadFormat.BYTES)


def with_steps(*steps: Step) -> ConversionPlan:
    """A plan of texts with these steps."""
    return replace(PLAN, transformations=steps, topic="t")


def with_headers(*headers: list[tuple[str, bytes | None]]) -> MicroBatch:
    """A micro-batch of two pages: one with these headers, one without any."""
    payloads = [b"%d" % number for number in range(len(headers))]
    pages = (Page(payloads, {"position": 1}, headers=list(headers)), Page([b"last", None], {"position": 2}))
    return MicroBatch(tuple(map(queued, pages)), CloseReason.COUNT, 0.0)


class Dropping:
    """A conversion that says of each record what its plan says, in the order in which it is given them."""

    async def convert(self, plan: ConversionPlan, records: pa.Table, *, is_alone: bool = False) -> pa.Table:
        """Every value as it is."""
        del is_alone
        found = verdicts(plan, records)
        dropped = pa.array([plan.applied_steps().is_dropped] * records.num_rows)
        return found.set_column(found.schema.get_field_index("is_dropped"), "is_dropped", dropped)


@pytest.mark.parametrize("count", [3, 2 * RUNS_MAX])
async def test_records_are_filtered_by_their_headers(count: int) -> None:
    """However they change from record to record, every verdict stands at its own record."""
    is_marked = [number % 3 != 1 for number in range(count)]
    one: list[tuple[str, bytes | None]] = [("h", b"1"), ("x", None)]
    other: list[tuple[str, bytes | None]] = [("x", b"2")]
    batch = with_headers(*(one if marked else other for marked in is_marked))
    plan = with_steps(Step("f", Filter(), HasHeaderKey("h"), is_negated=True))
    converting = ConvertStage(Dropping().convert, plan, TaskEvents(lambda _: None, "c", 0), SystemClock())
    found = await converting.run(batch)
    assert found.outcome.column("value").to_pylist() == [*(b"%d" % number for number in range(count)), b"last", None]
    assert found.outcome.column("is_dropped").to_pylist() == [*(not marked for marked in is_marked), True, True]
    assert found.headers() == [*(batch.pages[0].page.headers or ()), (), ()]


async def test_headers_are_edited_once_for_each_set_of_them() -> None:
    """Records keep the order of their headers; a predicate decides for each of them."""
    plan = with_steps(
        Step("d", DropHeaders(("x",))),
        Step("i", InsertHeader("new", "007"), HasHeaderKey("h")),
        Step("n", InsertHeader("null", "null"), RecordIsTombstone()),
    )
    batch = with_headers([("x", b"1"), ("h", None), ("x", b"2")], [], [("y", b"3")])
    converting = ConvertStage(Dropping().convert, plan, TaskEvents(lambda _: None, "c", 0), SystemClock())
    headers = (await converting.run(batch)).headers()
    assert headers == [(("h", None), ("new", b"7")), (), (("y", b"3"),), (), (("null", None),)]


async def test_topics_of_times_are_made_before_anything_is_delivered() -> None:
    """Each once, and none for records that are not written."""
    made: list[list[str]] = []

    async def convert(plan: ConversionPlan, records: pa.Table, *, is_alone: bool = False) -> pa.Table:
        del is_alone
        return verdicts(plan, records)

    async def make_topics(topics: Collection[str]) -> None:
        made.append(list(topics))

    converting = ConvertStage(
        convert,
        with_steps(Step("r", TimestampRouter())),
        TaskEvents(lambda _: None, "c", 0),
        SystemClock(),
        make_topics=make_topics,
    )
    for payloads in ([b"to:a:1", b"to:b:2", b"bad"], [b"to:b:3"], [b"dropped", b"to:c:4"]):
        await converting.run(MicroBatch((queued(Page(payloads, {"position": 1})),), CloseReason.COUNT, 0.0))
    assert made == [["a", "b"], ["c"]]
