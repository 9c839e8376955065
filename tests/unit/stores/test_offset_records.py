"""Offset records are Kafka Connect's, to the byte."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.kafka.client import KafkaSettings
from service.stores.jackson import to_json
from service.stores.offsets import OffsetStore, canonical_partition

STORE = OffsetStore(KafkaSettings(bootstrap="nowhere:1"), "connect-offsets")

text = st.text(alphabet=st.characters(exclude_categories=["Cs"]))
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), text)


def test_a_record_reads_like_connects() -> None:
    """The FileStreamSource example: a two-part key without blanks, a map as value."""
    [records] = STORE.encode("local-file", [({"filename": "/data/in.txt"}, {"position": 42})])
    assert records.topic == "connect-offsets"
    assert records.keys is not None
    assert records.keys.to_pylist() == [b'["local-file",{"filename":"/data/in.txt"}]']
    assert records.values.to_pylist() == [b'{"position":42}']


def test_names_are_sorted_and_forgetting_is_null() -> None:
    """The same partition gives the same key bytes in whatever order it was built; None forgets."""
    [records] = STORE.encode("c", [({"b": 1, "a": 2}, None), ({"a": 2, "b": 1}, {"x": 1})])
    assert records.keys is not None
    assert records.keys.to_pylist() == [b'["c",{"a":2,"b":1}]'] * 2
    assert records.values.to_pylist() == [None, b'{"x":1}']


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("é\u2028\u2029😀\x7f/", '"é\u2028\u2029😀\x7f/"'),
        ('"\\\b\t\n\f\r\x1b\x00', '"\\"\\\\\\b\\t\\n\\f\\r\\u001B\\u0000"'),
        (2**63 - 1, "9223372036854775807"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (-1.5e-7, "-1.5E-7"),
        (0.001, "0.001"),
        (123456789.125, "1.23456789125E8"),
        (True, "true"),
        (None, "null"),
    ],
)
def test_scalars_are_written_as_jackson_writes_them(value: object, expected: str) -> None:
    """Nothing outside ASCII is escaped, control characters have capital digits, doubles are Java's."""
    assert to_json(value) == expected


@settings(deadline=None)
@given(st.dictionaries(text, scalars))
def test_every_offset_reads_back_equal(offset: dict[str, object]) -> None:
    """Whatever an offset may hold comes back exactly: text, 64-bit and larger integers, doubles, nulls."""
    assert json.loads(to_json(offset)) == offset


@settings(deadline=None)
@given(st.dictionaries(text, scalars), st.randoms())
def test_canonical_text_ignores_order(partition: dict[str, object], random: object) -> None:
    """A partition's canonical text does not depend on the order of its names."""
    items = list(partition.items())
    random.shuffle(items)  # type: ignore[attr-defined]
    assert canonical_partition(dict(items)) == canonical_partition(partition)


@pytest.mark.parametrize("value", [math.nan, math.inf, "\ud800", b"bytes", {1: "x"}, object()])
def test_what_json_cannot_say_is_refused(value: object) -> None:
    """NaN, infinities, lone surrogates, bytes and keys that are not text are an error, never something else."""
    with pytest.raises(ValueError, match=r".+"):
        to_json({"x": value} if not isinstance(value, dict) else value)
