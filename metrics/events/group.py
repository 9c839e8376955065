"""Facts of the group of workers and of the control plane: who is in it, what the herder could not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from metrics.events.event import Event, Level

GroupRequest = Literal["join", "sync", "heartbeat"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequestEnded(Event):
    """The group's coordinator has answered, or failed to."""

    logger: ClassVar[str] = "headrace.group"
    level: ClassVar[Level] = Level.DEBUG
    client_id: str
    request: GroupRequest
    seconds: float
    is_success: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRoundBegan(Event):
    """The group is being made anew: someone came, went, or has asked for it."""

    logger: ClassVar[str] = "headrace.group"
    level: ClassVar[Level] = Level.INFO
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRoundEnded(Event):
    """A worker is in generation ``generation``; ``leader`` is a URL, ``absent`` counts those that work waits for.

    ``seconds``: since it heard that the round began.
    """

    logger: ClassVar[str] = "headrace.group"
    level: ClassVar[Level] = Level.INFO
    group_id: str
    generation: int
    leader: str
    members: int
    absent: int
    seconds: float
    protocol: str = "headrace-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlaceDoubted(Event):
    """The group has gone on without the worker; or, without a sign from the broker for a session, may have."""

    logger: ClassVar[str] = "headrace.group"
    level: ClassVar[Level] = Level.WARNING
    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTroubled(Event):
    """The worker cannot take part as it should; it goes on trying."""

    logger: ClassVar[str] = "headrace.group"
    level: ClassVar[Level] = Level.WARNING
    group_id: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HerderStepFailed(Event):
    """A step of the herder went wrong and is tried again; ``step``: start | tick | duties | fencing | publish."""

    logger: ClassVar[str] = "headrace.herder"
    level: ClassVar[Level] = Level.WARNING
    step: str
    error_class: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSourceGone(Event):
    """A deleted connector has taken away what it had left at its source; ``has_offsets``: its offsets are kept."""

    logger: ClassVar[str] = "headrace.herder"
    level: ClassVar[Level] = Level.INFO
    connector: str
    has_offsets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedSourceStays(Event):
    """What a deleted connector has left at its source is still there, and why; ``is_last``: a person must see to it."""

    logger: ClassVar[str] = "headrace.herder"
    level: ClassVar[Level] = Level.WARNING
    connector: str
    error_class: str
    message: str
    is_last: bool
