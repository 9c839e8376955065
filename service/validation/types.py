"""ConfigDef's types: which texts they take, and the text form of what they took (``ConfigDef.parseType``)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fetchers.sdk.config import HIDDEN
from service.domain.java_numbers import java_double

_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?[dDfF]?|[+-]?(NaN|Infinity)", re.ASCII)
_BITS = {"SHORT": 16, "INT": 32, "LONG": 64}


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
