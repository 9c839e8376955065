"""Levels of loggers, read and changed by name while the worker runs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

ROOT = "root"
LOG4J_NUMBERS = {"TRACE": 5, "WARN": logging.WARNING, "FATAL": logging.CRITICAL, "OFF": 100}
LOG4J_NAMES = (
    (100, "OFF"),
    (50, "FATAL"),
    (40, "ERROR"),
    (30, "WARN"),
    (20, "INFO"),
    (10, "DEBUG"),
)


def level_number(name: str) -> int:
    """Translate a level's name, Python's or log4j's; ValueError if there is no such level."""
    numbers = logging.getLevelNamesMapping() | LOG4J_NUMBERS
    numbers.pop("NOTSET")
    if name.upper() not in numbers:
        message = f"unknown log level {name!r}, expected one of {', '.join(sorted(numbers))}"
        raise ValueError(message)
    return numbers[name.upper()]


def level_name(number: int) -> str:
    """Translate a level's number into log4j's name, the next lower one where there is none."""
    return next((name for least, name in LOG4J_NAMES if number >= least), "TRACE")


@dataclass(frozen=True, slots=True)
class LoggerLevel:
    """What is logged by one logger; ``modified_ms`` since the epoch, None while never changed."""

    level: str
    modified_ms: int | None = None


class LogLevels:
    """The levels of this process; changes last until it ends."""

    def __init__(self, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._wall_clock = wall_clock
        self._modified_ms: dict[str, int] = {}

    def of_all(self) -> dict[str, LoggerLevel]:
        """Return every logger in use with the level it obeys, the root as ``root``."""
        return {name: self._level(name) for name in [ROOT, *_names_in_use()]}

    def of(self, name: str) -> LoggerLevel | None:
        """Return one logger's level, None where no logger has that name."""
        return self._level(name) if name == ROOT or name in _names_in_use() else None

    def set(self, name: str, level: str) -> list[str]:
        """Set a logger's level and that of all below it; ``root`` means all.

        Returns the names affected, sorted; who obeys that level already is not. A logger not yet in use is
        made. Raises ValueError for an unknown level.
        """
        number = level_number(level)
        below = [used for used in _names_in_use() if name == ROOT or used.startswith(f"{name}.")]
        affected = sorted(each for each in {name, *below} if _logger(each).getEffectiveLevel() != number)
        for each in affected:
            _logger(each).setLevel(number)
            self._modified_ms[each] = int(self._wall_clock() * 1000)
        return affected

    def _level(self, name: str) -> LoggerLevel:
        effective = _logger(name).getEffectiveLevel()
        return LoggerLevel(level_name(effective), self._modified_ms.get(name))


def _names_in_use() -> list[str]:
    known = logging.root.manager.loggerDict.items()
    return sorted(name for name, logger in known if isinstance(logger, logging.Logger))


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
