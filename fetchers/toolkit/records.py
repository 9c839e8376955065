"""Records as slices of the bytes that came in, never parsed and written again.

Parsing and dumping would lose duplicate keys, digits and escapes before any verdict is passed on a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any, Self, overload

import msgspec

from fetchers.sdk.errors import Fatal, Retriable
from fetchers.sdk.http import Records
from fetchers.sdk.page import Rejection
from fetchers.toolkit import slicing
from fetchers.toolkit.csv_rows import csv_rows
from fetchers.toolkit.fields import UNDECODABLE, FieldValue, field_reader
from fetchers.toolkit.watermark import Watermark, compare, is_after

_PATHS_MAX = 256


class RecordSlices(Records):
    """Raw records of one answer, in its order."""

    def __init__(
        self, records: Sequence[bytes], *, highest: Watermark = None, rejections: tuple[Rejection, ...] = ()
    ) -> None:
        self._records = records
        self._highest = highest
        self.rejections = rejections
        """Records that could not be cut as they should be; for the page that they are handed over with."""

    @property
    def highest(self) -> Watermark:
        """Greatest value of the ``newer_than`` field among all elements and the given value."""
        return self._highest

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        """The bytes of one record, or of several."""
        return self._records[index]

    def __len__(self) -> int:
        """How many records there are."""
        return len(self._records)

    def __iter__(self) -> Iterator[bytes]:
        """Records in the order of the answer."""
        return iter(self._records)

    @classmethod
    def of_json(
        cls,
        body: bytes,
        path: str = "",
        *,
        newer_than: tuple[str, Watermark] | None = None,
        is_path_optional: bool = False,
    ) -> Self:
        """Elements of the array at ``path``; a single object there is one record, null none.

        Raises Retriable where the body is no JSON, Fatal where ``path`` leads nowhere (it is no records where
        ``is_path_optional``).
        """
        found = _elements_at_once(body, path)
        if found is not None:
            return cls._newer(found, newer_than)
        array = _at(body, path)
        if array is None:
            if is_path_optional:
                return cls((), highest=newer_than[1] if newer_than else None)
            message = f"the answer has nothing at the path {path!r}"
            raise Fatal(message)
        return cls._newer(_elements(array, path), newer_than)

    @classmethod
    def of_ndjson(cls, body: bytes, *, newer_than: tuple[str, Watermark] | None = None) -> Self:
        r"""Lines, split on ``\n`` only; blank lines are no records."""
        parts = body.removeprefix(slicing.BYTE_ORDER_MARK).split(b"\n")
        lines = [line for line in (part.strip(slicing.BLANK) for part in parts) if line]
        return cls._newer(lines, newer_than)

    @classmethod
    def of_csv(cls, body: bytes) -> Self:
        """Rows as JSON objects of text values, named by the first row (RFC 4180).

        A row that cannot be one comes as its own bytes, with a rejection. Raises Retriable where a quoted field has no
        end, Fatal where the first row names no columns.
        """
        rows = csv_rows(body)
        return cls(rows.records, rejections=rows.rejections)

    @classmethod
    def _newer(cls, records: Sequence[bytes], newer_than: tuple[str, Watermark] | None) -> Self:
        if newer_than is None:
            return cls(records)
        path, mark = newer_than
        highest: Watermark = mark
        kept = []
        for record, value in zip(records, field_values(records, path), strict=True):
            if is_after(value, mark):
                kept.append(record)
                if highest is None or compare(value, highest) > 0:
                    highest = value
        return cls(kept, highest=highest)


def field_values(records: Sequence[bytes], path: str) -> list[str | int | float]:
    """The value of a field in each record. Raises Fatal, with the record's position, where there is none.

    Without the value nobody can tell whether the record is new; passing it on would repeat it with every poll.
    """
    values: list[str | int | float] = []
    for position, found in enumerate(field_reader(path).of_each(records)):
        value: FieldValue = found[0] if found else None
        if value is None:
            message = f"record {position} of the answer has no text or number in its field {path!r}"
            raise Fatal(message)
        values.append(value)
    return values


def _elements_at_once(body: bytes, path: str) -> list[bytes] | None:
    """The elements of the array at ``path``; None for anything but a plain answer, which is looked at step by step.

    One scan of the body instead of one for each step of the path.
    """
    try:
        found: Any = _array_decoder(path).decode(body)
        for _ in path.split(".") if path else ():
            found = found.inner
    except (*UNDECODABLE, ValueError):  # such as the name of a field with a quote in it
        return None
    return list(map(bytes, found))


@lru_cache(_PATHS_MAX)
def _array_decoder(path: str) -> msgspec.json.Decoder[Any]:
    """Reads objects around an array of raw elements, each object with the one member that leads on."""
    steps = reversed(path.split(".")) if path else ()
    shape = reduce(_object_around, steps, list[msgspec.Raw])
    return msgspec.json.Decoder(shape)


def _object_around(inner: Any, name: str) -> Any:
    return msgspec.defstruct("Answer", [("inner", inner, msgspec.field(name=name))])


def _at(body: bytes, path: str) -> bytes | msgspec.Raw | None:
    """The JSON value at ``path``; None where there is nothing."""
    value: bytes | msgspec.Raw = body.removeprefix(slicing.BYTE_ORDER_MARK)
    for step in path.split(".") if path else ():
        try:
            members: Mapping[str, bytes | msgspec.Raw] = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError as error:
            message = f"the answer has no object above {step!r} of the path {path!r}"
            raise Fatal(message) from error
        except UNDECODABLE:
            members = _cut_members(bytes(value))
        if step not in members:
            return None
        value = members[step]
    return value


def _elements(array: bytes | msgspec.Raw, path: str) -> list[bytes]:
    try:
        value = msgspec.json.decode(array, type=list[msgspec.Raw] | dict[str, msgspec.Raw] | None)
    except msgspec.ValidationError as error:
        message = f"the answer has neither array nor object at the path {path!r}"
        raise Fatal(message) from error
    except UNDECODABLE:
        return _cut_elements(bytes(array))
    if value is None:
        return []
    if isinstance(value, dict):
        return [bytes(array).strip(slicing.BLANK)]
    return list(map(bytes, value))


def _cut_members(text: bytes) -> dict[str, bytes]:
    """Members of an object in which something is no JSON. Raises Retriable where it is cut or no object at all."""
    try:
        return slicing.members(text.strip(slicing.BLANK))
    except slicing.UncuttableError as error:
        message = f"the answer is no JSON: {error}"
        raise Retriable(message) from error


def _cut_elements(text: bytes) -> list[bytes]:
    """Elements of an array in which something is no JSON; the conversion finds out which. Raises Retriable."""
    text = text.strip(slicing.BLANK)
    try:
        if text.startswith(b"{"):
            slicing.members(text)
            return [text]
        return slicing.elements(text)
    except slicing.UncuttableError as error:
        message = f"the answer is no JSON: {error}"
        raise Retriable(message) from error
