"""Which payloads are no UTF-8, looked for in halves: the same that Python cannot decode."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_batch.prepass import read_utf8

PAYLOADS = st.sampled_from([b"plain", "é😀".encode(), b"", None, b"\xff", b"\xc3", b"\xa9", b"\xed\xa0\x80"])
GOOD = [b"plain"] * 40


def is_text(payload: bytes | None) -> bool:
    """Whether Python takes it for UTF-8; null is nobody's fault."""
    try:
        (payload or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@settings(max_examples=100)
@given(payloads=st.lists(PAYLOADS, max_size=60), start=st.integers(0, 3))
def test_what_python_cannot_decode_is_invalid(payloads: list[bytes | None], start: int) -> None:
    """Wherever it stands, in slices too; what is text is given as it is, the others as null."""
    column = pa.array([*payloads, *GOOD, *payloads], pa.binary()).slice(start)
    text = read_utf8(column)
    expected = [not is_text(payload) for payload in column.to_pylist()]
    assert np.asarray(text.is_invalid).tolist() == expected
    given_back = [value for value in column.to_pylist() if is_text(value)]
    assert [
        None if value is None else value.encode()
        for value, is_bad in zip(text.column.to_pylist(), expected, strict=True)
        if not is_bad
    ] == given_back
