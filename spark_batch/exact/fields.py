"""Single fields of a parsed payload by path: de-duplication hash, untyped keys and timestamps, exactly.

Writes the same bytes as the columns of `payload_fields` do for plain values, and has an answer for all others.
"""

from __future__ import annotations

import decimal
import hashlib
from typing import TYPE_CHECKING

from spark_batch.avro_types import JsonValue, Temporal
from spark_batch.exact.instants import InstantError, parse_instant
from spark_batch.literals.numbers import DIGITS_MAX, exact_number
from spark_batch.literals.reading import Number, RejectedPayload
from spark_batch.literals.writing import MISSING, json_text, plain_number

if TYPE_CHECKING:
    from collections.abc import Iterable


def payload_hash(payload: bytes) -> bytes:
    """16 bytes over the whole payload."""
    return hashlib.md5(b"P" + payload, usedforsecurity=False).digest()


def dedupe_hash(paths: Iterable[str], value: JsonValue, payload: bytes) -> bytes:
    """16 bytes over kinds and values of the fields; over the whole payload where none of them is there."""
    found = [at_path(value, path) for path in paths]
    if all(item is MISSING for item in found):
        return payload_hash(payload)
    text = "F" + "".join(_encoded(item) for item in found)
    return hashlib.md5(text.encode(), usedforsecurity=False).digest()


def at_path(value: JsonValue, path: str) -> JsonValue:
    """The value at a dotted path of object keys, or MISSING."""
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return MISSING
        value = value[name]
    return value


def loose_key(name: str, value: JsonValue) -> str | None:
    """Text of a top-level field: itself where it is text, JSON otherwise, None where it is missing or null."""
    found = at_path_of_one(value, name)
    if found is MISSING or found is None:
        return None
    return found if isinstance(found, str) and not isinstance(found, Number) else json_text(found)


def at_path_of_one(value: JsonValue, name: str) -> JsonValue:
    """A top-level field by its whole name (dots and all), or MISSING."""
    return value.get(name, MISSING) if isinstance(value, dict) else MISSING


def loose_timestamp(path: str, value: JsonValue) -> int | None:
    """Milliseconds at a path, from a number or ISO 8601 text; raises RejectedPayload."""
    found = at_path(value, path)
    if found is MISSING or found is None:
        return None
    text = found if isinstance(found, str) else "?"
    try:
        return parse_instant(Temporal.TIMESTAMP_MILLIS, text, is_number=isinstance(found, Number))
    except InstantError as error:
        raise RejectedPayload(error.reason, f"{path}: {error}") from None


def _encoded(value: JsonValue) -> str:
    if value is MISSING:
        return "m"
    if value is None:
        return "n"
    if isinstance(value, bool):
        return f"b{'true' if value else 'false'};"
    if isinstance(value, Number):
        plain = plain_number(value)
        return f"i{plain};" if plain.lstrip("-").isdigit() else f"x{_canonical(value)};"
    if isinstance(value, str):
        return f"s{len(value.encode())}:{value}"
    return f"x{_canonical(value)};"


def _canonical(value: JsonValue) -> str:
    """Equal for equal values: keys in order, numbers by value."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json_text(str(name))}:{_canonical(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(_canonical, value))}]"
    number = exact_number(value) if isinstance(value, Number) else None
    if number is not None:
        return str(number.normalize(decimal.Context(prec=DIGITS_MAX)))
    return json_text(value)
