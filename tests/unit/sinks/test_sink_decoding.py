"""Converters of a sink: nothing is changed, what does not fit is refused by row, schemas cut the batch."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.registry.client import RegistryClient
from service.registry.errors import RegistryFailure, RegistryFatal, RegistryRetriable, SchemaNotFound, UnusableSchema
from service.sinks.batch import Form, Refusal, SinkBatch
from service.sinks.converters import AvroReader, BytesReader, ColumnReader, EnvelopeReader, JsonReader, TextReader
from service.sinks.decoding import HEADER_STAGE, KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.schemas import schema_of
from tests.unit.sinks.fake_library import polled

_OPTIONAL = {"type": "int32", "optional": True, "default": 7}
USER_1 = {"type": "record", "name": "User", "fields": [{"name": "id", "type": "long"}]}
USER_2 = {
    "type": "record",
    "name": "User",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "token", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}


@dataclass
class Registry:
    """Schemas by id, counted when asked for."""

    schemas: dict[int, object] = field(
        default_factory=lambda: {1: USER_1, 2: USER_2, 3: "string", 4: ["int", "string"]}
    )
    asked: list[int] = field(default_factory=list)
    failure: RegistryFailure | None = None

    async def by_id(self, schema_id: int) -> str:
        """As the registry does."""
        self.asked.append(schema_id)
        if self.failure is not None:
            raise self.failure
        if schema_id not in self.schemas:
            message = "not in the registry"
            raise SchemaNotFound(message)
        return json.dumps(self.schemas[schema_id])


def avro_reader(registry: Registry | None = None) -> AvroReader:
    """A reader over a registry in memory."""
    return AvroReader(cast("RegistryClient", registry or Registry()))


def framed(schema_id: int, schema: Any, value: object) -> bytes:
    """As Confluent's serializer writes it."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return b"\0" + schema_id.to_bytes(4, "big") + body.getvalue()


async def decode(
    reader: ColumnReader, values: list[bytes | None]
) -> tuple[list[SinkBatch], dict[int, tuple[str, str]]]:
    """Batches and refusals of a topic's values."""
    decoding = Decoding(SideReader(BytesReader(), "K", KEY_STAGE), SideReader(reader, "V", VALUE_STAGE), "Sink")

    def refuse(refused: Refusal) -> None:
        raise AssertionError(refused)

    decoded = await decoding.decode(polled(values), refuse=refuse)
    refused = {refusal.row: (refusal.reason, refusal.message) for refusal in decoded.refusals}
    return decoded.batches, refused


def values_of(batch: SinkBatch) -> list[object]:
    """The values of a batch."""
    return batch.records.column("value").to_pylist()


async def test_bytes_are_any_bytes() -> None:
    """Nothing is looked at."""
    [batch], refused = await decode(BytesReader(), [b"\xff\0", b"", None])
    assert (values_of(batch), batch.value.form, refused) == ([b"\xff\0", b"", None], Form.BYTES, {})


async def test_text_that_is_none_is_refused() -> None:
    """The rest keeps its offsets."""
    [batch], refused = await decode(TextReader(), [b"a", b"\xc3\x28", None, "é".encode()])
    assert values_of(batch) == ["a", None, "é"]
    assert batch.records.column("offset").to_pylist() == [0, 2, 3]
    assert refused == {1: ("invalid_utf8", "not UTF-8 at byte 0")}


async def test_json_stays_the_text_it_was() -> None:
    """Digits, order and blanks; what is no JSON is refused."""
    good = [b'{"b": 1.10, "a":1e400}', b" 12345678901234567890 ", b'"x"', None]
    [batch], refused = await decode(JsonReader(), [*good, b'{"a":1} 2', b"{", b"", b'"\\ud800"', b'"\xff"'])
    assert values_of(batch) == [None if text is None else text.decode() for text in good]
    assert {row: reason for row, (reason, _) in refused.items()} == {
        4: "malformed_json",
        5: "malformed_json",
        6: "malformed_json",
        7: "malformed_json",
        8: "invalid_utf8",
    }


async def test_an_envelope_is_taken_off() -> None:
    """The payload stays the text it was; a change of schema begins a new batch; without envelope is refused."""
    string = b'{"schema":{"type":"string","optional":false},"payload":"a \\u00e9"}'
    number = b'{"schema":{"type":"int64","optional":true},"payload":%s}'
    values = [None, string, None, string, number % b"1.50", number % b"null", b'{"payload":1}', b"{", number % b"7"]
    batches, refused = await decode(EnvelopeReader(), values)
    assert [values_of(batch) for batch in batches] == [
        [None, '"a \\u00e9"', None, '"a \\u00e9"'],
        ["1.50", None, "7"],
    ]
    assert [json.loads(batch.value.schema or "")["type"] for batch in batches] == ["string", "int64"]
    assert [batch.records.column("offset").to_pylist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 8]]
    assert refused[6][1].startswith("JsonConverter with schemas.enable requires")
    assert refused[7][0] == "malformed_json"


async def test_a_null_stays_one_where_defaults_are_not_to_stand_for_it() -> None:
    """``replace.null.with.default=false``: no sink sees a default for what may be null; required fields keep theirs."""
    inner = {"type": "struct", "optional": True, "fields": [{"field": "b", **_OPTIONAL}]}
    fields = [
        {"field": "a", **_OPTIONAL},
        {"field": "c", "type": "string", "default": "x"},
        {"field": "d", "type": "array", "items": inner},
    ]
    schema = {"type": "struct", "fields": fields}
    values = pa.array([json.dumps({"schema": schema, "payload": {"a": None, "d": [{"b": None}]}}).encode()])
    kept = (await EnvelopeReader(is_null_kept=True).read(values)).types[0]
    found = schema_of(kept)
    assert found is not None
    assert [found.fields[name].default for name in "acd"] == [None, "x", None]
    assert found.fields["d"].values is not None
    inside = found.fields["d"].values.fields["b"]
    assert (inside.default, inside.kept_default, found.fields["a"].kept_default) == (None, 7, 7)
    replaced = schema_of((await EnvelopeReader().read(values)).types[0])
    assert replaced is not None
    assert replaced.fields["a"].default == 7


async def test_avro_becomes_typed_columns() -> None:
    """By the schema each record was written with, asked for once."""
    registry = Registry()
    user = {"id": 2**60, "name": None, "paid": Decimal("1.20"), "tags": {"a": "b"}, "token": "t"}
    old, new = framed(1, USER_1, {"id": 7}), framed(2, USER_2, user)
    reader = avro_reader(registry)
    batches, refused = await decode(reader, [old, None, new, new, old])
    again, _ = await decode(reader, [new])
    assert refused == {}
    assert [values_of(batch) for batch in batches] == [
        [{"id": 7}, None],
        [{**user, "tags": [("a", "b")]}] * 2,
        [{"id": 7}],
    ]
    assert json.loads(batches[1].value.schema or "") == USER_2
    assert batches[1].records.schema.field("value").type.field("paid").type == pa.decimal128(6, 2)
    assert len(again) == 1
    assert sorted(registry.asked) == [1, 2]


async def test_avro_that_is_none_is_refused() -> None:
    """A wrong frame, an unknown schema, one that no column can hold, a body that does not fit, bytes after it."""
    good = framed(3, "string", "x")
    values: list[bytes | None] = [
        b"plain",
        b"\0\0",
        framed(9, "string", "x"),
        framed(4, "string", "x"),
        good[:-1],
        good + b"!",
        good,
    ]
    [batch], refused = await decode(avro_reader(), values)
    assert values_of(batch) == ["x"]
    assert sorted(refused) == [0, 1, 2, 3, 4, 5]
    assert "framing" in refused[0][1]
    assert "not in the registry" in refused[2][1]
    assert "cannot be held in columns" in refused[3][1]
    assert "does not fit" in refused[4][1]
    assert "1 bytes follow" in refused[5][1]


async def test_nothing_but_tombstones_and_rubbish() -> None:
    """A batch without any schema is a batch all the same."""
    [batch], refused = await decode(avro_reader(), [None, b"rubbish", None])
    assert values_of(batch) == [None, None]
    assert sorted(refused) == [1]


async def test_a_value_that_no_column_holds_is_refused_alone() -> None:
    """Twelve digits in a decimal of six: the records beside it are not harmed."""
    user: dict[str, Any] = {"id": 1, "name": None, "paid": Decimal("1.20"), "tags": {}, "token": "t"}
    wide = json.loads(json.dumps(USER_2).replace('"precision": 6', '"precision": 12'))
    values: list[bytes | None] = [
        framed(2, USER_2, user),
        framed(2, wide, {**user, "paid": Decimal("1234567890.12")}),
        framed(2, USER_2, user),
    ]
    [batch], refused = await decode(avro_reader(), values)
    assert batch.records.column("offset").to_pylist() == [0, 2]
    assert sorted(refused) == [1]


@pytest.mark.parametrize("items", ["null", {"type": "record", "name": "R", "fields": [{"name": "a", "type": "null"}]}])
async def test_an_array_of_items_without_bytes_is_refused(items: object) -> None:
    """A record of ten bytes could say that it has a million million of them."""
    schema = {"type": "array", "items": items}
    _, refused = await decode(avro_reader(Registry({1: schema})), [b"\0\0\0\0\1" + b"\x04\0"])
    assert "take no bytes" in refused[0][1]


@pytest.mark.parametrize(("size_bytes", "is_refused"), [(4096, False), (4097, True)])
async def test_a_decimal_of_very_many_bytes_is_refused(size_bytes: int, *, is_refused: bool) -> None:
    """The time to read one grows with the square of its bytes, whatever its precision."""
    schema = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    record = framed(1, "bytes", bytes(size_bytes - 1) + b"\x0c")
    batches, refused = await decode(avro_reader(Registry({1: schema})), [record])
    assert (sorted(refused), [values_of(batch) for batch in batches]) == (
        ([0], []) if is_refused else ([], [[Decimal("0.12")]])
    )


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5))
async def test_any_bytes_after_a_frame_are_a_verdict_and_no_error(bodies: list[bytes]) -> None:
    """Whatever lengths and indexes they seem to hold."""
    batches, refused = await decode(avro_reader(), [b"\0\0\0\0\2" + body for body in bodies])
    assert sum(map(len, batches)) + len(refused) == len(bodies)


@pytest.mark.parametrize("reader", [JsonReader(), EnvelopeReader()], ids=["plain", "envelope"])
async def test_json_nested_too_deep_is_refused(reader: ColumnReader) -> None:
    """Depth is a matter of nesting, not of how many brackets there are."""
    deep, wide = b"[" * 300 + b"]" * 300, b"[%s]" % b",".join([b"[]"] * 300)
    envelope = b'{"schema":null,"payload":%s}' if isinstance(reader, EnvelopeReader) else b"%s"
    [batch], refused = await decode(reader, [envelope % deep, envelope % wide])
    assert values_of(batch) == [wide.decode()]
    assert refused[0][0] == "too_deep"


@pytest.mark.parametrize("kind", [RegistryRetriable, RegistryFatal])
async def test_a_registry_that_does_not_give_a_schema_is_no_verdict(kind: type[RegistryFailure]) -> None:
    """The task ends; no record is refused for refused credentials, and nothing of it is remembered."""
    registry = Registry(failure=kind("refused (401)"))
    reader, values = avro_reader(registry), [framed(1, USER_1, {"id": 1})]
    with pytest.raises(kind):
        await decode(reader, list(values))
    registry.failure = None
    [batch], refused = await decode(reader, list(values))
    assert (values_of(batch), refused) == ([{"id": 1}], {})


async def test_records_of_a_schema_that_is_not_avro_are_refused() -> None:
    """Once the registry has said so, it is not asked again: the schema of an id never changes."""
    registry = Registry(failure=UnusableSchema("this one is PROTOBUF"))
    reader = avro_reader(registry)
    for _ in range(2):
        _, refused = await decode(reader, [framed(1, USER_1, {"id": 1})])
        assert refused == {0: ("not_avro", "schema id 1: this one is PROTOBUF")}
    assert registry.asked == [1]


async def test_an_id_that_no_registry_gives_is_not_asked_for() -> None:
    """Rubbish that begins with a zero byte."""
    registry = Registry(failure=RegistryFatal("404"))
    _, refused = await decode(avro_reader(registry), [b"\0\xff\xff\xff\xff"])
    assert "framing" in refused[0][1]


async def test_an_unknown_id_is_asked_for_again() -> None:
    """A schema that is registered later is found without a restart of the task."""
    registry = Registry()
    reader, value = avro_reader(registry), framed(9, USER_1, {"id": 1})
    _, refused = await decode(reader, [value, value])
    assert refused == dict.fromkeys((0, 1), ("not_avro", "schema id 9: not in the registry"))
    registry.schemas[9] = USER_1
    [batch], refused = await decode(reader, [value])
    await decode(reader, [value])
    assert (values_of(batch), refused, registry.asked) == ([{"id": 1}], {}, [9, 9])


@given(st.lists(st.sampled_from(["one", "two", "none", "bad"]), max_size=30))
async def test_every_row_is_in_one_batch_or_refused(kinds: list[str]) -> None:
    """However schemas, tombstones and broken records are mixed, in their order."""
    made = {
        "one": framed(1, USER_1, {"id": 1}),
        "two": framed(3, "string", "x"),
        "none": None,
        "bad": b"bad",
    }
    expected = {"one": {"id": 1}, "two": "x", "none": None}
    batches, refused = await decode(avro_reader(), [made[kind] for kind in kinds])
    found = [
        (offset, value)
        for batch in batches
        for offset, value in zip(batch.records.column("offset").to_pylist(), values_of(batch), strict=True)
    ]
    assert found == [(row, expected[kind]) for row, kind in enumerate(kinds) if kind != "bad"]
    assert sorted(refused) == [row for row, kind in enumerate(kinds) if kind == "bad"]


HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize(
    ("reader", "refused"),
    [
        (JsonReader(), {2: "malformed_json", 4: "invalid_utf8"}),
        (EnvelopeReader(), {1: "no_envelope", 2: "malformed_json", 3: "no_envelope", 4: "invalid_utf8"}),
        (None, {}),
    ],
)
async def test_headers_that_their_converter_cannot_read(reader: ColumnReader | None, refused: dict[int, str]) -> None:
    """Such a record is refused with the stage of headers, its neighbours are not; sinks see the bytes."""
    headers: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [("a", b"1"), ("b", None)],
        [("a", b"{"), ("b", b"}")],
        [("a", b'{"schema":null,"payload":1}'), ("b", b"true")],
        [("a", b"\xff")],
        [],
    ]
    records = polled([b"v"] * len(headers))
    at = records.schema.get_field_index("headers")
    records = records.set_column(at, "headers", cast("Any", pa.array(headers, HEADERS)))
    decoding = Decoding(
        SideReader(BytesReader(), "K", KEY_STAGE),
        SideReader(BytesReader(), "V", VALUE_STAGE),
        "Sink",
        headers=None if reader is None else SideReader(reader, "H", HEADER_STAGE),
    )
    decoded = await decoding.decode(records, refuse=lambda _: None)
    assert {each.row: str(each.reason) for each in decoded.refusals} == refused
    assert {each.stage for each in decoded.refusals} <= {"HEADER_CONVERTER"}
    handed = [row for rows in decoded.rows for row in rows.tolist()]
    assert handed == [row for row in range(len(headers)) if row not in refused]
    assert decoded.batches[0].records["headers"].to_pylist()[0] is None
