"""Bytes that databases send for texts: read with a codec, and told where they are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

TOLD_BYTES = 60
"""Of a value that cannot be held."""


def told_bytes(value: bytes) -> str:
    """For a person; cut where they are many."""
    return f"{value[:TOLD_BYTES].hex()}{'…' * (len(value) > TOLD_BYTES)}"


def decoded(values: Any, decode: Callable[[bytes], str], told: Callable[[bytes], str]) -> tuple[Any, dict[int, str]]:
    """A binary column as texts, one by one: for columns that cannot be cast as a whole.

    Where ``decode`` raises ``UnicodeDecodeError`` there is a null, and what ``told`` says of the bytes, by row.
    """
    texts: list[str | None] = []
    wrong = {}
    for at, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else decode(value))
        except UnicodeDecodeError:
            texts.append(None)
            wrong[at] = told(value)
    return pa.array(texts, pa.string()), wrong
