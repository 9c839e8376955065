"""Libraries that say the same again and again are heard once in a while."""

from __future__ import annotations

import logging

from metrics.log_repeats import KINDS_MAX, RepeatFilter


def record(message: str, *values: object, at_seconds: float, name: str = "client.conn") -> logging.LogRecord:
    """A log record of a library."""
    made = logging.LogRecord(name, logging.ERROR, "", 0, message, values, None)
    made.created = at_seconds
    return made


def test_a_repeated_message_is_told_once_in_a_while() -> None:
    """Held back whatever its values; the next that is told says how many were."""
    repeats = RepeatFilter(("client",), seconds=30.0)
    assert repeats.filter(record("no node %d", 1, at_seconds=0.0))
    assert not repeats.filter(record("no node %d", 2, at_seconds=1.0))
    assert not repeats.filter(record("no node %d", 3, at_seconds=29.0))
    later = record("no node %d", 4, at_seconds=31.0)
    assert repeats.filter(later)
    assert later.getMessage() == "no node 4 (and 2 more like it)"
    again = record("no node %d", 5, at_seconds=62.0)
    assert repeats.filter(again)
    assert again.getMessage() == "no node 5"


def test_other_messages_and_loggers_are_left_alone() -> None:
    """Another text, another level and our own loggers are all told."""
    repeats = RepeatFilter(("client",))
    assert repeats.filter(record("lost", at_seconds=0.0))
    assert repeats.filter(record("found", at_seconds=0.0))
    warning = record("lost", at_seconds=0.0)
    warning.levelno = logging.WARNING
    assert repeats.filter(warning)
    for _ in range(2):
        assert repeats.filter(record("lost", at_seconds=0.0, name="headrace.task"))
        assert repeats.filter(record("lost", at_seconds=0.0, name="clients"))


def test_what_is_remembered_is_bounded() -> None:
    """Messages with values written into them do not pile up."""
    repeats = RepeatFilter(("client",))
    for number in range(3 * KINDS_MAX):
        assert repeats.filter(record(f"lost {number}", at_seconds=0.0))
    assert len(repeats._kinds) <= KINDS_MAX
