"""ConfigDef's types: which texts they take, and the text form of what they took (``ConfigDef.parseType``)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

from fetchers.sdk.config import HIDDEN

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?[dDfF]?|[+-]?(NaN|Infinity)", re.ASCII)
_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}
_PLAIN_FROM, _PLAIN_TO = 1e-3, 1e7
"""Between these, Java writes a double without an exponent."""


@dataclass(frozen=True, slots=True)
class TypedText:
    """A text as its type writes it, or why the type does not take it."""

    text: str | None
    reason: str | None = None


def typed(kind: str, text: str) -> TypedText:
    """Read a key's text; ``kind`` is ConfigDef's name of the type. CLASS is taken as it is: it is looked up later."""
    trimmed = text.strip()
    if kind == "PASSWORD":
        return TypedText(HIDDEN)
    if kind == "BOOLEAN":
        return _boolean(trimmed)
    if kind in _BITS:
        return _whole(kind, trimmed)
    if kind == "DOUBLE":
        return _decimal(trimmed)
    if kind == "LIST":
        return TypedText(",".join(item.strip() for item in trimmed.split(",")))
    return TypedText(trimmed)


def _boolean(text: str) -> TypedText:
    word = text.lower()
    if word in {"true", "false"}:
        return TypedText(word)
    return TypedText(None, "Expected value to be either true or false")


def _whole(kind: str, text: str) -> TypedText:
    limit = 1 << (_BITS[kind] - 1)
    # Longer ones are out of every range, and slow to read.
    if _WHOLE.fullmatch(text) and len(text.lstrip("+-0")) <= len(str(limit)) and -limit <= int(text) < limit:
        return TypedText(str(int(text)))
    return TypedText(None, f"Not a number of type {kind}")


def _decimal(text: str) -> TypedText:
    if not _DECIMAL.fullmatch(text):
        return TypedText(None, "Not a number of type DOUBLE")
    number = float(text.rstrip("dDfF") if not text.endswith(("NaN", "Infinity")) else text)
    return TypedText(java_double(number))


def java_double(number: float) -> str:
    """As ``Double.toString`` writes it: ``1.0``, ``1.0E10``."""
    if number != number or number in {float("inf"), float("-inf")}:  # noqa: PLR0124 - what NaN is known by
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(number)]
    if number == 0 or _PLAIN_FROM <= abs(number) < _PLAIN_TO:
        plain = f"{number:f}" if "e" in repr(number) else repr(number)
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{len(digits) - 1 + int(exponent)}"
