"""Chains of transformations against an oracle: record by record, in plain Python, with schemas as Connect has them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from service.sinks.batch import Form, ValueType
from service.sinks.readings import Reading, of_one_type, runs
from service.sinks.transforms.stage import transformed
from spark_batch.transforms.catalog import (
    DropHeaders,
    ExtractField,
    FieldName,
    Filter,
    HasHeaderKey,
    HoistField,
    InsertField,
    InsertHeader,
    RecordIsTombstone,
    RegexRouter,
    Side,
    Step,
    TopicNameMatches,
)
from tests.unit.sinks.fake_library import polled

TEXT = "text"
"""The schema of texts; that of a struct is its fields' schemas by name, None stands for none."""
NAMES = st.sampled_from(["a", "b", "c"])
ROUTES: dict[tuple[str, str], Callable[[str], str]] = {
    ("t-(.)", "$1"): lambda topic: topic[2:],
    (".*b", "t-a"): lambda _: "t-a",
}


@dataclass(frozen=True)
class Record:
    """One of them, on its way."""

    topic: str
    value: Any
    schema: Any
    has_header: bool


class Unfit(Exception):
    """It is refused."""


class Dropped(Exception):
    """A filter drops it."""


REFUSED = ("", "refused")
"""In place of a topic and a value."""


RECORDS = st.lists(
    st.tuples(st.sampled_from(["t-a", "t-b"]), st.none() | st.text("xyz", max_size=2), st.booleans()), max_size=12
)
DOCUMENTS = st.none() | st.recursive(
    st.none() | st.integers(0, 9) | st.text("xyz", max_size=2),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)


def steps() -> st.SearchStrategy[list[Step]]:
    """Of values, and routers."""
    field = st.none() | st.builds(FieldName, NAMES)
    made = (
        st.builds(HoistField, st.just(Side.VALUE), NAMES)
        | st.builds(ExtractField, st.just(Side.VALUE), st.lists(NAMES, min_size=1, max_size=2).map(tuple))
        | st.builds(InsertField, st.just(Side.VALUE), field, offset=NAMES.map(FieldName))
        | st.sampled_from([RegexRouter(*texts) for texts in ROUTES])
        | st.sampled_from([Filter(), DropHeaders(("h",)), InsertHeader("h", "1")])
    )
    asked = [RecordIsTombstone(), TopicNameMatches("t-.*"), TopicNameMatches("a"), HasHeaderKey("h")]
    one = st.builds(Step, st.just("s"), made, st.none() | st.sampled_from(asked), st.booleans())
    return st.lists(one, max_size=5)


def is_met(step: Step, record: Record) -> bool:
    """Whether the step is for the record as it is now."""
    asked = step.predicate
    if asked is None:
        return True
    if isinstance(asked, RecordIsTombstone):
        is_true = record.value is None
    elif isinstance(asked, HasHeaderKey):
        is_true = record.has_header
    else:
        is_true = re.fullmatch(asked.pattern, record.topic) is not None
    return is_true != step.is_negated


def stepped(step: Step, record: Record, offset: int) -> Record:
    """The record after one step; raises Unfit."""
    each = step.transformation
    topic, value, schema = record.topic, record.value, record.schema
    if isinstance(each, Filter):
        raise Dropped
    if isinstance(each, (DropHeaders, InsertHeader)):
        return replace(record, has_header=isinstance(each, InsertHeader))
    if isinstance(each, RegexRouter):
        route = ROUTES[each.regex, each.replacement]
        topic = route(topic) if re.fullmatch(each.regex, topic) else topic
    elif isinstance(each, HoistField):
        value, schema = {each.field: value}, None if schema is None else {each.field: schema}
    elif isinstance(each, ExtractField):
        value, schema = extracted(each.path, value, schema)
    elif value is not None:
        assert isinstance(each, InsertField)
        value, schema = inserted(each, record, offset)
    return Record(topic, value, schema, record.has_header)


def extracted(path: Sequence[str], value: Any, schema: Any) -> tuple[Any, Any]:
    """One field of a value and of its schema."""
    has_schema = schema is not None
    for name in path:
        if has_schema:
            if not isinstance(schema, dict) or name not in schema:
                raise Unfit
            schema = schema[name]
        if value is not None:
            if not isinstance(value, dict):
                raise Unfit
            value = value.get(name)
    return value, schema


def inserted(insert: InsertField, record: Record, offset: int) -> tuple[Any, Any]:
    """With a schema no name may be there twice; without one the last is the one."""
    if not isinstance(record.value, dict):
        raise Unfit
    value, schema = record.value, record.schema
    for name, added, kind in ((insert.topic, record.topic, TEXT), (insert.offset, offset, "number")):
        if name is not None:
            if schema is not None and name.name in schema:
                raise Unfit
            value = {**value, name.name: added}
            schema = None if schema is None else {**schema, name.name: kind}
    return value, schema


def expected_of(chain: list[Step], records: list[Record]) -> dict[int, tuple[str, Any]]:
    """Topic and value of each record that is not refused."""
    found = {}
    for offset, record in enumerate(records):
        try:
            for step in chain:
                record = stepped(step, record, offset) if is_met(step, record) else record  # noqa: PLW2901 - on its way
        except Unfit:
            found[offset] = REFUSED
            continue
        except Dropped:
            continue
        found[offset] = (record.topic, record.value)
    return found


def table_of(records: list[Record]) -> pa.Table:
    """As they are polled; a value stands wherever there is one, its bytes are of no account."""
    table = polled([None if record.value is None else b"x" for record in records])
    headers = pa.array(
        [[{"name": "h", "value": None}] if record.has_header else None for record in records],
        table.schema.field("headers").type,
    )
    topics = pa.array([record.topic for record in records], pa.string())
    return table.set_column(0, "topic", topics).set_column(7, "headers", headers)


def found_in(chain: list[Step], records: list[Record], values: Reading) -> dict[int, tuple[str, Any]]:
    """Topic and value of each record that the sink would be handed, which come in order."""
    keys = of_one_type(pa.nulls(len(records), pa.string()), ValueType(Form.TEXT))
    after = transformed(tuple(chain), table_of(records), keys, values)
    found: dict[int, tuple[str, Any]] = {}
    for run in runs(after.keys, after.values):
        column = run.values.to_pylist()
        if run.value_type.form is Form.JSON:
            column = [text and json.loads(text) for text in column]
        for row, value in zip(run.rows.tolist(), column, strict=True):
            assert not found or row > max(found)
            found[row] = (after.records.column("topic")[row].as_py(), value)
    refused = {refusal.row for refusal in after.refusals}
    assert not refused & set(found)
    assert len(found) + len(refused) + after.filtered == len(records)
    return found | dict.fromkeys(refused, REFUSED)


@given(steps(), RECORDS)
def test_texts(chain: list[Step], drawn: list[tuple[str, str | None, bool]]) -> None:
    """They have a schema from the start, tombstones too."""
    records = [Record(topic, value, TEXT, has_header) for topic, value, has_header in drawn]
    values = of_one_type(pa.array([record.value for record in records], pa.string()), ValueType(Form.TEXT))
    assert found_in(chain, records, values) == expected_of(chain, records)


@given(steps(), st.lists(st.tuples(st.sampled_from(["t-a", "t-b"]), DOCUMENTS, st.booleans()), max_size=12))
@example([Step("s", RegexRouter("t-(.)", "$1"), RecordIsTombstone())], [("t-a", None, False), ("t-b", 1, True)])
def test_json_without_schema(chain: list[Step], drawn: list[tuple[str, Any, bool]]) -> None:
    """Whatever it holds."""
    records = [Record(topic, value, None, has_header) for topic, value, has_header in drawn]
    texts = pa.array([None if record.value is None else json.dumps(record.value) for record in records], pa.string())
    assert found_in(chain, records, of_one_type(texts, ValueType(Form.JSON))) == expected_of(chain, records)


@given(steps(), RECORDS)
def test_json_with_a_schema(chain: list[Step], drawn: list[tuple[str, str | None, bool]]) -> None:
    """Texts in an envelope; a tombstone has neither envelope nor schema."""
    records = [Record(topic, value, None if value is None else TEXT, has_header) for topic, value, has_header in drawn]
    texts = pa.array([None if record.value is None else json.dumps(record.value) for record in records], pa.string())
    schema = json.dumps({"type": "string", "optional": True})
    assert found_in(chain, records, of_one_type(texts, ValueType(Form.JSON, schema))) == expected_of(chain, records)
