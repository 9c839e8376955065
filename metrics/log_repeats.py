"""Keeps libraries from filling the log: while a broker is away its client says so dozens of times a second."""

from __future__ import annotations

import logging
from dataclasses import dataclass

REPEAT_SECONDS = 30.0
KINDS_MAX = 500
"""Kinds of message that are remembered; libraries that write values into their messages must not make that grow."""


@dataclass(slots=True)
class _Kind:
    """One message of one logger, whatever values are put into it."""

    told_at_seconds: float
    held_back: int = 0


class RepeatFilter(logging.Filter):
    """Lets each kind of message of some loggers through once in a while, and says how many were held back since."""

    def __init__(self, loggers: tuple[str, ...], *, seconds: float = REPEAT_SECONDS) -> None:
        """``loggers``: names; their children are meant too."""
        super().__init__()
        self._loggers = loggers
        self._seconds = seconds
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """False for what was told a moment ago."""
        if not self._is_meant(record.name):
            return True
        key = (record.name, record.levelno, str(record.msg))
        kind = self._kinds.get(key)
        if kind is not None and record.created - kind.told_at_seconds < self._seconds:
            kind.held_back += 1
            return False
        if kind is not None and kind.held_back:
            record.msg, record.args = f"{record.getMessage()} (and {kind.held_back} more like it)", ()
        elif len(self._kinds) >= KINDS_MAX:
            self._kinds.clear()
        self._kinds[key] = _Kind(record.created)
        return True

    def _is_meant(self, name: str) -> bool:
        return any(name == logger or name.startswith(f"{logger}.") for logger in self._loggers)
