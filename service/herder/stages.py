"""What the worker is busy with, for health and for requests that time out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from service.herder.api import Stage


@dataclass(slots=True)
class Stages:
    """The stage of now, or the last one."""

    clock: Clock
    current: Stage = field(init=False)

    def __post_init__(self) -> None:
        """Everything begins with the start."""
        self.current = Stage("starting", self._instant())

    @contextmanager
    def during(self, text: str) -> Iterator[None]:
        """Be in a stage for the length of a block."""
        began = self._instant()
        self.current = Stage(text, began)
        try:
            yield
        finally:
            self.current = Stage(text, began, self._instant())

    def _instant(self) -> str:
        return self.clock.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
