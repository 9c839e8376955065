"""The oracle's word on texts that are taken for values: Python's `strptime` and a table of its own."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field, replace
from typing import Any

from tests.spark.oracle_json import NUMBER, Literal, NotValid

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Taking:
    """Which texts a field takes for its value, and the fields (dotted Avro names) in which that was done."""

    words: frozenset[str] = frozenset()
    default: frozenset[str] = frozenset()
    name: str = ""
    path: str = ""
    """The field, and what stands around a value inside of it."""
    pattern: str | None = None
    zone: str | None = None
    done: set[str] = field(default_factory=set)

    def of(self, field: dict[str, Any]) -> Taking:
        """For a field of a record at this place."""
        words = field.get("json.coerce", self.default)
        chosen = frozenset(_WORDS if words is True else () if words is False else words)
        name = f"{self.path}.{field['name']}".lstrip(".")
        return replace(
            self, words=chosen, name=name, path=name, pattern=field.get("json.pattern"), zone=field.get("json.zone")
        )


_WORDS = ("numbers", "instants", "booleans", "enums", "empty")


def taken(schema: Any, value: Any, taking: Taking) -> Any:
    """The payload with values in place of the texts that are taken for them; all else as it is."""
    is_nullable = isinstance(schema, list) or schema == "null"
    if isinstance(schema, list):
        schema = next(branch for branch in schema if branch != "null")
    if isinstance(schema, str):
        schema = {"type": schema}
    kind = schema["type"]
    if kind == "record" and isinstance(value, dict):
        fields = {field.get("json.name", field["name"]): field for field in schema["fields"]}
        return {
            key: taken(fields[key]["type"], item, taking.of(fields[key])) if key in fields else item
            for key, item in value.items()
        }
    if kind == "array" and isinstance(value, list):
        return [taken(schema["items"], item, replace(taking, path=f"{taking.path}[]")) for item in value]
    if kind == "map" and isinstance(value, dict):
        inside = replace(taking, path=f"{taking.path}{{}}")
        return {key: taken(schema["values"], item, inside) for key, item in value.items()}
    if not isinstance(value, str) or kind in {"record", "array", "map"}:
        return value
    found = _taken(schema, value, taking, is_nullable=is_nullable)
    if found is not value:
        taking.done.add(taking.name)
    return found


def _taken(  # noqa: PLR0911 - one line a type
    schema: dict[str, Any], text: str, taking: Taking, *, is_nullable: bool
) -> Any:
    kind, logical = schema["type"], schema.get("logicalType")
    is_plain = logical is None
    if not text and is_nullable and "empty" in taking.words:
        return text if kind == "null" or (is_plain and kind in {"string", "bytes"}) else None
    if logical not in {None, "decimal", "uuid"}:
        if taking.pattern is not None:
            return Literal(str(_by_pattern(logical, text, taking)))
        is_whole = re.fullmatch("-?(0|[1-9][0-9]*)", text) is not None
        return Literal(text) if "instants" in taking.words and is_whole else text
    if logical == "decimal" or kind in {"int", "long", "float", "double"}:
        is_number = NUMBER.fullmatch(text) is not None
        return Literal(text) if "numbers" in taking.words and is_number else text
    if kind == "boolean" and "booleans" in taking.words and text.isascii():
        return {"TRUE": True, "FALSE": False}.get(text.upper(), text)
    if kind == "enum" and "enums" in taking.words and text not in schema["symbols"] and text.isascii():
        meant = [symbol for symbol in schema["symbols"] if symbol.upper() == text.upper()]
        return meant[0] if len(meant) == 1 else text
    return text


_STRPTIME = {"y": "%Y", "M": "%m", "d": "%d", "H": "%H", "m": "%M", "s": "%S", "X": "%z"}


def _by_pattern(logical: str, text: str, taking: Taking) -> int:
    """Python's `strptime`, which is lenient, and what it found written by the pattern again."""
    assert taking.pattern is not None
    tokens = re.findall(r"y+|M+|d+|H+|m+|s+|S+|X+|'[^']*'|.", taking.pattern.replace("u", "y"))
    demand(text.isascii())
    fraction = next((len(token) for token in tokens if token[0] == "S"), 0)
    form = "".join(
        "%f" if token[0] == "S" else _STRPTIME.get(token[0], token.strip("'").replace("%", "%%")) for token in tokens
    )
    try:
        found = dt.datetime.strptime(text, form)  # noqa: DTZ007 - the zone is asked below
    except ValueError as error:
        raise NotValid("pattern") from error
    demand(any(_written_by(tokens, found, text, is_padded=padded) for padded in _PADDINGS))
    zone = dt.UTC if taking.zone in {None, "Z"} else dt.datetime.strptime(str(taking.zone), "%z").tzinfo
    if found.tzinfo is None:
        found = found.replace(tzinfo=zone)
    if logical.startswith("time-"):
        found = found.replace(year=1970, month=1, day=1)
    per_second = 1_000 if logical.endswith("millis") else 1_000_000
    micros = (found - _EPOCH) // dt.timedelta(microseconds=1)
    if logical == "date":
        return micros // 86_400_000_000
    demand(fraction <= 6 and micros * per_second % 1_000_000 == 0)
    return micros * per_second // 1_000_000


_PADDINGS = [(month, day, hour) for month in (True, False) for day in (True, False) for hour in (True, False)]


def _written_by(tokens: list[str], found: dt.datetime, text: str, *, is_padded: tuple[bool, bool, bool]) -> bool:
    padded = dict(zip("MdH", is_padded, strict=True))
    parts = {"y": found.year, "M": found.month, "d": found.day, "H": found.hour, "m": found.minute, "s": found.second}
    written = ""
    for token in tokens:
        letter = token[0]
        if letter == "S":
            written += f"{found.microsecond:06}"[: len(token)]
        elif letter == "X":
            offset = found.strftime("%z")
            written += "Z" if text.endswith("Z") else f"{offset[:3]}:{offset[3:]}" if len(token) == 3 else offset
        elif letter in parts:
            width = len(token) if len(token) > 1 else 2 if padded[letter] else 1
            written += f"{parts[letter]:0{width}}"
        else:
            written += token.strip("'")
    return written == text


def demand(is_met: bool) -> None:  # noqa: FBT001 - reads as the sentence it is
    """Raise NotValid unless it is met."""
    if not is_met:
        raise NotValid
