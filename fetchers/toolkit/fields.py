"""Reads a few fields of many records without building the records.

One msgspec call decodes a whole array into a struct that has only the wanted fields; everything else is skipped
at the speed of the scanner.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import msgspec

from fetchers.sdk.errors import Fatal
from fetchers.toolkit import slicing

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What the strict parser raises for a text that it refuses: no JSON, no UTF-8, or nested too deeply for it."""
_READERS_MAX = 256

FieldValue: TypeAlias = "str | int | float | None"
"""Value of a field; None where it is missing or null."""


class FieldReader:
    """Reads the fields at ``paths`` (dots between names) of JSON objects."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        self._steps = [_attributes(path) for path in self.paths]
        self._one = msgspec.json.Decoder(_shape([path.split(".") for path in self.paths], str | int | float | None))

    def of_each(self, records: Iterable[bytes]) -> list[tuple[FieldValue, ...] | None]:
        """The fields of each record; None for one that is no object or has something else in such a field."""
        return [self._of_one(record) for record in records]

    def _of_one(self, record: bytes) -> tuple[FieldValue, ...] | None:
        try:
            return self._values(self._one.decode(record))
        except UNDECODABLE:
            pass  # perhaps only a field that nobody asks for is not as it should be
        try:
            return tuple(_value(slicing.at(record, path)) for path in self.paths)
        except UNDECODABLE:
            return None

    def _values(self, item: Any) -> tuple[FieldValue, ...]:
        return tuple(_follow(item, names) for names in self._steps)


@lru_cache(maxsize=_READERS_MAX)
def field_reader(*paths: str) -> FieldReader:
    """The reader of these paths, made once."""
    return FieldReader(paths)


def raw_field(text: bytes, path: str) -> bytes | None:
    """The value at ``path`` (dots between names) of one JSON object as it is written there; None where it has none."""
    text = text.removeprefix(slicing.BYTE_ORDER_MARK).strip(slicing.BLANK)
    try:
        found = _follow(_raw_decoder(path).decode(text), _attributes(path))
    except UNDECODABLE:
        return slicing.at(text, path)  # perhaps only a field that nobody asks for is not as it should be
    return None if found is None else bytes(found)


def text_at(text: bytes, path: str) -> str | None:
    """The value at ``path`` of one JSON object as text: numbers, ``true`` and the like as they are written.

    None where there is none, or null.
    """
    raw = raw_field(text, path)
    if raw is None or raw == b"null":
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except UNDECODABLE:
        return raw.decode("utf-8", "replace")


@lru_cache(maxsize=_READERS_MAX)
def _raw_decoder(path: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_shape([path.split(".")], msgspec.Raw))


def _follow(item: Any, attributes: Sequence[str]) -> Any:
    for name in attributes:
        if item is None:
            break
        item = getattr(item, name)
    return item


def _value(text: bytes | None) -> FieldValue:
    return None if text is None else msgspec.json.decode(text, type=str | int | float | None)


def _attributes(path: str) -> tuple[str, ...]:
    return tuple(f"f_{name.encode().hex()}" for name in path.split("."))


def _shape(paths: Sequence[Sequence[str]], leaf: Any) -> Any:
    """A struct class with these fields, each of type ``leaf``. Raises Fatal where a path is both value and object."""
    children: dict[str, list[Sequence[str]]] = {}
    for path in paths:
        children.setdefault(path[0], []).append(path[1:])
    fields: list[tuple[str, Any, None]] = []
    names: dict[str, str] = {}
    for name, rests in children.items():
        deeper = [rest for rest in rests if rest]
        if deeper and len(deeper) != len(rests):
            message = f"field {name!r} is asked for both as a value and as an object"
            raise Fatal(message)
        attribute = f"f_{name.encode().hex()}"
        names[attribute] = name
        fields.append((attribute, _shape(deeper, leaf) | None if deeper else leaf, None))
    return msgspec.defstruct("Fields", fields, rename=names)
