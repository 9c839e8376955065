"""Files that end by their bytes: each record once, in order, and no file above its limit, however records come."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.sinks.filesystem import sizes as sizes_module
from service.sinks.filesystem.sizes import sizes_of
from tests.unit.sinks.filesystem.files_runs import HERE, batch_of, config_of, found, running

Row = Mapping[str, Any]
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.text("xä€", max_size=12)), min_size=1, max_size=24)
CUTS = st.lists(st.integers(1, 9), max_size=12)


@pytest.fixture(scope="module", autouse=True)
def few_rows_at_first() -> Any:
    """So that rows behind the first look count as well."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sizes_module, "_FIRST_ROWS", 5)
        yield


@dataclass
class Expected:
    """What the guide says of files, record by record."""

    bytes_max: int
    records_max: int
    committed: dict[str, list[Row]] = field(default_factory=dict)
    _open: dict[str, list[tuple[int, Row]]] = field(default_factory=dict)

    def take(self, offset: int, row: Row) -> None:
        """One more record."""
        size = len(json.dumps(row).encode()) + 1
        held = self._bytes(row["kind"])
        if held and held + size > self.bytes_max:
            self._commit()
        self._open.setdefault(row["kind"], []).append((offset, row))
        count = sum(map(len, self._open.values()))
        if count >= self.records_max or self._bytes(row["kind"]) >= self.bytes_max:
            self._commit()

    def _bytes(self, kind: str) -> int:
        return sum(len(json.dumps(row).encode()) + 1 for _, row in self._open.get(kind, ()))

    def _commit(self) -> None:
        for kind, taken in self._open.items():
            name = f"orders/kind={kind}/orders+0+{taken[0][0]:010}+{taken[-1][0]:010}.json"
            self.committed[name] = [row for _, row in taken]
        self._open = {}


async def _put(folder: Path, rows: Sequence[Row], cuts: Sequence[int], keys: Mapping[str, str]) -> None:
    """Put the rows in batches of these sizes, the rest in one."""
    config = config_of(folder, partitioner__class="FieldPartitioner", partition__field__name="kind", **keys)
    bounds = [0, *(end for end in accumulate(cuts) if end < len(rows)), len(rows)]
    async with running(config.model_copy(update={"buffer_bytes": 500})) as sink:
        await sink.open({HERE: None})
        for begin, end in pairwise(bounds):
            await sink.put(batch_of(rows[begin:end], begin=begin))


@settings(max_examples=25, deadline=None)
@given(rows=ROWS, cuts=CUTS, bytes_max=st.integers(1, 200), records_max=st.none() | st.integers(1, 12))
@example(rows=[("a", "x" * 90), ("a", ""), ("b", ""), ("a", "x" * 90)], cuts=[], bytes_max=60, records_max=None)
@example(rows=[("a", "")] * 4, cuts=[3], bytes_max=60, records_max=None)  # two lines of thirty: full, not above
async def test_each_record_once_in_files_below_the_limit(
    rows: list[tuple[str, str]], cuts: list[int], bytes_max: int, records_max: int | None
) -> None:
    """However they come, also with what waits outside of memory; a line is counted to the byte."""
    values = [{"n": n % 10, "kind": kind, "text": text} for n, (kind, text) in enumerate(rows)]
    keys = {"flush__size__bytes": str(bytes_max)} | ({} if records_max is None else {"flush__size": str(records_max)})
    expected = Expected(bytes_max, records_max or len(values) + 1)
    for offset, row in enumerate(values):
        expected.take(offset, row)
    with tempfile.TemporaryDirectory() as name:
        await _put(Path(name), values, cuts, keys)
        assert found(Path(name)) == expected.committed
        for file in (Path(name) / "topics").rglob("*.json"):
            content = file.read_bytes()
            assert len(content) <= bytes_max or content.count(b"\n") == 1


TYPE = pa.struct(
    [
        pa.field("n", pa.int32()),
        pa.field("at", pa.timestamp("ms")),
        pa.field("yes", pa.bool_()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("id", pa.binary(3)),
        pa.field("nothing", pa.null()),
        pa.field("raw", pa.binary()),
        pa.field("lines", pa.list_(pa.struct([pa.field("name", pa.string()), pa.field("count", pa.int64())]))),
        pa.field("tags", pa.map_(pa.string(), pa.list_(pa.float64()))),
    ]
)
WIDTHS = {"n": 4, "at": 8, "yes": 1, "price": 16, "id": 3, "nothing": 0}
LINES = st.none() | st.lists(st.none() | st.fixed_dictionaries({"name": st.none() | st.text(max_size=4)}), max_size=3)
TAGS = st.none() | st.dictionaries(st.text(max_size=3), st.none() | st.lists(st.none() | st.just(1.5), max_size=3))
VALUES = st.none() | st.fixed_dictionaries({"raw": st.none() | st.binary(max_size=9), "lines": LINES, "tags": TAGS})


def _size(value: Mapping[str, Any] | None) -> int:
    """As the guide says it; fields that have no length count whether they are there or not."""
    found = value or {}
    lines = sum(4 + len(((line or {}).get("name") or "").encode()) + 8 for line in found.get("lines") or ())
    tags = sum(
        4 + len(name.encode()) + 4 + 8 * len(numbers or ()) for name, numbers in (found.get("tags") or {}).items()
    )
    return sum(WIDTHS.values()) + 4 + len(found.get("raw") or b"") + 4 + lines + 4 + tags


def _pairs(value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Arrow takes maps as lists of pairs."""
    return value and {**value, "tags": value["tags"] and list(value["tags"].items())}


@given(values=st.lists(VALUES, max_size=20), begin=st.integers(0, 5), count=st.integers(0, 20))
def test_what_values_with_fields_count(values: list[Mapping[str, Any] | None], begin: int, count: int) -> None:
    """The same for a record wherever in a column it stands, and whatever stands beside it."""
    column: Any = pa.array([_pairs(each) for each in values], TYPE)
    for part in (column, column.slice(begin, count), column.filter(column.is_valid())):
        assert sizes_of(part, "parquet").tolist() == [_size(row) for row in part.to_pylist(maps_as_pydicts="strict")]


def test_what_stands_below_a_null_counts_nothing() -> None:
    """Arrow leaves there whatever it had: two lists of the same items, of which one was made null."""
    lists: Any = pa.ListArray.from_arrays(
        pa.array([0, 2, 4], pa.int32()), pa.array(["ab", "c"] * 2), mask=pa.array([False, True])
    )
    assert sizes_of(pa.StructArray.from_arrays([lists], ["x"]), "avro").tolist() == [4 + 6 + 5, 4]
