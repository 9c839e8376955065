"""From batches to rows: forms of keys and values, and what columns cannot hold."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.sinks.batch import Form, Selection, SinkBatch, ValueType
from service.sinks.calendar import FOUR_DIGITS
from service.sinks.converters import EnvelopeReader
from service.sinks.jdbc.config import JdbcSinkConfig
from service.sinks.jdbc.database import Family, TargetColumn, lost
from service.sinks.jdbc.rows import Rows, rows_of
from service.sinks.shapes import column_of_json, shape_of

_DATA = "org.apache.kafka.connect.data"
FIELDS = [
    {"field": "n", "type": "int16"},
    {"field": "day", "type": "int32", "name": f"{_DATA}.Date", "optional": True},
    {"field": "at", "type": "int64", "name": f"{_DATA}.Timestamp", "optional": True},
    {"field": "price", "type": "bytes", "name": f"{_DATA}.Decimal", "parameters": {"scale": "2"}, "optional": True},
    {"field": "raw", "type": "bytes", "optional": True},
    {"field": "ratio", "type": "double", "optional": True},
    {"field": "word", "type": "string", "default": "none"},
    {"field": "tags", "type": "array", "items": {"type": "string"}, "optional": True},
]
STRUCT = ValueType(Form.JSON, json.dumps({"type": "struct", "fields": FIELDS}))
PLAIN_JSON = ValueType(Form.JSON)
NONE = pa.nulls(3, pa.string())
PAIR = ValueType(Form.JSON, '{"type":"struct","fields":[{"field":"a","type":"int32"},{"field":"b","type":"string"}]}')


def made(
    values: list[Any] | pa.Array[Any],
    keys: pa.Array[Any],
    key: ValueType = PLAIN_JSON,
    *,
    value: ValueType = STRUCT,
    **config: str,
) -> tuple[Rows, list[tuple[int, str, str]]]:
    """Rows, and what was refused."""
    texts = values.to_pylist() if isinstance(values, pa.Array) else [each and json.dumps(each) for each in values]
    count, refused = len(values), list[tuple[int, str, str]]()
    columns = {
        "topic": pa.array(["t"] * count),
        "original_topic": pa.array(["t"] * count),
        "partition": pa.array([3] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "key": keys,
        "value": pa.array(texts, pa.string()),
    }
    batch = SinkBatch(pa.table(columns), key, value, lambda *told: refused.append(told))
    parsed = JdbcSinkConfig.parse(
        {"connection.url": "jdbc:sqlite:x", **{k.replace("_", "."): v for k, v in config.items()}}
    )
    assert parsed.config is not None
    found = Selection(batch)
    rows = rows_of(batch, parsed.config, found)
    return rows.taken(np.flatnonzero(found.is_sent[rows.numbers])), refused


def encoded(number: int) -> str:
    """A number as bytes in base64."""
    return base64.b64encode(number.to_bytes(3, "big", signed=True)).decode()


def test_payloads_of_json_converter_are_typed_by_their_schema() -> None:
    """Logical types are what they mean, lists are JSON, defaults stand for what is missing."""
    value = {"n": 7, "day": 1, "at": 5, "price": encoded(-123), "raw": "AP8=", "ratio": "NaN", "tags": ["a"]}
    rows, refused = made([value], NONE.slice(0, 1))
    found = {column.name: column.values[0].as_py() for column in rows.values}
    assert refused == []
    assert np.isnan(found.pop("ratio"))
    assert found.pop("day").isoformat() == "1970-01-02"
    assert found.pop("at").timestamp() == 0.005
    assert found == {"n": 7, "price": Decimal("-1.23"), "raw": b"\0\xff", "word": "none", "tags": '["a"]'}
    assert rows.values[0].values.type == pa.int16()


@pytest.mark.parametrize(
    "change",
    [{"n": 40_000}, {"n": None}, {"n": True}, {"n": 1.5}, {"word": 5}, {"raw": "?"}, {"ratio": "1"}, {"day": "x"}],
    ids=str,
)
def test_a_payload_that_is_not_of_its_schema_is_refused_alone(change: dict[str, Any]) -> None:
    """The others of its batch are rows."""
    rows, refused = made([{"n": 1}, {"n": 1} | change, {"n": 2}], NONE)
    assert rows.numbers.tolist() == [0, 2]
    assert [row for row, _, _ in refused] == [1]


@pytest.mark.parametrize(("scale", "is_held"), [(-2, True), (76, True), (77, False), (-77, False), (10**8, False)])
def test_a_decimal_of_any_scale_is_held_or_refused(scale: int, *, is_held: bool) -> None:
    """Of more digits behind the point than Arrow's decimals have, it would be none that can be read."""
    kind = {"field": "n", "type": "bytes", "name": f"{_DATA}.Decimal", "parameters": {"scale": str(scale)}}
    value = ValueType(Form.JSON, json.dumps({"type": "struct", "fields": [{**kind, "optional": True}]}))
    rows, refused = made([{"n": "AQ=="}, {"n": None}], NONE.slice(0, 2), value=value)
    held = rows.values[0].values
    assert held.to_pylist() == ([Decimal(1).scaleb(-scale), None] if is_held else [None])
    assert [row for row, _, _ in refused] == ([] if is_held else [0])
    assert lost(held, TargetColumn("c", "kind", Family.DOUBLE), FOUR_DIGITS)[0].tolist()[-1:] == [False]


@pytest.mark.parametrize("value", [PLAIN_JSON, ValueType(Form.JSON, '{"type":"string"}')], ids=["none", "no struct"])
def test_values_without_fields_are_refused(value: ValueType) -> None:
    """A row needs columns."""
    rows, refused = made([{"n": 1}], NONE.slice(0, 1), value=value)
    assert len(rows) == 0
    assert refused[0][1] == "no_schema"


@pytest.mark.parametrize(
    ("key", "keys", "expected"),
    [
        (ValueType(Form.TEXT), ["a", "b"], {"id": ["a", "b"]}),
        (PLAIN_JSON, ["1", "2"], {"id": [1, 2]}),
        (ValueType(Form.JSON, '{"type":"int64"}'), ["1", "2"], {"id": [1, 2]}),
        (PAIR, ['{"a":1,"b":"x"}', '{"a":2,"b":"y"}'], {"a": [1, 2], "b": ["x", "y"]}),
    ],
    ids=["text", "json", "typed", "struct"],
)
def test_forms_of_keys(key: ValueType, keys: list[str], expected: dict[str, list[Any]]) -> None:
    """One value under the name of ``pk.fields``, or the key's own fields."""
    fields = ",".join(expected)
    rows, refused = made([{"n": 1}, {"n": 2}], pa.array(keys), key, pk_mode="record_key", pk_fields=fields)
    assert refused == []
    assert {column.name: column.values.to_pylist() for column in rows.keys} == expected


def test_numbers_beyond_all_types_are_refused_alone() -> None:
    """Of values, which no double holds, and of keys, which are no BIGINT; each by itself."""
    values = pa.array(['{"n":1,"ratio":2.5}', '{"n":2,"ratio":1e400}', '{"n":3,"ratio":%s}' % ("9" * 400)])
    rows, refused = made(values, NONE, pk_mode="none")
    assert [(row, reason) for row, reason, _ in refused] == [(1, "out_of_range"), (2, "wrong_type")]
    assert rows.numbers.tolist() == [0]
    keys = pa.array(["1", str(2**64), "1e400"])
    rows, refused = made([{"n": 1}] * 3, keys, pk_mode="record_key", pk_fields="id")
    assert sorted((row, reason) for row, reason, _ in refused) == [(1, "out_of_range"), (2, "out_of_range")]
    assert [column.values.to_pylist() for column in rows.keys] == [[1]]


@pytest.mark.parametrize("number", ["1e39", "-1e39", "1e400", "9" * 400])
def test_a_number_that_its_type_would_make_infinite_is_refused_alone(number: str) -> None:
    """Of single precision here, and the same in the columns of files and of Iceberg; infinity is a word of its own."""
    value = ValueType(Form.JSON, '{"type":"struct","fields":[{"field":"n","type":"float"}]}')
    texts = pa.array([f'{{"n":{text}}}' for text in ("3.4028235e38", number, '"-Infinity"')])
    rows, refused = made(texts, NONE, pk_mode="none", value=value)
    assert [row for row, _, _ in refused] == [1]
    assert rows.numbers.tolist() == [0, 2]
    _, misfits = column_of_json(texts, shape_of(value, "parquet"))
    assert list(misfits) == [1]


def test_keys_of_kafka_and_of_the_value() -> None:
    """Places have names of their own; a whitelist leaves the key's fields alone."""
    rows, _ = made([{"n": 1}], NONE.slice(0, 1), pk_mode="kafka")
    assert [column.values[0].as_py() for column in rows.keys] == ["t", 3, 0]
    rows, _ = made([{"n": 1}], NONE.slice(0, 1), pk_mode="record_value", pk_fields="n", fields_whitelist="word")
    assert [column.name for column in rows.columns] == ["n", "word"]
    _, refused = made([{"n": 1}], NONE.slice(0, 1), pk_mode="record_value", pk_fields="other")
    assert [reason for _, reason, _ in refused] == ["missing_field"]


_READ: dict[str, Any] = {"reads_texts": True}
_KEPT: dict[str, Any] = {"reads_texts": True, "holds_any_text": True}


@pytest.mark.parametrize(
    ("values", "column", "unfit"),
    [
        (pa.array([1.5, 2.0, None]), {"family": Family.EXACT, "digits": 0}, [True, False, False]),
        (pa.array([2**53, 2**53 + 1]), {"family": Family.DOUBLE}, [False, True]),
        (pa.array([0.5, 0.1]), {"family": Family.REAL}, [False, True]),
        (pa.array(["äöü", "abcd"]), {"family": Family.TEXT, "length_max": 3}, [False, True]),
        (pa.array([b"abc", b"abcd"]), {"family": Family.BINARY, "length_max": 3}, [False, True]),
        (pa.array([1000, 1001], pa.timestamp("ms")), {"family": Family.TIME, "digits": 0}, [False, True]),
        (pa.array([1000, 1001], pa.time32("ms")), {"family": Family.TIME, "digits": 3}, [False, False]),
        (pa.array([1, 1_001], pa.timestamp("us")), {"family": Family.TIME, "digits": 3}, [True, True]),
        (pa.array([0], pa.timestamp("ms")), {"family": Family.DATE}, [True]),
        (pa.array([Decimal("0.1"), Decimal("0.12345678901234567890")]), {"family": Family.DOUBLE}, [False, True]),
        (pa.array([float("nan"), 1.0]), {"family": Family.DOUBLE, "takes_nan": False}, [True, False]),
        (pa.array([1, None]), {"family": Family.EXACT, "digits": 0, "takes_null": False}, [False, True]),
        (pa.array([12300, 12345]), {"family": Family.EXACT, "digits": -2}, [False, True]),
        (pa.array([1.25, 0.125, 0.1]), {"family": Family.REAL, "digits": 2}, [False, True, True]),
        (pa.array([float("inf"), 0.1, 0.5]), {"family": Family.REAL, "takes_nan": False}, [True, True, False]),
        (pa.array([b"abc", b"ab", None]), {"family": Family.BINARY, "size_bytes": 3}, [False, True, False]),
        (
            pa.array(["1.50", "1.234", "x", None]),
            {**_READ, "family": Family.EXACT, "digits": 2},
            [False, True, True, False],
        ),
        (pa.array([" 1e400", "0.1", "1e-3"]), {**_READ, "family": Family.DOUBLE}, [True, False, False]),
        (pa.array(["16777217", "0.1"]), {**_READ, "family": Family.REAL}, [True, False]),
        (pa.array(["x", "2020-01-01", "9007199254740993.5"]), {**_KEPT, "family": Family.DOUBLE}, [False, False, True]),
        (pa.array(["9007199254740993", "9223372036854775808.5"]), _KEPT, [False, True]),
        (pa.array([Decimal("1234567890123456.7891"), Decimal("1.5000")]), _KEPT, [True, False]),
    ],
)
def test_what_a_column_cannot_hold_is_seen(values: Any, column: dict[str, Any], unfit: list[bool]) -> None:
    """Where databases would round or cut without a word."""
    found, message = lost(values, TargetColumn("c", "kind", **column), FOUR_DIGITS)
    assert found.tolist() == unfit
    assert message.startswith("column c (kind)")


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("is_replaced", ["true", "false"])
async def test_a_null_becomes_its_default_where_either_key_says_so(is_replaced: str, *, is_kept: bool) -> None:
    """The converter's `replace.null.with.default`, or the sink's: as Confluent's, whose Struct gives the default."""
    fields = [{"field": "a", "type": "int32", "optional": True, "default": 7}]
    envelope = {"schema": {"type": "struct", "fields": fields}, "payload": {"a": None}}
    reading = await EnvelopeReader(is_null_kept=is_kept).read(pa.array([json.dumps(envelope).encode()]))
    keys = pa.nulls(1, pa.string())
    value = reading.types[0]
    rows, refused = made([{"a": None}], keys, value=value, replace_null_with_default=is_replaced)
    expected = None if is_kept and is_replaced == "false" else 7
    (column,) = rows.values
    assert (column.values.to_pylist(), column.default.to_pylist(), refused) == ([expected], [7], [])
