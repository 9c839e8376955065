"""Facts of the control plane: what the herder could not do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metrics.events.event import Event, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class HerderStepFailed(Event):
    """A step of the herder went wrong and is tried again; ``step``: start | tick | duties | fencing | publish."""

    logger: ClassVar[str] = "headrace.herder"
    level: ClassVar[Level] = Level.WARNING
    step: str
    error_class: str
    message: str
