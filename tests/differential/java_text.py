"""What Java prints of a JSON value without a schema, from the value's JSON: hash maps in the order of their hashes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

_CAPACITY = 16


def java_text(value: Any, *, copied_of: int | None = None) -> str:
    """A value as ``Object.toString`` has it; numbers with few digits only.

    ``copied_of``: the outermost object is a copy of one with so many fields, to which the others were added.
    """
    if isinstance(value, dict):
        order = _order(value) if copied_of is None else _copy_order(list(value), copied_of)
        return f"{{{', '.join(f'{name}={java_text(value[name])}' for name in order)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(java_text, value))}]"
    return value if isinstance(value, str) else json.dumps(value)


def _order(names: Iterable[str], capacity: int = _CAPACITY) -> list[str]:
    """As a hash map of this capacity to begin with is walked through: by bucket, in each as they came."""
    listed = list(names)
    while len(listed) > capacity * 0.75:
        capacity *= 2
    return sorted(listed, key=lambda name: _spread(name) & (capacity - 1))


def _copy_order(names: list[str], count: int) -> list[str]:
    """Of a copy, whose capacity is the smallest that holds what was copied."""
    capacity = 1
    while capacity < count / 0.75 + 1.0:
        capacity *= 2
    return _order([*_order(names[:count]), *names[count:]], capacity if count else _CAPACITY)


def _spread(name: str) -> int:
    code = 0
    for letter in name:
        code = (31 * code + ord(letter)) & 0xFFFFFFFF
    return code ^ (code >> 16)
