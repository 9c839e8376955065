"""Cuts an answer into records, and says which of them are new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fetchers.sdk import HttpResponse
from fetchers.sdk.errors import Fatal
from fetchers.toolkit.fields import field_reader
from fetchers.toolkit.marks import Column, Mark, key_hash
from fetchers.toolkit.records import RecordSlices


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Where the records are, and which of their fields matter."""

    format: str
    path: str
    is_path_optional: bool
    field: str | None
    key: str | None


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The records of one answer."""

    records: Sequence[bytes]
    column: Column | None
    """The offset field of each record, if there is one."""
    keys: Sequence[str | int | float] | None
    """Value of the key field of each record."""

    def key_of(self, position: int) -> str:
        """What the record at this position is remembered by."""
        if self.keys is None:
            return key_hash(self.records[position])
        key = self.keys[position]
        return key_hash(f"{type(key).__name__}:{key}".encode())

    def news(self, mark: Mark, *, skip: int, known: Callable[[str], bool] | None = None) -> list[int]:
        """Positions of records that are neither among the first ``skip`` nor seen by ``mark`` nor ``known``."""
        found = self._unseen(mark, skip)
        return found if known is None else [position for position in found if not known(self.key_of(position))]

    def _unseen(self, mark: Mark, skip: int) -> list[int]:
        if self.column is None:
            return list(range(skip, len(self.records)))
        found = mark.new_among(self.column, self.key_of)
        return [position for position in found if position >= skip] if skip else found

    def raise_mark(self, mark: Mark, news: Sequence[int]) -> Mark:
        """The mark with these records handed over as well."""
        return mark if self.column is None else mark.raised_by(self.column, news, self.key_of)


def cut(response: HttpResponse, layout: RecordLayout) -> CutAnswer:
    """The records of an answer. Raises Retriable where it is incomplete, Fatal where it is not what was configured."""
    records = _records(response, layout)
    if layout.field is None or not records:
        return CutAnswer(records, None, None)
    paths = (layout.field,) if layout.key is None else (layout.field, layout.key)
    rows = field_reader(*paths).of_each(records)
    columns: list[list[str | int | float]] = [[] for _ in paths]
    for position, row in enumerate(rows):
        for column, path, value in zip(columns, paths, row or (None,) * len(paths), strict=True):
            if value is None:
                # Whether it is new cannot be told; to pass it on would repeat it with every round.
                message = f"record {position} of the answer has no text or number in its field {path!r}"
                raise Fatal(message)
            column.append(value)
    return CutAnswer(records, Column.of(columns[0]), columns[1] if layout.key is not None else None)


def _records(response: HttpResponse, layout: RecordLayout) -> Sequence[bytes]:
    if response.is_skipped:
        return ()
    if layout.format == "ndjson":
        return list(RecordSlices.of_ndjson(response.body))
    if layout.format == "csv":
        return list(RecordSlices.of_csv(response.body))
    return list(RecordSlices.of_json(response.body, layout.path, is_path_optional=layout.is_path_optional))
