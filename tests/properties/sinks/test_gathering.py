"""Rows that wait for their files come out as they went in: each once, to its folder, in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.sinks.filesystem import gathering
from service.sinks.filesystem.gathering import Gathered

TYPE = pa.struct([pa.field("n", pa.int64(), nullable=False), pa.field("texts", pa.list_(pa.string()))])


class Rows:
    """A file of a folder."""

    def __init__(self) -> None:
        self.held: list[Any] = []

    def write(self, values: Any) -> None:
        """Append."""
        assert values.type == TYPE
        self.held += values.to_pylist()

    def close(self) -> None:
        """Nothing to do."""


@pytest.fixture(scope="module", autouse=True)
def small_pieces() -> Any:
    """Messages of a few rows, and chunks of a few messages."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(gathering, "_MESSAGE_BYTES", 200)
        patched.setattr(gathering, "_CHUNK_BYTES", 500)
        yield


@given(
    steps=st.lists(st.one_of(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.sets(st.integers(0, 9)))),
    texts=st.lists(st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text())))).filter(bool),
)
def test_each_row_once_in_order(steps: list[list[int] | set[int]], texts: list[list[str | None] | None]) -> None:
    """A list is a put, of a row to each of these folders; a set is a spill, after which these folders have files."""
    gathered, files = Gathered(), {folder: Rows() for folder in range(10)}
    has_file: set[int] = set()
    waiting: set[int] = set()
    expected: dict[int, list[Any]] = {folder: [] for folder in range(10)}
    count = 0

    def file_of(folder: int, size_bytes: int) -> Rows | None:
        assert size_bytes > 0
        if folder in has_file or (folder in chosen and folder not in waiting):
            has_file.add(folder)
            return files[folder]
        waiting.add(folder)
        return None

    for step in steps:
        if isinstance(step, list):
            rows = [{"n": count + row, "texts": texts[(count + row) % len(texts)]} for row in range(len(step))]
            count += len(step)
            for folder, value in zip(step, rows, strict=True):
                expected[folder].append(value)
            gathered.add(pa.array(rows, TYPE), np.array(step, np.int64))
        else:
            chosen = step
            gathered.spill(file_of)
            assert gathered.held_bytes == 0
    taken = []
    for folder, pieces in gathered.take_all():
        taken.append(folder)
        for values in pieces:
            files[folder].write(values)
    gathered.clear()
    assert taken == sorted(set(taken))
    assert {folder: file.held for folder, file in files.items()} == expected
    assert list(gathered.take_all()) == []
