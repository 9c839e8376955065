"""Whether a text is a regular expression of Java's, as far as that can be told without Java."""

from __future__ import annotations

import re

_JAVA_ONLY = (
    (re.compile(r"\\Q.*?(?:\\E|$)", re.DOTALL), "x"),
    (re.compile(r"\\[pP](?:\{\^?\w+(?:=\w+)?\}|[A-Z])"), r"\\w"),
    (re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>"), r"(?P<\1>"),
    (re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>"), r"(?P=\1)"),
    (re.compile(r"\\[hHRXGzeE]"), "x"),
    (re.compile(r"&&\["), "["),
    (re.compile(r"\(\?([idmsux]+)\)"), ""),
)
"""What Java writes differently, and something that Python takes in its place."""


def regex_doubt(pattern: str) -> str | None:
    """Why the pattern is none; None where it is one (or where only Java could tell)."""
    translated = pattern
    for java, python in _JAVA_ONLY:
        translated = java.sub(python, translated)
    try:
        re.compile(translated)
    except (re.error, RecursionError, OverflowError) as error:
        return str(error)
    return None
