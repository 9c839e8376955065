"""Include and exclude lists of regular expressions over names, as Debezium has for tables and columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import re2

from fetchers.sdk import Finding


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


def _compiled(patterns: Sequence[str]) -> Any:
    if not patterns:
        return None
    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False
    for pattern in patterns:
        try:
            re2.compile(pattern, options)
        except re2.error as error:
            message = f"{pattern} is no regular expression of RE2: {error}"
            raise ValueError(message) from error
    return re2.compile("|".join(f"(?:{pattern})" for pattern in patterns), options)
