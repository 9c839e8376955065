"""Paths of fields in Connect's second syntax: dots lead into records, back-ticks go around names that have dots."""

from __future__ import annotations

import re

_NAME = re.compile(r"`(?P<quoted>(?:[^`\\]|\\.)+?)`(?=\.|\Z)|(?P<plain>[^.`][^.]*)", re.DOTALL)


class FieldPathError(ValueError):
    """The text is no path."""


def field_path(text: str) -> tuple[str, ...]:
    """The names of a path; raises FieldPathError."""
    names = []
    at = 0
    while True:
        found = _NAME.match(text, at)
        if found is None:
            raise FieldPathError(f"no name at {at}")
        quoted = found["quoted"]
        names.append(found["plain"] if quoted is None else quoted.replace("\\`", "`"))
        at = found.end()
        if at == len(text):
            return tuple(names)
        if text[at] != ".":
            raise FieldPathError(f"expected a dot at {at}")
        at += 1
