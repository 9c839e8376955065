"""Columns as JSON texts: whatever Arrow holds, each text is the value that Python's JSON reads."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from service.sinks.json_columns import json_texts

ROW: Any = pa.struct(
    [
        ("whole", pa.int64()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("price", pa.decimal128(20, 4)),
        ("day", pa.date32()),
        ("at", pa.timestamp("ms", "UTC")),
        ("raw", pa.binary()),
        ("items", pa.list_(pa.struct([("a", pa.string()), ("b", pa.list_(pa.int32()))]))),
        ('odd "name"\\', pa.map_(pa.string(), pa.float64())),
    ]
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.floats(allow_nan=True, allow_infinity=True)
rows = st.fixed_dictionaries(
    {},
    optional={
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "double": st.none() | numbers,
        "text": st.none() | texts,
        "flag": st.none() | st.booleans(),
        "price": st.none() | st.decimals(-(10**15), 10**15, places=4),
        "day": st.none() | st.dates(date(1900, 1, 1), date(2200, 1, 1)),
        "at": st.none() | st.integers(-(10**12), 10**13).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC)),
        "raw": st.none() | st.binary(max_size=9),
        "items": st.none()
        | st.lists(
            st.none() | st.fixed_dictionaries({"a": texts, "b": st.none() | st.lists(st.integers(0, 9), max_size=3)}),
            max_size=3,
        ),
        'odd "name"\\': st.none()
        | st.dictionaries(texts, st.none() | numbers, max_size=3).map(lambda d: list(d.items())),
    },
)


def expected(value: Any) -> Any:
    """As Connect's forms say it."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return float(value)
        case datetime():
            return int(value.timestamp()) * 1000
        case date():
            return (value - date(1970, 1, 1)).days
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def document(row: dict[str, Any] | None) -> Any:
    """The whole row."""
    if row is None:
        return None
    made = {field.name: expected(row.get(field.name)) for field in ROW}
    pairs = row.get('odd "name"\\')
    made['odd "name"\\'] = None if pairs is None else {key: expected(value) for key, value in pairs}
    return made


@given(st.lists(st.none() | rows, max_size=6), st.integers(0, 3))
def test_each_text_is_its_value(values: list[dict[str, Any] | None], begin: int) -> None:
    """Of a whole column and of a part of one; null where there is no value; no text has a line end."""
    column = pa.array(values, ROW)[begin:]
    made = json_texts(column).to_pylist()
    assert [None if text is None else json.loads(text) for text in made] == [document(row) for row in values[begin:]]
    assert not any("\n" in text for text in made if text is not None)
