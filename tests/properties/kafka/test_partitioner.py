"""Keys reach the partition that Java's client would choose."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.partitioner import murmur2 as library_murmur2
from hypothesis import given, settings
from hypothesis import strategies as st

from service.kafka.partitioner import key_partitions, murmur2, murmur2_column

# org.apache.kafka.common.utils.UtilsTest#testMurmur2, signed there.
JAVA_VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_VECTORS.items())
def test_single_hash_equals_javas(key: bytes, expected: int) -> None:
    """A value's hash is the one in the Java client's own test."""
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_column_hash_equals_javas() -> None:
    """A column of keys of many lengths, hashed side by side, gives Java's hashes."""
    column = pa.array(list(JAVA_VECTORS), pa.binary())
    assert murmur2_column(column).tolist() == [value & 0xFFFFFFFF for value in JAVA_VECTORS.values()]


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=2040, max_size=2060)), max_size=40))
def test_column_agrees_with_one_by_one(keys: list[bytes | None]) -> None:
    """Whatever the lengths, short and long and null mixed, every row gets the hash of its own bytes."""
    hashes = murmur2_column(pa.array(keys, pa.binary()))
    for key, found in zip(keys, hashes.tolist(), strict=True):
        expected = library_murmur2(key or b"") & 0xFFFFFFFF
        assert found == expected
        assert murmur2(key or b"") == expected


@settings(deadline=None)
@given(st.lists(st.binary(max_size=12), min_size=3, max_size=20), st.integers(0, 2))
def test_a_slice_is_hashed_like_its_rows(keys: list[bytes], start: int) -> None:
    """A column that is a view into a larger one is read at its own place."""
    whole = pa.array(keys, pa.binary())
    assert murmur2_column(whole.slice(start)).tolist() == murmur2_column(pa.array(keys[start:], pa.binary())).tolist()


def test_null_keys_have_no_partition() -> None:
    """Where the key is null the partition is left open."""
    chosen = key_partitions(pa.array([b"21", None], pa.binary()), partitions=7)
    assert chosen.tolist() == [(-973932308 & 0x7FFFFFFF) % 7, -1]


def test_an_empty_column_is_fine() -> None:
    """No keys, no hashes."""
    assert murmur2_column(pa.array([], pa.binary())).dtype == np.uint32
    assert len(murmur2_column(pa.array([], pa.binary()))) == 0
