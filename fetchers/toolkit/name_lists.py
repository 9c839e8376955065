"""Names as Debezium has them: lists of expressions for tables and columns, and names made fit for Avro."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import re2

from fetchers.sdk import Finding, Severity

Adjustment: TypeAlias = Literal["none", "avro", "avro_unicode"]


class NameFilter:
    """Include and exclude lists of regular expressions, each for a whole name, in any case, in linear time (RE2)."""

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        """Nothing included: all are. Raises ``ValueError`` with the expression that is none."""
        self._include = _compiled(include)
        self._exclude = _compiled(exclude)

    def takes(self, name: str) -> bool:
        """Whether the name, such as ``schema.table`` or ``schema.table.column``, is wanted."""
        if self._include is not None and self._include.fullmatch(name) is None:
            return False
        return self._exclude is None or self._exclude.fullmatch(name) is None


def list_findings(lists: Mapping[str, Sequence[str]]) -> list[Finding]:
    """What is wrong with the lists of a config by their keys, two by two: ``x.include.list``, ``x.exclude.list``."""
    found = []
    for key, patterns in lists.items():
        try:
            _compiled(patterns)
        except ValueError as error:
            found.append(Finding(key, ",".join(patterns), str(error)))
        other = key.replace(".exclude.", ".include.")
        if other != key and patterns and lists.get(other):
            found.append(Finding(key, ",".join(patterns), f"It cannot be had together with {other}."))
    return found


def unmatched_findings(lists: Mapping[str, Sequence[str]], names: Collection[str]) -> list[Finding]:
    """Warnings for each expression, by the key of its list, that no name is: what it is to hide would be shown.

    ``names``: those of all columns, as ``schema.table.column``; the lists are right by themselves.
    """
    told = "It is the whole name of no column: expected schema.table.column, or an expression for all of that."
    return [
        Finding(key, pattern, told, Severity.WARNING)
        for key, patterns in lists.items()
        for pattern in patterns
        if names and not any(map(NameFilter([pattern]).takes, names))
    ]


def _compiled(patterns: Sequence[str]) -> Any:
    return _compiled_once(tuple(patterns))


@lru_cache(maxsize=64)
def _compiled_once(patterns: tuple[str, ...]) -> Any:
    """A config's lists are asked for of every table of a server, again and again."""
    if not patterns:
        return None
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    for pattern in patterns:
        try:
            re2.compile(pattern, options)
        except re2.error as error:
            message = f"{pattern} is no regular expression of RE2: {error_text(error)}"
            raise ValueError(message) from error
    return re2.compile("|".join(f"(?:{pattern})" for pattern in patterns), options)


def error_text(error: Exception) -> str:
    """What RE2 says is wrong, which its binding gives as bytes."""
    told = error.args[0] if error.args else ""
    return told.decode(errors="replace") if isinstance(told, bytes) else str(told)


def adjusted(name: str, mode: Adjustment) -> str:
    """A name by ``schema.name.adjustment.mode``: ``avro`` underscores, ``avro_unicode`` ``_uXXXX`` for what is odd."""
    if mode == "none":
        return name
    if mode == "avro":
        made = re.sub(r"[^A-Za-z0-9_.]", "_", name)
    else:
        made = re.sub(r"[^A-Za-z0-9.]", lambda odd: f"_u{ord(odd[0]):04x}", name)
    return ".".join(f"_{part}" if part[:1].isdigit() else part for part in made.split("."))
