"""Pages of rows in the convert stage: a plan for each topic and schema, made before the first row is converted."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from fetchers.sdk import Page, RowSchema, SystemClock
from fetchers.sdk.rows import INT64, STRING
from metrics.events import TaskEvents, discard
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import ConvertedBatch, ConvertStage, PlanRows, RowPlans
from service.pipeline.settlement import SettlementRules, settle
from service.registry.errors import IncompatibleSchema
from service.stores.dedupe_store import NoDedupe
from spark_batch.convert_exactly import convert_exactly
from spark_batch.errors import ConversionFatal
from spark_batch.outcome import OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan, PayloadFormat
from spark_batch.transforms.catalog import ExtractNewRecordState, Filter, HasHeaderKey, Side, Step
from spark_batch.transforms.envelope import Reference
from tests.unit.pipeline.fakes import page, queued

PLAN = ConversionPlan(PayloadFormat.ROWS)
OLD = RowSchema.of("users", {"id": INT64})
NEW = RowSchema.of("users", {"id": INT64, "name": STRING})
KEY = RowSchema.of("users.Key", {"id": INT64})


def rows(*ids: int | None, schema: RowSchema = OLD, topic: str | None = "users", kind: Any = None) -> Page:
    """A page of rows whose keys are their ids; None is a tombstone with the key 0."""
    column = pa.array([each or 0 for each in ids], kind or pa.int64())
    columns = {"id": column} if schema is OLD else {"id": column, "name": pa.array(["x"] * len(ids))}
    mask = pa.array([each is None for each in ids], pa.bool_())
    struct = pa.StructArray.from_arrays(list(columns.values()), names=list(columns), mask=mask)
    keys = pa.table({"id": column})
    return Page(struct, {}, schema=schema, topic=topic, keys=keys, key_schema=KEY)


def batch(*pages: Page) -> MicroBatch:
    """All of them."""
    return MicroBatch(tuple(map(queued, pages)), CloseReason.COUNT, 0.0)


class Worker:
    """Plans and converts, and tells in which order; ``refused``: a schema that the registry does not take."""

    def __init__(self, refused: RowSchema | None = None) -> None:
        """Nothing happened yet."""
        self.happened: list[object] = []
        self.refused = refused
        self.wait = asyncio.Event()
        self.wait.set()

    async def plan_rows(
        self, topic: str, schema: RowSchema, key_schema: RowSchema | None, /, *, has_tombstones: bool
    ) -> ConversionPlan:
        """One plan for each topic and schema."""
        await self.wait.wait()
        self.happened.append((topic, schema, has_tombstones))
        if schema == self.refused:
            raise IncompatibleSchema("users-value: a field is missing")
        assert key_schema is not None
        return PLAN.for_rows(schema=schema.avro, key_schema=key_schema.avro, topic=topic)

    async def convert(self, plan: ConversionPlan, records: pa.Table, /, **_options: bool) -> pa.Table:
        """The id as text is the value; 13 is rejected."""
        keys: list[Any] = records["key"].to_pylist()
        found = [(key["id"], row) for key, row in zip(keys, records["value"].to_pylist(), strict=True)]
        self.happened.append((plan.contract.schema if plan.contract else None, [number for number, _ in found]))
        outcome: dict[str, list[Any]] = {name: [None] * len(found) for name in OUTCOME_SCHEMA.names}
        outcome["value"] = [None if row is None else str(number).encode() for number, row in found]
        outcome["reason"] = ["wrong_type" if number == 13 else None for number, _ in found]
        outcome["stage"] = outcome["message"] = outcome["reason"]
        outcome["ordinal"] = list(range(len(found)))
        return pa.table(outcome, schema=OUTCOME_SCHEMA)


def stage(worker: Worker, *, topic: str = "") -> ConvertStage:
    """As a task has it."""
    plan_rows: PlanRows = worker.plan_rows
    events = TaskEvents(discard, "c", 0)
    return ConvertStage(worker.convert, PLAN, events, SystemClock(), topic=topic, row_plans=RowPlans(plan_rows))


async def test_each_topic_and_schema_has_its_plan_made_once_before_its_first_row() -> None:
    """Verdicts come back in the order of the rows, however the pages of several schemas follow each other."""
    worker = Worker()
    converting = stage(worker)
    found = await converting.run(batch(rows(1, 2), rows(3, schema=NEW), rows(), rows(4), rows(None, topic="other")))
    assert worker.happened == [
        ("users", OLD, False), ("users", NEW, False), ("other", OLD, True),
        (OLD.avro, [1, 2, 4, 0]), (NEW.avro, [3]),
    ]  # fmt: skip
    assert found.outcome["value"].to_pylist() == [b"1", b"2", b"3", b"4", None]
    worker.happened.clear()
    await converting.run(batch(rows(5, schema=NEW)))
    assert worker.happened == [(NEW.avro, [5])]


async def test_rows_of_one_page_go_by_their_headers() -> None:
    """Each goes with those that have the same of the names asked for, and its verdict comes back to it."""
    worker = Worker()
    step = Step("f", Filter(), HasHeaderKey("h"))
    marked = replace(rows(1, 2, 3, 4, None), headers=[[("h", b"")], [], [], [("h", None), ("x", b"")], [("x", b"")]])

    async def plan_rows(*_arguments: Any, **_options: Any) -> ConversionPlan:
        plan = PLAN.for_rows(schema=OLD.avro, key_schema=KEY.avro, topic="")
        return replace(plan, transformations=(step,), topic="users")

    plan = replace(PLAN, transformations=(step,))
    events = TaskEvents(discard, "c", 0)
    converting = ConvertStage(worker.convert, plan, events, SystemClock(), row_plans=RowPlans(plan_rows))
    found = await converting.run(batch(rows(7), marked))
    assert worker.happened == [(OLD.avro, [7, 2, 3, 0]), (OLD.avro, [1, 4])]
    assert found.outcome["value"].to_pylist() == [b"7", b"1", b"2", b"3", b"4", None]
    assert {share.plan.headers for share in found.shares} == {frozenset(), frozenset({"h"})}


async def test_a_driver_that_gives_a_column_in_two_types_is_understood() -> None:
    """Each type's rows are converted by themselves."""
    worker = Worker()
    found = await stage(worker).run(batch(rows(1), rows(2, kind=pa.int32()), rows(3)))
    assert found.outcome["value"].to_pylist() == [b"1", b"2", b"3"]


async def test_a_schema_that_is_refused_stops_those_after_it_and_none_before() -> None:
    """Nothing of its page is converted, and no later schema is registered, whatever is asked for meanwhile."""
    worker = Worker(refused=NEW)
    worker.wait.clear()
    converting = stage(worker)
    found: list[object] = []

    async def run(page: Page) -> None:
        try:
            found.append(await converting.run(batch(page)))
        except IncompatibleSchema as error:
            found.append(str(error))

    async with asyncio.TaskGroup() as group:
        for each in (rows(1), rows(2, schema=NEW), rows(3, topic="late")):
            group.create_task(run(each))
        await asyncio.sleep(0)
        worker.wait.set()
    assert found.count("users-value: a field is missing") == 2
    (first,) = (each for each in found if not isinstance(each, str))
    assert isinstance(first, ConvertedBatch)
    assert ("late", OLD, False) not in worker.happened


@pytest.mark.parametrize(
    ("wrong", "words"), [(rows(1, topic=None), "names no topic"), (page(b"{}", topic="t"), "has no schema")]
)
async def test_a_page_that_cannot_be_planned_is_said_to_be_the_fetcher_s_fault(wrong: Page, words: str) -> None:
    """Rather than be written somewhere."""
    with pytest.raises(ConversionFatal, match=words):
        await stage(Worker()).run(batch(wrong))


async def test_a_rejected_row_becomes_a_dead_letter_with_the_row_as_json() -> None:
    """And its key as JSON; rows have no bytes of their own."""
    converted = await stage(Worker()).run(batch(rows(1), rows(12, 13, topic="other")))
    settled = settle(converted, SettlementRules("", {}, is_tolerant=True, has_dedupe=False), NoDedupe())
    letter = settled.rejects.letter(0)
    assert (letter.key, letter.value, letter.topic) == (b'{"id":13}', b'{"id":13}', "other")
    assert {records.topic: records.values.to_pylist() for records in settled.records} == {
        "users": [b"1"],
        "other": [b"12"],
    }


async def test_a_delete_of_a_change_event_is_settled_as_a_tombstone() -> None:
    """And what is dropped is filtered: each record of the batch has one fate."""
    inner = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}]}
    fields: list[dict[str, Any]] = [
        {"name": "before", "type": ["null", inner], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "op", "type": "string"},
    ]
    schema = RowSchema(json.dumps({"type": "record", "name": "Envelope", "namespace": "users", "fields": fields}))
    kind: Any = pa.struct([("id", pa.int64())])
    events: Any = pa.array(
        [
            {"before": None, "after": {"id": 1}, "op": "c"},
            {"before": {"id": 1}, "after": None, "op": "d"},
            None,
            {"before": None, "after": None, "op": "t"},
        ],
        pa.struct([("before", kind), ("after", kind), ("op", pa.string())]),
    )
    keys = pa.table({"id": [1, 1, 1, 1]})
    changes = Page(events, {}, schema=schema, topic="users", keys=keys, key_schema=KEY)
    form = ExtractNewRecordState(Side.VALUE, is_null_defaulted=False, headers=(Reference(None, "op", "op"),))
    plan = replace(PLAN, transformations=(Step("x", form),), topic="users")

    async def plan_rows(*_arguments: Any, **_options: Any) -> ConversionPlan:
        return plan.for_rows(schema=schema.avro, key_schema=KEY.avro, topic="users")

    async def convert(plan: ConversionPlan, records: pa.Table, /, **_options: bool) -> pa.Table:
        return convert_exactly(plan, records)

    events_of_task = TaskEvents(discard, "c", 0)
    converting = ConvertStage(convert, plan, events_of_task, SystemClock(), row_plans=RowPlans(plan_rows))
    settled = settle(
        await converting.run(batch(changes)), SettlementRules("", {}, is_tolerant=True, has_dedupe=False), NoDedupe()
    )
    (records,) = settled.records
    assert [None if value is None else json.loads(value) for value in records.values.to_pylist()] == [{"id": 1}, None]
    assert records.headers == [(("op", b"c"),), (("op", b"d"),)]
    assert settled.filtered == 2
