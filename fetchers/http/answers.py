"""Cuts an answer into records, and says which of them are new."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fetchers.sdk import HttpResponse, Rejection
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
    fields: Sequence[str]
    """Those that tell new records from old ones; none where nothing does."""
    key: str | None


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The records of one answer."""

    records: Sequence[bytes]
    column: Column | None
    """The offset field (or fields) of each record, if there is one; that of a rejected record says nothing."""
    keys: Sequence[str | int | float] | None
    """Value of the key field of each record; that of a rejected record says nothing."""
    rejections: Mapping[int, Rejection] = field(default_factory=dict)
    """Records that could not be read, by position."""

    def rejections_among(self, positions: Sequence[int]) -> tuple[Rejection, ...]:
        """The rejections of these records, for a page of just them."""
        if not self.rejections:
            return ()
        places = enumerate(positions)
        return tuple(replace(self.rejections[at], index=index) for index, at in places if at in self.rejections)

    def key_of(self, position: int) -> str:
        """What the record at this position is remembered by."""
        if self.keys is None or position in self.rejections:
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
        if self.rejections:
            known = frozenset(mark.unreadable)
            unreadable = (at for at in self.rejections if self.key_of(at) not in known)
            found = sorted((*self._readable(found), *unreadable))
        return [position for position in found if position >= skip] if skip else found

    def raise_mark(self, mark: Mark, news: Sequence[int]) -> Mark:
        """The mark with these records handed over as well."""
        if self.column is None:
            return mark
        if not self.rejections:
            return mark.raised_by(self.column, news, self.key_of)
        raised = mark.raised_by(self.column, self._readable(news), self.key_of)
        return raised.remembering([self.key_of(at) for at in self.rejections])

    def _readable(self, positions: Sequence[int]) -> list[int]:
        return [at for at in positions if at not in self.rejections]


def cut(response: HttpResponse, layout: RecordLayout) -> CutAnswer:
    """The records of an answer. Raises Retriable where it is incomplete, Fatal where it is not what was configured."""
    slices = _slices(response, layout)
    records, rejections = list(slices), {rejection.index: rejection for rejection in slices.rejections}
    if not layout.fields or not records:
        return CutAnswer(records, None, None, rejections)
    paths = (*layout.fields, *(() if layout.key is None else (layout.key,)))
    columns = _columns(records, paths, rejections)
    keys = None if layout.key is None else columns.pop()
    values = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    return CutAnswer(records, Column.of(values), keys, rejections)


def _slices(response: HttpResponse, layout: RecordLayout) -> RecordSlices:
    if response.is_skipped:
        return RecordSlices(())
    if layout.format == "ndjson":
        return RecordSlices.of_ndjson(response.body)
    if layout.format == "csv":
        return RecordSlices.of_csv(response.body)
    return RecordSlices.of_json(response.body, layout.path, is_path_optional=layout.is_path_optional)


def _columns(
    records: Sequence[bytes], paths: Sequence[str], rejections: Mapping[int, Rejection]
) -> list[list[str | int | float]]:
    """The values of these fields; a rejected record has those of the first that has any, so that each has its place."""
    positions = [at for at in range(len(records)) if at not in rejections]
    rows = field_reader(*paths).of_each(records[at] for at in positions)
    columns: list[list[str | int | float]] = [[] for _ in paths]
    for position, row in zip(positions, rows, strict=True):
        for column, path, value in zip(columns, paths, row or (None,) * len(paths), strict=True):
            if value is None:
                # Whether it is new cannot be told; to pass it on would repeat it with every round.
                message = f"record {position} of the answer has no text or number in its field {path!r}"
                raise Fatal(message)
            column.append(value)
    if not rejections:
        return columns
    return [_with_places(column, rejections, count=len(records)) for column in columns]


def _with_places(
    column: Sequence[str | int | float], rejections: Mapping[int, Rejection], *, count: int
) -> list[str | int | float]:
    """A value for each rejected record as well; none at all where all records are rejected."""
    if not column:
        return []
    values = iter(column)
    return [column[0] if at in rejections else next(values) for at in range(count)]
