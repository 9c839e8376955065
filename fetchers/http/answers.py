"""Cuts an answer into records, and says which of them are new."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

import msgspec

from fetchers.sdk import HttpResponse, Rejection
from fetchers.sdk.errors import Retriable
from fetchers.toolkit.fields import UNDECODABLE, field_reader
from fetchers.toolkit.marks import ORDERS, Column, Mark, RecordOrder, key_hash
from fetchers.toolkit.records import RecordSlices
from fetchers.toolkit.watermark import Reached, order_of


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Where the records are, and which of their fields matter."""

    format: str
    path: str
    is_path_optional: bool
    fields: Sequence[str]
    """Those that tell new records from old ones; none where nothing does."""
    key: str | None
    has_identities: bool = False
    """Whether ``CutAnswer.identities`` will be asked for: then they are computed with the cut, once."""


@dataclass(frozen=True, slots=True)
class CutAnswer:
    """The records of one answer. A row is the place of a record among those that could be read, fields and all."""

    records: Sequence[bytes]
    column: Column | None
    """The offset field (or fields) of each row, if there is one."""
    keys: Sequence[str | int | float] | None
    """Value of the key field of each row."""
    rejections: Mapping[int, Rejection] = field(default_factory=dict)
    """Records that could not be read, or lack a field that tells whether they are new, by position."""
    readable: Sequence[int] = ()
    """Position of each row, ascending."""
    known: Sequence[str] | None = None
    """``identities``, where they were asked for with the cut."""

    def rejections_among(self, positions: Sequence[int]) -> tuple[Rejection, ...]:
        """The rejections of these records, for a page of just them."""
        if not self.rejections:
            return ()
        places = enumerate(positions)
        return tuple(replace(self.rejections[at], index=index) for index, at in places if at in self.rejections)

    def identities(self) -> Sequence[str]:
        """By what each record is known again while a round lasts: its value and its key, or its bytes.

        With its value, since a record that was updated meanwhile is another one.
        """
        if self.known is not None:
            return self.known
        if self.column is None:
            return list(map(key_hash, self.records))
        found = {at: self._key_of(at) for at in self.rejections}
        values = self.column.values
        for row, at in enumerate(self.readable):
            found[at] = key_hash(f"{values[row]!r}:{self._key_of_row(row)}".encode())
        return [found[at] for at in range(len(self.records))]

    def news(self, mark: Mark, *, skip: int = 0, beyond: Mark | None = None) -> list[int]:
        """Positions of records that are neither among the first ``skip`` nor seen by ``mark``, nor by ``beyond``."""
        if self.column is None:
            return list(range(skip, len(self.records)))
        rows = mark.new_among(self.column, self._key_of_row)
        if beyond is not None:
            further = frozenset(beyond.new_among(self.column, self._key_of_row))
            rows = [row for row in rows if row in further]
        found = [self.readable[row] for row in rows]
        if self.rejections:
            seen = frozenset((*mark.unreadable, *(() if beyond is None else beyond.unreadable)))
            found = sorted((*found, *(at for at in self.rejections if self._key_of(at) not in seen)))
        return [position for position in found if position >= skip] if skip else found

    def before(self, mark: Mark) -> Reached:
        """The highest value of these records below that of ``mark``; None where there is none."""
        if self.column is None or mark.value is None:
            return None
        top = order_of(mark.value)[1]
        below = [row for row, order in enumerate(self.column.orders) if order < top]
        return self.column.values[max(below, key=self.column.orders.__getitem__)] if below else None

    def reaches(self, mark: Mark) -> bool:
        """Whether one of these records has the very value of ``mark``."""
        return self.column is not None and mark.value is not None and order_of(mark.value)[1] in self.column.orders

    def order(self) -> RecordOrder:
        """In what order of the offset field these records are."""
        pairs = list(pairwise(self.column.orders)) if self.column is not None else []
        is_rising, is_falling = any(a < b for a, b in pairs), any(a > b for a, b in pairs)
        return ORDERS[is_rising, is_falling]

    def raise_mark(self, mark: Mark, news: Sequence[int]) -> Mark:
        """The mark with these records handed over as well."""
        if self.column is None:
            return mark
        if not self.rejections:
            return mark.raised_by(self.column, news, self._key_of_row)
        positions = frozenset(news)
        rows = [row for row, position in enumerate(self.readable) if position in positions]
        raised = mark.raised_by(self.column, rows, self._key_of_row)
        return raised.seeing([self._key_of(at) for at in self.rejections])

    def _key_of_row(self, row: int) -> str:
        if self.keys is None:
            return self._key_of(self.readable[row])
        key = self.keys[row]
        return key_hash(f"{type(key).__name__}:{key}".encode())

    def _key_of(self, position: int) -> str:
        """What a record is remembered by that has nothing but its bytes."""
        return key_hash(self.records[position])


def cut(response: HttpResponse, layout: RecordLayout) -> CutAnswer:
    """The records of an answer. Raises Retriable where it is incomplete, Fatal where it is not what was configured."""
    slices = _slices(response, layout)
    records, rejections = list(slices), {rejection.index: rejection for rejection in slices.rejections}
    if not layout.fields or not records:
        return CutAnswer(records, None, None, rejections)
    paths = (*layout.fields, *(() if layout.key is None else (layout.key,)))
    # No list where all can be read: that is the usual answer.
    readable = [at for at in range(len(records)) if at not in rejections] if rejections else range(len(records))
    rows, placeless = _rows(records, paths, readable)
    if placeless:
        rejections |= placeless
        readable = [at for at in readable if at not in placeless]
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in paths]
    keys = None if layout.key is None else columns.pop()
    values = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    answer = CutAnswer(records, Column.of(values), keys, rejections, readable)
    return replace(answer, known=answer.identities()) if layout.has_identities else answer


def _slices(response: HttpResponse, layout: RecordLayout) -> RecordSlices:
    if response.is_skipped:
        return RecordSlices(())
    if layout.format == "ndjson":
        return RecordSlices.of_ndjson(_whole_lines(response))
    if layout.format == "csv":
        return RecordSlices.of_csv(_whole_lines(response))
    return RecordSlices.of_json(response.body, layout.path, is_path_optional=layout.is_path_optional)


def _whole_lines(response: HttpResponse) -> bytes:
    """The body. Raises Retriable where it may have been cut within a line; JSON proves its end by itself."""
    if response.is_framed or response.body.endswith(b"\n"):
        return response.body
    raise Retriable("the answer does not tell where it ends (no length, no chunks, no gzip), nor does its last line")


def _rows(
    records: Sequence[bytes], paths: Sequence[str], readable: Sequence[int]
) -> tuple[list[tuple[str | int | float, ...]], dict[int, Rejection]]:
    """The values of these fields in each readable record that has them all, and a rejection for each that has not.

    Whether such a record is new cannot be told by its fields: it is known again by its bytes, as a bad row is.
    """
    rows: list[tuple[str | int | float, ...]] = []
    rejections: dict[int, Rejection] = {}
    for at, row in zip(readable, field_reader(*paths).of_each(records[at] for at in readable), strict=True):
        if row is None or None in row:
            rejections[at] = _placeless(records[at], paths, index=at)
        else:
            rows.append(cast("tuple[str | int | float, ...]", row))
    return rows, rejections


def _placeless(record: bytes, paths: Sequence[str], *, index: int) -> Rejection:
    """Why there is no value of one of these fields."""
    found = {path: field_reader(path).of_each([record])[0] for path in paths}
    path = next(path for path in paths if found[path] in {None, (None,)})
    try:
        msgspec.json.decode(record)
    except UNDECODABLE:
        return Rejection(index, "malformed_json", f"{path}: expected a text or number in JSON")
    reason = "wrong_type" if found[path] is None else "missing_field"
    return Rejection(index, reason, f"{path}: expected text or a number, which tells new records from old ones")
