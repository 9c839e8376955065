"""Bytes as texts, by columns."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.toolkit.binary_modes import BinaryMode, encoded

MODES: dict[BinaryMode, Any] = {"hex": bytes.hex, "base64": b64encode, "base64-url-safe": urlsafe_b64encode}


@pytest.mark.parametrize("mode", list(MODES))
@given(
    values=st.lists(st.none() | st.binary(max_size=9), max_size=20),
    cut=st.tuples(st.integers(0, 20), st.integers(0, 20)),
)
def test_each_value_is_written_as_if_it_were_alone(
    mode: BinaryMode, values: list[bytes | None], cut: tuple[int, int]
) -> None:
    """Nulls, empty ones, any length and any part of a column."""
    whole = pa.array(values, pa.binary())
    column = whole.slice(min(cut[0], len(whole)), cut[1])
    made = encoded(column, mode)
    made.validate(full=True)
    texts = [None if one is None else MODES[mode](one) for one in column.to_pylist()]
    assert made.equals(pa.array([one.decode() if isinstance(one, bytes) else one for one in texts], pa.string()))
    assert encoded(column, "bytes") is column
