"""The server's texts as columns: what Arrow reads, what is read one by one, and what cannot be held."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from fetchers.postgres_cdc.columns import Modes, Type, type_of
from fetchers.postgres_cdc.kinds import kind_of

MILLIS, NUMERIC_5_2 = 3, ((5 << 16) | 2) + 4


def read(found: Type, *texts: str | None, modes: Modes | None = None) -> tuple[list[Any], list[int]]:
    """Values, and rows that are wrong."""
    column, wrong = kind_of(found, modes or Modes()).read(pa.array(texts, pa.string()))
    return column.to_pylist(), sorted(wrong)


@pytest.mark.parametrize(
    ("found", "texts", "expected"),
    [
        (Type("int4"), ["-2147483648", None], [-(2**31), None]),
        (Type("bool"), ["t", "f", None], [True, False, None]),
        (Type("float8"), ["1e-300", "-Infinity"], [1e-300, float("-inf")]),
        (Type("numeric", NUMERIC_5_2), ["123.45", "-0.01"], [Decimal("123.45"), Decimal("-0.01")]),
        (Type("bytea"), ["\\x00ff", "\\x", None], [b"\x00\xff", b"", None]),
        (Type("date"), ["1970-01-02", "0001-02-29 BC"], [1, -719469]),
        (Type("date"), ["5874897-12-31"], [2145042905]),
        (Type("time"), ["24:00:00", "00:00:00.000001"], [86_400_000_000, 1]),
        (Type("time", MILLIS), ["12:34:56.789"], [45_296_789]),
        (Type("timetz"), ["04:05:06.5-08"], ["12:05:06.5Z"]),
        (Type("timestamp"), ["1969-12-31 23:59:59.999999", "0044-03-15 12:00:00 BC"], [-1, -63517780800000000]),
        (Type("timestamp", MILLIS), ["1969-12-31 23:59:59.999"], [-1]),
        (Type("timestamptz"), ["2024-02-29 00:00:00.5+00", "12024-01-01 00:00:00+00"],
         ["2024-02-29T00:00:00.500000Z", "+12024-01-01T00:00:00.000000Z"]),
        (Type("interval"), ["P1DT-2.5S", "PT0S"], [86_397_500_000, 0]),
        (Type("bit", 1), ["1", "0"], [True, False]),
        (Type("bit", 10), ["1000000001"], [b"\x01\x02"]),
        (Type("_int4", item=Type("int4")), ["{1,NULL,3}", None], [[1, None, 3], None]),
        (Type("_text", item=Type("text")), ['{"a,b",NULL,"NULL","\\"\\\\"}', "{}"], [["a,b", None, "NULL", '"\\'], []]),
        (Type("numeric"), ["-1.28", "300"], [{"scale": 2, "value": b"\x80"}, {"scale": 0, "value": b"\x01\x2c"}]),
        (Type("mood", labels=("a", "b")), ["a"], ["a"]),
        (Type("timestamptz", MILLIS), ["2024-02-29 00:00:00.5+00", None], ["2024-02-29T00:00:00.500Z", None]),
        (Type("timestamptz", 0), ["2024-02-29 00:00:00+00"], ["2024-02-29T00:00:00Z"]),
        (Type("inet"), ["::1/128", "::1/64", "10.0.0.1/32", "::1"], ["::1", "::1/64", "10.0.0.1", "::1"]),
        (Type("cidr"), ["::1/128"], ["::1/128"]),
        (Type("hstore"), ['"a\\"b"=>"x, y", "c"=>NULL', ""], ['{"a\\"b":"x, y","c":null}', "{}"]),
        (Type("money"), ["-$1,234.50", None], [Decimal("-1234.50"), None]),
    ],
)  # fmt: skip
def test_values_are_held_exactly(found: Type, texts: list[str | None], expected: list[Any]) -> None:
    """Each type's ordinary and odd values."""
    assert read(found, *texts) == (expected, [])


@pytest.mark.parametrize(
    ("found", "good", "odd"),
    [
        (Type("date"), "2024-01-01", "infinity"),
        (Type("timestamp"), "2024-01-01 00:00:00", "-infinity"),
        (Type("timestamptz"), "2024-01-01 00:00:00+00", "infinity"),
        (Type("numeric", NUMERIC_5_2), "1.00", "NaN"),
        (Type("numeric"), "1.5", "Infinity"),
        (Type("_int4", item=Type("int4")), "{1}", "{{1},{2}}"),
        (Type("_int4", item=Type("int4")), "{1}", "[0:0]={1}"),
    ],
)
def test_what_cannot_be_held_is_told_and_alters_no_other(found: Type, good: str, odd: str) -> None:
    """Never clamped, never something like it."""
    values, wrong = read(found, good, odd, None, good)
    assert wrong == [1]
    assert (values[1], values[2]) == (None, None)
    assert values[0] == values[3] is not None or values[0] == values[3]


def test_modes_say_how_values_are_held() -> None:
    """As texts, doubles, or Connect's types."""
    text = Modes(decimals="string", intervals="string", binaries="hex", times="connect")
    assert read(Type("numeric"), "NaN", modes=text) == (["NaN"], [])
    assert read(Type("interval"), "P1D", modes=text) == (["P0Y0M1DT0H0M0S"], [])
    assert read(Type("bytea"), "\\x00ff", modes=text) == (["00ff"], [])
    assert read(Type("timestamp"), "1970-01-01 00:00:00.001999", modes=text) == ([1], [])
    assert read(Type("numeric"), "1.5", modes=Modes(decimals="double")) == ([1.5], [])


def test_domains_are_what_they_are_made_of() -> None:
    """With the modifier of the domain; a type that has gone is text."""
    plain = {"base": None, "modifier": -1, "item": None, "labels": None, "delimiter": ","}
    rows = {1: {**plain, "name": "numeric"}, 2: {**plain, "name": "money5", "base": 1, "modifier": 7}}
    assert type_of(rows, 2, -1) == Type("numeric", 7)
    assert type_of(rows, 99, -1) == Type("text")
