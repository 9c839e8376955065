"""Names of topics: whether they match, and what a router makes of them."""

from __future__ import annotations

import re

from spark_batch.transforms.java_pattern import JavaPattern, JavaPatternError, java_pattern
from spark_batch.transforms.kinds import RegexRouter

_GROUP_NAME = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}")


def is_match(pattern: str, topic: str) -> bool:
    """Whether the whole name matches; raises JavaPatternError."""
    return java_pattern(pattern).fullmatch(topic) is not None


def routed(router: RegexRouter, topic: str) -> str:
    """The topic that the router gives; raises JavaPatternError.

    As in Java: where the whole name matches, what is *found* first in it is replaced. The two can differ: `a|ab`
    matches all of `ab`, and finds `a`.
    """
    pattern = java_pattern(router.regex)
    parts = _parts(router.replacement, pattern)
    if pattern.fullmatch(topic) is None:
        return topic
    found = pattern.search(topic)
    if found is None:
        return topic
    replacement = "".join(part if isinstance(part, str) else found[part[0]] or "" for part in parts)
    return topic[: found.start()] + replacement + topic[found.end() :]


def _parts(replacement: str, pattern: JavaPattern) -> list[str | tuple[int | str]]:
    """Texts, and groups in brackets of their own; `$12` is the twelfth group only where there are so many."""
    parts: list[str | tuple[int | str]] = []
    at = 0
    while at < len(replacement):
        letter = replacement[at]
        if letter == "$":
            group, at = _group(replacement, at + 1, pattern)
            parts.append((group,))
            continue
        at += letter == "\\"
        if at >= len(replacement):
            raise JavaPatternError("the replacement ends with a backslash")
        parts.append(replacement[at])
        at += 1
    return parts


def _group(replacement: str, at: int, pattern: JavaPattern) -> tuple[int | str, int]:
    named = _GROUP_NAME.match(replacement, at)
    if named:
        if named[1] not in pattern.groupindex:
            raise JavaPatternError(f"the replacement names a group {named[1]} that the regex does not have")
        return named[1], named.end()
    if not replacement[at : at + 1].isdecimal():
        raise JavaPatternError("in the replacement a $ must be followed by a group, or have a backslash before it")
    number = int(replacement[at])
    if number > pattern.groups:
        raise JavaPatternError(f"the replacement names group {number}, the regex has {pattern.groups}")
    at += 1
    while replacement[at : at + 1].isdecimal() and 10 * number + int(replacement[at]) <= pattern.groups:
        number = 10 * number + int(replacement[at])
        at += 1
    return number, at
