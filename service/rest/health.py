"""What a worker can say of its health: alive, ready, and if not, what is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from metrics.events import ComponentStateChanged, Event, TaskStateChanged


@dataclass(slots=True)
class Health:
    """Listens to events; readiness is that every component is usable and no task is FAILED."""

    components: dict[str, ComponentStateChanged] = field(default_factory=dict)
    tasks: dict[str, TaskStateChanged] = field(default_factory=dict)
    is_started: bool = False

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, ComponentStateChanged):
            self.components[event.component] = event
        elif isinstance(event, TaskStateChanged):
            self.tasks[f"{event.connector}-{event.task}"] = event

    @property
    def is_ready(self) -> bool:
        """Whether the worker does what it is there for."""
        components_ready = all(state.is_ready for state in self.components.values())
        tasks_well = all(state.state not in {"FAILED", "RESTARTING"} for state in self.tasks.values())
        return self.is_started and components_ready and tasks_well

    def report(self) -> dict[str, Any]:
        """The body of ``/health/ready``."""
        return {
            "status": "ready" if self.is_ready else "not ready",
            "components": {
                name: {"ready": state.is_ready, "detail": state.detail} for name, state in self.components.items()
            },
            "tasks": {name: {"state": state.state, "reason": state.reason} for name, state in self.tasks.items()},
        }
