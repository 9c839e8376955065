"""What an event is, who takes one, and how a task binds its name to one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Concatenate, ParamSpec

Fields = ParamSpec("Fields")


class Level(StrEnum):
    """How loud the log line of an event is."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. ``logger`` and ``level`` say where and how loud it is logged."""

    logger: ClassVar[str] = "headrace"
    level: ClassVar[Level] = Level.DEBUG
    is_verbatim: ClassVar[bool] = False
    """Whether its fields are shown though a secret may be of the same text: they name who asked for what, and a
    connector whose password is ``done`` must not blank that. Secrets that can be told by their place are hidden."""


Emit = Callable[[Event], None]
"""Takes an event at once: never blocks, never raises for a bad value."""


def discard(_event: Event) -> None:
    """Be the ``Emit`` of whoever does not care."""


@dataclass(frozen=True, slots=True)
class ConnectorEvent(Event):
    """A fact about one connector on this worker."""

    connector: str


@dataclass(frozen=True, slots=True)
class TaskEvent(ConnectorEvent):
    """A fact about one task of a connector; ``task`` counts from 0."""

    task: int


@dataclass(frozen=True, slots=True)
class TaskEvents:
    """An ``Emit`` that knows its task: ``events(PageFetched, records=3, bytes=120)``."""

    emit: Emit
    connector: str
    task: int

    def __call__(
        self,
        kind: Callable[Concatenate[str, int, Fields], TaskEvent],
        /,
        *args: Fields.args,
        **fields: Fields.kwargs,
    ) -> None:
        """Emit ``kind`` for this task; the fields are checked against its class by mypy."""
        self.emit(kind(self.connector, self.task, *args, **fields))
