"""Rows through Spark: every type exactly, under every converter, equal to the exact path and to two oracles."""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import RowSchema
from fetchers.sdk.rows import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_MICROS,
    array,
    decimal,
    map_of,
    optional,
    struct,
)
from spark_batch.convert_exactly import convert_exactly
from spark_batch.errors import ConversionFatal
from spark_batch.outcome import Reason
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.plan_findings import plan_findings
from spark_batch.row_columns import unscaled_bytes
from tests.spark.engines import Engine

INNER = struct("app.inner", {"a": INT64, "b": optional(decimal(5, 1))})
ROWS = RowSchema.of(
    "app.public.all-types",
    {
        "id": INT64,
        "small": optional(INT8),
        "name": optional(STRING),
        "money": optional(decimal(38, 10)),
        "wide": optional(decimal(60, 5)),
        "at": optional(TIMESTAMP),
        "micros": optional(TIMESTAMP_MICROS),
        "day": optional(DATE),
        "time": optional(TIME),
        "raw": optional(BYTES),
        "single": optional(FLOAT32),
        "double": optional(FLOAT64),
        "yes": optional(BOOLEAN),
        "tags": optional(array(optional(STRING))),
        "counts": optional(map_of(INT64)),
        "inner": optional(INNER),
        "alike": optional(array(optional(INNER))),
    },
)
KEY = RowSchema.of("app.public.all-types.Key", {"id": INT64, "name": optional(STRING)})
INNER_KIND = pa.struct([("a", pa.int32()), ("b", pa.decimal128(5, 1))])
KINDS = pa.struct(
    [
        ("id", pa.uint64()),
        ("small", pa.int16()),
        ("name", pa.large_string()),
        ("money", pa.decimal128(38, 10)),
        ("wide", pa.decimal256(70, 5)),
        ("at", pa.timestamp("us", "Europe/Berlin")),
        ("micros", pa.timestamp("us")),
        ("day", pa.date32()),
        ("time", pa.time64("us")),
        ("raw", pa.large_binary()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("yes", pa.bool_()),
        ("tags", pa.large_list(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("inner", INNER_KIND),
        ("alike", pa.list_(INNER_KIND)),
    ]
)
KEY_KINDS = pa.struct([("id", pa.int64()), ("name", pa.string())])
AVRO, JSON = ConverterSpec(ConverterKind.AVRO, schema_id=7), ConverterSpec(ConverterKind.JSON)
BASE = ConversionPlan(PayloadFormat.ROWS, key_converter=AVRO, value_converter=AVRO)
texts = st.text(max_size=8).filter(lambda text: text.isprintable() or text.isascii())
halves = st.integers(-999, 999).map(lambda whole: whole / 2)
"""Which every Java writes alike; of others an older one writes more digits."""
micros = st.integers(-(2**63), 2**63 - 1)
made_inner = st.fixed_dictionaries(
    {
        "a": st.integers(-(2**31), 2**31 - 1),
        "b": st.none() | st.integers(-99999, 99999).map(lambda whole: scaled(whole, 1)),
    }
)
made_rows = st.fixed_dictionaries(
    {
        "id": st.integers(0, 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "name": st.none() | texts,
        "money": st.none() | st.integers(-(10**38) + 1, 10**38 - 1).map(lambda whole: scaled(whole, 10)),
        "wide": st.none() | st.integers(-(10**60) + 1, 10**60 - 1).map(lambda whole: scaled(whole, 5)),
        "at": st.none() | st.integers(-(2**62) // 1000, 2**62 // 1000).map(lambda millis: millis * 1000),
        "micros": st.none() | micros,
        "day": st.none() | st.integers(-(2**31), 2**31 - 1),
        "time": st.none() | st.integers(0, 86_399_999).map(lambda millis: millis * 1000),
        "raw": st.none() | st.binary(max_size=8),
        "single": st.none() | halves,
        "double": st.none() | halves,
        "yes": st.none() | st.booleans(),
        "tags": st.none() | st.lists(st.none() | texts, max_size=3),
        "counts": st.none() | st.dictionaries(texts, st.integers(-(2**31), 2**31 - 1), max_size=1),
        "inner": st.none() | made_inner,
        "alike": st.none() | st.lists(st.none() | made_inner, max_size=2),
    }
)


def scaled(whole: int, scale: int) -> Decimal:
    """A decimal of that many digits after the point, exactly."""
    sign, digits = int(whole < 0), tuple(map(int, str(abs(whole))))
    return Decimal((sign, digits, -scale))


def batch(rows: list[dict[str, Any] | None], keys: list[dict[str, Any] | None] | None = None) -> pa.Table:
    """A micro-batch of rows, None for tombstones."""
    plain = [
        row and {**row, "counts": None if row.get("counts") is None else list(row["counts"].items())} for row in rows
    ]
    given_keys = pa.array(keys, KEY_KINDS) if keys is not None else pa.nulls(len(rows), pa.binary())
    return pa.table({"key": given_keys, "value": pa.array(plain, KINDS), "timestamp": pa.nulls(len(rows), pa.int64())})


def plan_of(base: ConversionPlan, *, has_key: bool = True) -> ConversionPlan:
    """The plan of the rows above, of which nothing is wrong."""
    plan = base.for_rows(schema=ROWS.avro, key_schema=KEY.avro if has_key else None, topic="t")
    assert plan_findings(plan) == []
    return plan


def unscaled(number: Decimal | None) -> bytes | None:
    """As Avro carries it."""
    if number is None:
        return None
    sign, digits, _ = number.as_tuple()
    whole = int("".join(map(str, digits))) * (-1 if sign else 1)
    return whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True)


def carried(row: dict[str, Any]) -> dict[str, Any]:
    """The row as Avro carries it, without logical types."""

    def carried_inner(inner: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if inner is None else {"a": inner["a"], "b": unscaled(inner["b"])}

    return {
        **row,
        "money": unscaled(row["money"]),
        "wide": unscaled(row["wide"]),
        "at": None if row["at"] is None else row["at"] // 1000,
        "time": None if row["time"] is None else row["time"] // 1000,
        "inner": carried_inner(row["inner"]),
        "alike": row["alike"] and [carried_inner(inner) for inner in row["alike"]],
    }


def without_logical(document: Any) -> Any:
    """The schema without what Avro lets a reader ignore."""
    if isinstance(document, list):
        return [without_logical(item) for item in document]
    if not isinstance(document, dict):
        return document
    return {key: without_logical(item) for key, item in document.items() if key != "logicalType"}


def avro_bytes(row: dict[str, Any]) -> bytes:
    """By fastavro."""
    out = io.BytesIO()
    schema = fastavro.parse_schema(without_logical(json.loads(ROWS.avro.replace('"doc"', '"_doc"'))))
    fastavro.schemaless_writer(out, schema, carried(row))
    return b"\x00\x00\x00\x00\x07" + out.getvalue()


def connect_json(row: dict[str, Any]) -> Any:
    """What Connect's JsonConverter makes of it: bytes and decimals as base64, dates and times as numbers."""

    def shown(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: shown(item) for name, item in value.items()}
        if isinstance(value, list):
            return [shown(item) for item in value]
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value

    return shown(carried(row))


@settings(max_examples=6, deadline=None)
@given(rows=st.lists(st.none() | made_rows, min_size=1, max_size=12))
def test_what_is_written_is_what_the_oracles_write(local_engine: Engine, rows: list[dict[str, Any] | None]) -> None:
    """Avro by fastavro, JSON as Connect writes it; the exact path gives the same outcome, byte by byte."""
    keys: list[dict[str, Any] | None] = [{"id": at, "name": None} for at in range(len(rows))]
    table = batch(rows, keys)
    found = local_engine.convert(plan_of(BASE), table)
    assert found["reason"].null_count == len(rows)
    assert found["value"].to_pylist() == [None if row is None else avro_bytes(row) for row in rows]
    as_json = replace(BASE, value_converter=JSON, key_converter=JSON)
    told = local_engine.convert(plan_of(as_json), table)
    written = [None if value is None else json.loads(value) for value in told["value"].to_pylist()]
    assert written == [None if row is None else connect_json(row) for row in rows]
    assert told["key"].to_pylist() == [f'{{"id":{at},"name":null}}'.encode() for at in range(len(rows))]
    for base, outcome in ((BASE, found), (as_json, told)):
        assert convert_exactly(plan_of(base), table).to_pydict() == outcome.to_pydict()


def test_a_value_that_its_type_cannot_hold_is_rejected_and_named(local_engine: Engine) -> None:
    """Never cut, rounded or made null; the others are written."""
    full = dict.fromkeys([field.name for field in KINDS])
    bad: list[tuple[dict[str, Any], Reason, str]] = [
        ({"id": None}, Reason.NULL_NOT_ALLOWED, "id"),
        ({"id": 2**63}, Reason.OUT_OF_RANGE, "id"),
        ({"small": 128}, Reason.OUT_OF_RANGE, "small"),
        ({"at": 1}, Reason.OUT_OF_RANGE, "at"),
        ({"time": 1}, Reason.OUT_OF_RANGE, "time"),
        ({"wide": Decimal(10) ** 57}, Reason.OUT_OF_RANGE, "wide"),
        ({"inner": {"a": None, "b": None}}, Reason.NULL_NOT_ALLOWED, "inner.a"),
        ({"double": float("nan")}, Reason.UNREPRESENTABLE, "double"),
    ]
    rows: list[dict[str, Any] | None] = [{**full, "id": 1, **changes} for changes, _, _ in bad]
    rows.append({**full, "id": 5})
    plan = plan_of(replace(BASE, value_converter=JSON), has_key=False)
    found = local_engine.convert(plan, batch(rows))
    told = zip(found["reason"].to_pylist(), found["message"].to_pylist(), strict=True)
    assert [(reason, message and message.partition(":")[0]) for reason, message in told] == [
        *((reason.value, path) for _, reason, path in bad),
        (None, None),
    ]
    assert json.loads(found["value"][8].as_py())["id"] == 5
    assert convert_exactly(plan, batch(rows)).to_pydict() == found.to_pydict()
    by_avro = local_engine.convert(plan_of(BASE, has_key=False), batch([{**full, "id": 1, "double": float("-inf")}]))
    assert by_avro["reason"].to_pylist() == [None]


def test_keys_are_the_same_for_a_row_and_its_tombstone_under_every_converter(local_engine: Engine) -> None:
    """From the key's columns, or from those of `key.fields`; a key of several fields is a struct."""
    full = dict.fromkeys([field.name for field in KINDS])
    rows: list[dict[str, Any] | None] = [
        {**full, "id": 4, "name": "é"},
        {**full, "id": 4, "name": "é", "yes": True},
        None,
    ]
    table = batch(rows, [{"id": 4, "name": "é"}] * 3)
    for spec, fields, expected in (
        (AVRO, (), b"\x00\x00\x00\x00\x07\x08\x02\x04\xc3\xa9"),
        (JSON, (), '{"id":4,"name":"é"}'.encode()),
        (replace(JSON, is_schema_enveloped=True), (), None),
        (ConverterSpec(ConverterKind.STRING), (), "Struct{id=4,name=é}".encode()),
        (AVRO, ("id", "name"), b"\x00\x00\x00\x00\x07\x08\x02\x04\xc3\xa9"),
        (ConverterSpec(ConverterKind.STRING), ("id",), b"4"),
    ):
        plan = plan_of(replace(BASE, key_converter=spec, key_fields=fields))
        found = local_engine.convert(plan, table)
        assert found["reason"].null_count == 3
        assert found["value"][2].as_py() is None
        keys: list[Any] = found["key"].to_pylist()
        assert set(keys) == {keys[0] if expected is None else expected}
        assert convert_exactly(plan, table)["key"].to_pylist() == keys
        if expected is None:
            assert json.loads(keys[0])["schema"]["name"] == "app.public.all-types.Key"


def test_the_envelope_has_connect_s_names_versions_and_parameters(local_engine: Engine) -> None:
    """As Connect's JsonConverter writes the schema of a JDBC source's row."""
    schema = RowSchema.of("users", {"id": INT8, "at": optional(TIMESTAMP), "price": decimal(5, 2)})
    base = replace(BASE, value_converter=replace(JSON, is_schema_enveloped=True))
    plan = base.for_rows(schema=schema.avro, key_schema=None, topic="t")
    row = pa.table({"id": [1], "at": pa.array([5], pa.timestamp("ms")), "price": [Decimal("1.28")]}).to_struct_array()
    table = pa.table({"key": pa.nulls(1, pa.binary()), "value": row, "timestamp": pa.nulls(1, pa.int64())})
    expected = (
        b'{"schema":{"type":"struct","fields":[{"type":"int8","optional":false,"field":"id"},'
        b'{"type":"int64","optional":true,"name":"org.apache.kafka.connect.data.Timestamp","version":1,"field":"at"},'
        b'{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
        b'"parameters":{"scale":"2","connect.decimal.precision":"5"},"field":"price"}],'
        b'"optional":false,"name":"users"},"payload":{"id":1,"at":5,"price":"AIA="}}'
    )
    assert local_engine.convert(plan, table)["value"].to_pylist() == [expected]


def test_rules_work_on_columns_without_a_contract_s_schema(local_engine: Engine) -> None:
    """A row that breaks one is rejected; a tombstone is not asked."""
    rules = (Rule("named", "name is not null"),)
    full = dict.fromkeys([field.name for field in KINDS])
    plan = plan_of(replace(BASE, rules_of_rows=rules), has_key=False)
    found = local_engine.convert(plan, batch([{**full, "id": 1, "name": "a"}, {**full, "id": 2}, None]))
    assert found["message"].to_pylist() == [None, "rule named: expected to be true", None]


def test_what_can_never_fit_is_said_once_and_in_words(local_engine: Engine) -> None:
    """A column of another type is its author's mistake; a converter without a form for it is the config's."""
    table = pa.table({"key": pa.nulls(1, pa.binary()), "value": pa.table({"id": ["x"]}).to_struct_array()})
    table = table.append_column("timestamp", pa.nulls(1, pa.int64()))
    schema = RowSchema.of("users", {"id": INT64})
    with pytest.raises(ConversionFatal, match="column id: expected whole numbers, not Arrow's string"):
        local_engine.convert(BASE.for_rows(schema=schema.avro, key_schema=None, topic="t"), table)
    kinds = (ConverterKind.BYTES, ConverterKind.STRING)
    plans = [replace(BASE, value_converter=ConverterSpec(kind)) for kind in kinds]
    found = [plan_findings(plan.for_rows(schema=ROWS.avro, key_schema=None, topic="t")) for plan in plans]
    assert [[finding.key for finding in findings] for findings in found] == [["value.converter"]] * 2


def test_wide_decimals_are_their_shortest_two_s_complement() -> None:
    """Of any sign and length, nulls among them."""
    numbers = [
        None,
        *(Decimal(sign * (2**bits + add)) for sign in (1, -1) for bits in (0, 7, 8, 127, 200) for add in (-1, 0, 1)),
    ]
    column = pa.array(numbers, pa.decimal256(76, 0)).slice(0)
    assert unscaled_bytes(column).to_pylist() == [unscaled(number) for number in numbers]
    assert unscaled_bytes(column.slice(3)).to_pylist() == [unscaled(number) for number in numbers[3:]]
