"""Versions of plugins: there is one of each, and a config may demand a range of them (KIP-891).

A bare version means exactly that one; ranges are Maven's: ``[4.0,5.0)``, ``(,5.0]``, ``[4.1.1]``.
"""

from __future__ import annotations

import re
from itertools import zip_longest

CONNECT_VERSION = "4.1.1"
"""Of the Kafka Connect that is imitated."""

_RANGE = re.compile(r"([\[(])([^,\[\]()]*)(?:(,)([^,\[\]()]*))?([\])])")


class VersionSyntaxError(ValueError):
    """A text that is neither a version nor a range."""


def is_in_range(version: str, wanted: str) -> bool:
    """Whether ``version`` is what ``wanted`` allows; raises ``VersionSyntaxError``."""
    text = wanted.strip()
    if text in {"", "latest"}:
        return True
    match = _RANGE.fullmatch(text)
    if match is None:
        if any(letter in text for letter in "[](),"):
            raise VersionSyntaxError(wanted)
        return _order(version, text) == 0
    opening, low, comma, high, closing = match.groups()
    if not comma:
        if (opening, closing) != ("[", "]") or not low.strip():
            raise VersionSyntaxError(wanted)
        return _order(version, low.strip()) == 0
    return _is_above(version, low.strip(), has_equal=opening == "[") and _is_above(
        version, high.strip(), has_equal=closing == "]", sign=-1
    )


def range_text(wanted: str) -> str:
    """How messages write a range; a bare version is a range of one."""
    text = wanted.strip()
    return text if text[:1] in {"[", "("} else f"[{text},{text}]"


def _is_above(version: str, bound: str, *, has_equal: bool, sign: int = 1) -> bool:
    order = sign * _order(version, bound) if bound else 1
    return order > 0 or (has_equal and order == 0)


def _order(one: str, other: str) -> int:
    """Below 0, 0, above 0: numbers as numbers, all else as text."""
    for left, right in zip_longest(_parts(one), _parts(other), fillvalue=(0, 0, "")):
        if left != right:
            return 1 if left > right else -1
    return 0


def _parts(version: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"[.\-+_]", version)
    return [(0, int(part), "") if part.isdecimal() else (-1, 0, part) for part in parts]
