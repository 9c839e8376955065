"""Transformations of a sink's records, as Connect's classes do them: on texts, bytes, JSON with and without schemas."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from service.domain.ids import TaskId
from service.sinks.batch import Form, Refusal, SinkBatch
from service.sinks.converters import BytesReader, ColumnReader, EnvelopeReader, JsonReader, TextReader
from service.sinks.dead_letters import DeadLetterRules, dead_letter_records
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoded, Decoding, SideReader
from spark_batch.transforms.catalog import (
    ExtractField,
    FieldName,
    HasHeaderKey,
    HoistField,
    InsertField,
    Predicate,
    RecordIsTombstone,
    RegexRouter,
    Side,
    Step,
    TopicNameMatches,
    Transformation,
)
from tests.unit.sinks.fake_library import polled
from tests.unit.sinks.test_sink_decoding import USER_2, Registry, avro_reader, framed

VALUE, KEY = Side.VALUE, Side.KEY
HOIST = HoistField(VALUE, "line")
EXTRACT = ExtractField(VALUE, ("line",))
INSERT = InsertField(
    VALUE, FieldName("t"), FieldName("ms"), FieldName("s"), "x", partition=FieldName("p"), offset=FieldName("o")
)
DUPLICATE = "Cannot create field because of field name duplication"
STRING: dict[str, object] = {"type": "string", "optional": True}


def steps(*transformations: Transformation, predicate: Predicate | None = None, negate: bool = False) -> list[Step]:
    """All under the same predicate."""
    return [
        Step(str(number), each, predicate, is_negated=negate) for number, each in enumerate(transformations, start=1)
    ]


async def decode(
    records: pa.Table, chain: list[Step], values: ColumnReader | None = None, keys: ColumnReader | None = None
) -> Decoded:
    """What becomes of polled records; texts unless another reader is given."""
    key, value = SideReader(keys or TextReader(), "K", KEY_STAGE), SideReader(values or TextReader(), "V", VALUE_STAGE)
    return await Decoding(key, value, "Sink", tuple(chain)).decode(records, refuse=lambda _: None)


async def values_of(reader: ColumnReader, values: list[bytes | None], *transformations: Transformation) -> list[Any]:
    """Values in the order of their records, refused ones as Connect's message."""
    decoded = await decode(polled(values), steps(*transformations), reader)
    found = {refusal.row: f"! {refusal.message}" for refusal in decoded.refusals}
    for batch in decoded.batches:
        found |= dict(zip(column(batch, "offset"), column(batch, "value"), strict=True))
    return [found[row] for row in range(len(values))]


def rows_of(decoded: Decoded) -> list[Any]:
    """All values that the sink is handed."""
    return [value for batch in decoded.batches for value in column(batch, "value")]


def column(batch: SinkBatch, name: str) -> list[Any]:
    """One column of a batch."""
    return batch.records.column(name).to_pylist()


def enveloped(schema: object, payload: object) -> bytes:
    """As JsonConverter writes it."""
    return json.dumps({"schema": schema, "payload": payload}).encode()


def headed(names: list[list[str]]) -> pa.Table:
    """Records with headers of these names."""
    table = polled([b"%d" % number for number in range(len(names))])
    kind = table.schema.field("headers").type
    lists = [[{"name": name, "value": b""} for name in each] or None for each in names]
    return table.set_column(table.schema.get_field_index("headers"), "headers", pa.array(lists, kind))


def schema_of(batch: SinkBatch) -> Any:
    """The schema of a batch's values."""
    assert batch.value.schema is not None
    return json.loads(batch.value.schema)


async def test_texts_become_records_of_what_is_known_of_them() -> None:
    """Connect's converter gives tombstones of text a schema, so they are hoisted like any other."""
    decoded = await decode(polled([b"a", None], begin=7, partition=3), steps(HOIST, INSERT))
    (batch,) = decoded.batches
    rows = rows_of(decoded)
    assert [row["line"] for row in rows] == ["a", None]
    assert [(row["t"], row["p"], row["o"], row["s"]) for row in rows] == [("lines", 3, 7, "x"), ("lines", 3, 8, "x")]
    assert [row["ms"].timestamp() for row in rows] == [1.0, 1.001]
    assert batch.value.form is Form.RECORD
    fields = {field["name"]: field["type"] for field in schema_of(batch)["fields"]}
    assert list(fields) == ["line", "t", "p", "o", "ms", "s"]
    assert fields["p"] == ["null", "int"]
    assert fields["o"] == ["null", "long"]


async def test_texts_and_bytes_come_out_as_they_went_in() -> None:
    """In a form that says so."""
    for reader, form in ((TextReader(), Form.TEXT), (BytesReader(), Form.BYTES)):
        decoded = await decode(polled([b"a", None]), steps(HOIST, EXTRACT), reader)
        (batch,) = decoded.batches
        assert batch.value.form is form
        assert batch.records["value"].cast(pa.binary()).to_pylist() == [b"a", None]


async def test_json_stays_as_it_was_written() -> None:
    """Digits, escapes, blanks and order; what is added comes last, or takes the place of what has its name."""
    values: list[bytes | None] = [
        b'{"z": 1.10, "a": 1e400, "o": "\\u00e9"}', None, b" null ", b"12345678901234567890", b'{"a":1,"a":2}',
    ]  # fmt: skip
    assert await values_of(JsonReader(), values, HOIST) == [
        '{"line":{"z": 1.10, "a": 1e400, "o": "\\u00e9"}}',
        '{"line":null}',
        '{"line":null}',
        '{"line":12345678901234567890}',
        '{"line":{"a":1,"a":2}}',
    ]
    found = await values_of(JsonReader(), values, INSERT)
    assert found == [
        '{"z":1.10,"a":1e400,"o":0,"t":"lines","p":0,"ms":1000,"s":"x"}',
        None,
        None,
        "! Only Map objects supported in absence of schema for [field insertion], found: java.lang.Long",
        '{"a":2,"t":"lines","p":0,"o":4,"ms":1004,"s":"x"}',
    ]


async def test_fields_of_json_are_taken_as_they_were_written() -> None:
    """Without a schema a field that is missing is null, as in Connect; what has no fields is refused."""
    values: list[bytes | None] = [
        b'{"line": {"b.c": 1.10}}', b'{"line": {"b.c": null}}', b'{"line": {}}', b"{}", b'{"line": null}', None,
        b'{"line": "x"}', b"[1]",
    ]  # fmt: skip
    no_map = "! Only Map objects supported in absence of schema for"
    assert await values_of(JsonReader(), values, ExtractField(VALUE, ("line", "b.c"))) == [
        "1.10", None, None, None, None, None,
        f"{no_map} [nested field access], found: java.lang.String",
        f"{no_map} [field extraction], found: java.util.ArrayList",
    ]  # fmt: skip


async def test_schemas_of_json_follow_their_payloads() -> None:
    """A tombstone has no schema, so it is hoisted into an object without one; batches are cut there."""
    values: list[bytes | None] = [enveloped(STRING, "x"), None, enveloped(STRING, None), enveloped(None, {"q": 1})]
    decoded = await decode(polled(values), steps(HOIST, INSERT), EnvelopeReader())
    texts = [column(batch, "value")[0] for batch in decoded.batches]
    rest = '"t":"lines","p":0,"o":{0},"ms":100{0},"s":"x"}}'
    assert texts == [
        '{"line":"x",' + rest.format(0),
        '{"line":null,' + rest.format(1),
        '{"line":null,' + rest.format(2),
        '{"line":{"q": 1},' + rest.format(3),
    ]
    assert [batch.value.schema is None for batch in decoded.batches] == [False, True, False, True]
    fields = schema_of(decoded.batches[0])["fields"]
    assert fields[0] == {**STRING, "field": "line"}
    assert fields[3] == {"type": "int64", "optional": True, "field": "o"}
    assert (fields[4]["name"], fields[4]["version"]) == ("org.apache.kafka.connect.data.Timestamp", 1)


INNER = {
    "type": "struct",
    "field": "line",
    "optional": True,
    "fields": [
        {"type": "double", "optional": True, "default": 2.5, "field": "d"},
        {"type": "string", "optional": False, "field": "s"},
    ],
}
OUTER = {"type": "struct", "name": "Outer", "version": 2, "fields": [INNER]}


async def test_fields_under_a_schema() -> None:
    """Its defaults stand for what is missing; a field that must be there is not passed over."""
    values: list[bytes | None] = [
        enveloped(OUTER, {"line": {"d": 1.5, "s": "x"}}), enveloped(OUTER, {"line": {"d": None}}),
        enveloped(OUTER, {"line": None}), enveloped(OUTER, {}), enveloped(OUTER, None), enveloped(OUTER, {"line": 1}),
    ]  # fmt: skip
    found = await values_of(EnvelopeReader(), values, ExtractField(VALUE, ("line", "d")))
    assert found == [
        "1.5", "2.5", None, None, None, "! expected an object where the schema has a struct [nested field access]",
    ]  # fmt: skip
    found = await values_of(EnvelopeReader(), values[:2], ExtractField(VALUE, ("line", "s")))
    assert found == ['"x"', "! Invalid null value for required STRING field"]
    decoded = await decode(polled(values[:1]), steps(ExtractField(VALUE, ("line",))), EnvelopeReader())
    assert schema_of(decoded.batches[0]) == {key: value for key, value in INNER.items() if key != "field"}
    decoded = await decode(polled(values[:1]), steps(INSERT), EnvelopeReader())
    found_schema = schema_of(decoded.batches[0])
    assert (found_schema["name"], found_schema["version"], found_schema["optional"]) == ("Outer", 2, False)


@pytest.mark.parametrize(
    ("transformation", "expected"),
    [
        (EXTRACT, "Only Struct objects supported for [field extraction], found: java.lang.String"),
        (INSERT, "Only Struct objects supported for [field insertion], found: java.lang.String"),
    ],
)
async def test_what_has_no_fields_is_refused(transformation: Transformation, expected: str) -> None:
    """Whether text or JSON that its schema calls a string."""
    for reader, value in ((TextReader(), b"a"), (EnvelopeReader(), enveloped(STRING, "a"))):
        assert await values_of(reader, [value], transformation) == [f"! {expected}"]


@pytest.mark.parametrize("reader", [TextReader(), EnvelopeReader()])
async def test_nothing_is_looked_up_where_there_are_no_fields(reader: ColumnReader) -> None:
    """Neither in a null, whose schema says so, nor in a field of another."""
    text, null = (b"a", None) if isinstance(reader, TextReader) else (enveloped(STRING, "a"), enveloped(STRING, None))
    lookup = "! Cannot look up fields on non-struct type"
    assert (await values_of(reader, [text, null], EXTRACT))[1] == lookup
    assert await values_of(reader, [text], HOIST, ExtractField(VALUE, ("line", "x"))) == [lookup]


@pytest.mark.parametrize("reader", [TextReader(), EnvelopeReader()])
async def test_names_of_fields_are_held_to(reader: ColumnReader) -> None:
    """None is added twice, none is taken that is not there; dead letters name Connect's class and exception."""
    value = b"a" if isinstance(reader, TextReader) else enveloped(STRING, "a")
    twice = replace(INSERT, topic=FieldName("line"))
    for second, exception, message in (
        (twice, "org.apache.kafka.connect.errors.SchemaBuilderException", f"{DUPLICATE} line"),
        (ExtractField(VALUE, ("no",)), "java.lang.IllegalArgumentException", "Unknown field: no"),
    ):
        decoded = await decode(polled([value]), steps(HOIST, second), reader)
        assert decoded.batches == []
        rules = DeadLetterRules(is_tolerant=True, topic="dead", has_headers=True)
        letters = dead_letter_records(polled([value]), decoded.refusals, TaskId("sink", 0), rules)
        assert letters.headers is not None
        headers = dict(letters.headers[0])
        names = ("stage", "class.name", "exception.class.name", "exception.message")
        told = {name: headers[f"__connect.errors.{name}"] for name in names}
        assert told == {
            "stage": b"TRANSFORMATION",
            "class.name": f"org.apache.kafka.connect.transforms.{type(second).__name__}$Value".encode(),
            "exception.class.name": exception.encode(),
            "exception.message": message.encode(),
        }
        assert letters.values.to_pylist() == [value]


async def test_the_oldest_records_have_no_timestamp() -> None:
    """An optional field stays away, a required one of a schema refuses the record."""
    table = polled([b'{"a":1}'])
    table = table.set_column(3, "timestamp", pa.array([-1], pa.int64()))
    stamp = InsertField(VALUE, timestamp=FieldName("ms"))
    required = InsertField(VALUE, timestamp=FieldName("ms", is_optional=False))
    for insert, reader, chain, expected in (
        (stamp, JsonReader(), [], ['{"a":1}']),
        (required, JsonReader(), [], ['{"a":1}']),
        (stamp, TextReader(), [HOIST], [{"line": '{"a":1}', "ms": None}]),
    ):
        decoded = await decode(table, steps(*chain, insert), reader)
        assert rows_of(decoded) == expected
    decoded = await decode(table, steps(HOIST, required))
    assert [refusal.reason for refusal in decoded.refusals] == ["missing_timestamp"]


async def test_records_of_avro_keep_their_types() -> None:
    """Decimals, maps and texts of UUIDs, at any depth; a null of a field with a default is the default."""
    token = "6f2b0a9e-0c5b-4f5e-9a53-0a3c7a4c9d11"
    user = {"id": 1, "name": "n", "paid": Decimal("12.34"), "tags": {"k": "v"}, "token": token}
    body = framed(2, USER_2, user)
    before = await decode(polled([body]), [], avro_reader())
    after = await decode(polled([body, None]), steps(HOIST, INSERT, EXTRACT), avro_reader())
    assert after.refusals == []
    assert rows_of(after) == [*rows_of(before), None]
    assert after.batches[0].records.schema.field("value").type == before.batches[0].records.schema.field("value").type
    taken = await decode(polled([body]), steps(ExtractField(VALUE, ("paid",))), avro_reader())
    assert [str(value) for value in rows_of(taken)] == ["12.34"]


DEFAULTS = {
    "type": "record",
    "name": "Defaults",
    "fields": [
        {"name": "a", "type": ["long", "null"], "default": 7},
        {"name": "b", "type": ["bytes", "null"], "default": "x"},
        {"name": "c", "type": ["null", "string"], "default": None},
    ],
}


async def test_nulls_of_fields_with_a_default() -> None:
    """They become it unless the config says otherwise; where that cannot be done the record is refused."""
    registry = Registry({5: DEFAULTS})
    nulls = framed(5, DEFAULTS, {"a": None, "b": b"y", "c": None})
    worse = framed(5, DEFAULTS, {"a": 1, "b": None, "c": "z"})
    stamp, kept = (InsertField(VALUE, topic=FieldName("t"), is_null_defaulted=each) for each in (True, False))
    decoded = await decode(polled([nulls, worse]), steps(stamp), avro_reader(registry))
    assert rows_of(decoded) == [{"a": 7, "b": b"y", "c": None, "t": "lines"}]
    assert [refusal.reason for refusal in decoded.refusals] == ["unusable_default"]
    decoded = await decode(polled([nulls, worse]), steps(kept), avro_reader(registry))
    assert [row["a"] for row in rows_of(decoded)] == [None, 1]
    for is_null_defaulted, expected in ((True, 7), (False, None)):
        extract = ExtractField(VALUE, ("a",), is_null_defaulted=is_null_defaulted)
        assert rows_of(await decode(polled([nulls]), steps(extract), avro_reader(registry))) == [expected]


async def test_routers_change_what_the_sink_sees() -> None:
    """Not what offsets, notes and dead letters go by."""
    records = pa.concat_tables([polled([b"a", b"b"], topic="in-1", begin=5), polled([b"c"], topic="in-2", begin=9)])
    chain = [Step("r", RegexRouter("in-(.)", "out")), Step("i", HOIST, TopicNameMatches("out")), Step("t", INSERT)]
    decoded = await decode(records, chain)
    (batch,) = decoded.batches
    assert column(batch, "topic") == ["out", "out", "out"]
    assert column(batch, "original_topic") == ["in-1", "in-1", "in-2"]
    assert batch.ends == {("in-1", 0): 7, ("in-2", 0): 10}
    assert {row["t"] for row in rows_of(decoded)} == {"out"}
    refusals = (await decode(records, [Step("r", RegexRouter("in-1", "out")), Step("e", EXTRACT)])).refusals
    assert [(refusal.row, refusal.stage) for refusal in refusals] == [(row, "TRANSFORMATION") for row in range(3)]


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (HasHeaderKey("h"), [True, False, False, True]),
        (TopicNameMatches("line."), [True] * 4),
        (TopicNameMatches("line"), [False] * 4),
        (RecordIsTombstone(), [False] * 4),
    ],
)
@pytest.mark.parametrize("negate", [False, True])
async def test_predicates_say_which(predicate: Predicate, expected: list[bool], *, negate: bool) -> None:
    """Record by record; order is kept wherever the batch is cut."""
    records = headed([["h", "h"], [], ["g"], ["g", "h"]])
    decoded = await decode(records, steps(HOIST, predicate=predicate, negate=negate))
    values = rows_of(decoded)
    assert [isinstance(value, dict) != negate for value in values] == expected
    assert [value["line"] if isinstance(value, dict) else value for value in values] == ["0", "1", "2", "3"]


async def test_a_tombstone_is_what_it_is_at_that_step() -> None:
    """What was hoisted is none any more, and a field that is null is one."""
    is_null = RecordIsTombstone()
    chain = [Step("h", HOIST, is_null), Step("r", RegexRouter(".*", "null"), is_null)]
    decoded = await decode(polled([b'{"a":null}', None]), chain, JsonReader())
    assert [column(batch, "topic") for batch in decoded.batches] == [["lines", "lines"]]
    chain = [Step("e", ExtractField(VALUE, ("a",))), Step("r", RegexRouter(".*", "null"), is_null)]
    decoded = await decode(polled([b'{"a":null}', b'{"a":1}', None]), chain, JsonReader())
    (batch,) = decoded.batches
    assert column(batch, "topic") == ["null", "lines", "null"]
    assert column(batch, "value") == [None, "1", None]


async def test_keys_are_transformed_too() -> None:
    """Of their own type, whatever the values are; a refused record takes neither along."""
    records = polled([b"1", b"x", b"3"])
    records = records.set_column(5, "key", pa.array([b"a", b"b", None], pa.binary()))
    hoisted = await decode(records, steps(HoistField(KEY, "id")), JsonReader())
    assert [row for batch in hoisted.batches for row in column(batch, "key")] == [{"id": "a"}, {"id": None}]
    assert [refusal.stage for refusal in hoisted.refusals] == [VALUE_STAGE]
    inserted = await decode(records, steps(InsertField(KEY, topic=FieldName("t"))), BytesReader())
    assert [(refusal.row, refusal.class_name) for refusal in inserted.refusals] == [
        (0, "org.apache.kafka.connect.transforms.InsertField$Key"),
        (1, "org.apache.kafka.connect.transforms.InsertField$Key"),
    ]
    assert [column(batch, "value") for batch in inserted.batches] == [[b"3"]]


async def test_a_record_that_the_sink_refuses_is_the_one_that_was_polled() -> None:
    """Also behind records that a transformation has refused."""
    refused: list[Refusal] = []
    decoding = Decoding(
        SideReader(TextReader(), "K", KEY_STAGE),
        SideReader(JsonReader(), "V", VALUE_STAGE),
        "Sink",
        (Step("r", RegexRouter("lines", "routed")), Step("i", INSERT)),
    )
    decoded = await decoding.decode(polled([b"1", b"{}", b"2", b"{}"], begin=10), refuse=refused.append)
    decoded.batches[-1].refuse(len(decoded.batches[-1]) - 1, "wrong", "no")
    assert [refusal.row for refusal in refused] == [3]
    assert [refusal.row for refusal in decoded.refusals] == [0, 2]
