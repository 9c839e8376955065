"""Parsed JSON as text again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_batch.literals.numbers import plain_digits
from spark_batch.literals.reading import Number

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_batch.avro_types import JsonValue

MISSING = object()
"""Stands where a path leads to nothing."""
_PLAIN_DIGITS_MAX = 19
"""As many as the longest integer of 64 bits has."""
_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)}
_ESCAPES |= {ord(raw): f"\\{short}" for raw, short in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)}


def json_text(value: JsonValue, *, number: Callable[[str], str] | None = None) -> str:
    """A parsed value as JSON text again, escaped as Jackson escapes; numbers through `number`, plain by default."""
    if isinstance(value, Number):
        return (number or plain_number)(value)
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPES)}"'
    if isinstance(value, dict):
        entries = (f"{json_text(str(name))}:{json_text(item, number=number)}" for name, item in value.items())
        return f"{{{','.join(entries)}}}"
    if isinstance(value, list):
        return f"[{','.join(json_text(item, number=number) for item in value)}]"
    if value is None or value is MISSING:
        return "null"
    return "true" if value else "false"


def plain_number(literal: str) -> str:
    """Digits alone where the number is an integer of moderate size, otherwise as it is written."""
    return plain_digits(literal, digits_max=_PLAIN_DIGITS_MAX) or literal
