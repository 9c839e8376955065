"""How a connector's work is split into task configs, and the instance that stands for the connector itself.

Task configs are what Kafka Connect writes to the config topic, so that its workers could run the tasks as well: each is
the connector's whole config with the task's own keys over it and ``task.class``. Values that a config provider has put
in are turned back to their variables, because the topic is read by many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from fetchers.sdk import Clock
from service.config.providers import Resolved
from service.domain.cluster import Properties
from service.pipeline.activity import Signal
from service.worker.kinds import ConnectorRefusedError, DefinedConnector

TASK_CLASS = "task.class"
BETWEEN_SPLITS_SECONDS = 1.0
"""Changes of the work that follow one another are taken together, and a connector that always sees one does no harm."""
_JAVA_FILE_PACKAGE = "org.apache.kafka.connect.file."


def _nobody_hears() -> None:
    """Until a supervisor listens."""


@dataclass(slots=True)
class IdleSince:
    """A ``TaskActivity`` that is busy with nothing since ``since`` (monotonic seconds)."""

    clock: Clock
    since: float
    records_in_hand: int = 0

    @property
    def idle_seconds(self) -> float | None:
        """Since the work of the connector was split."""
        return self.clock.monotonic() - self.since


@dataclass(slots=True)
class ConnectorRun:
    """One incarnation of a connector, in the shape of a task: RUNNING from the moment its work is split."""

    tasks: Sequence[Properties]
    publish: Callable[[Sequence[Properties]], None]
    clock: Clock
    work_changed: Callable[[], Awaitable[None]]
    """Returns once the work would be split otherwise."""
    split: Callable[[], Awaitable[Sequence[Properties]]]
    """Splits it anew; runs the connector's own code and raises what that raises."""
    on_running: Signal = _nobody_hears
    activity: IdleSince = field(init=False)
    _is_stopped: bool = False
    _watch: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    """Ends the watch at a stop."""

    def __post_init__(self) -> None:
        """The work is split."""
        self.activity = IdleSince(self.clock, self.clock.monotonic())

    async def run(self) -> None:
        """Tell how the work is split, each time that it has changed, until the stop."""
        self.on_running()
        while not self._is_stopped:
            self.publish(self.tasks)
            if await self._has_changed():
                self.tasks = await self.split()
                self.activity.since = self.clock.monotonic()

    async def _has_changed(self) -> bool:
        """False at a stop."""
        self._watch = asyncio.timeout(None)
        try:
            async with self._watch:
                await self.work_changed()
                await self.clock.sleep(BETWEEN_SPLITS_SECONDS)
        except TimeoutError:
            if not self._is_stopped:
                raise
            return False
        return True

    def take_over(self, keys: Collection[str], make: Callable[[], Awaitable[object]]) -> bool:
        """Any other config may split the work otherwise."""
        del keys, make
        return False

    def request_stop(self) -> None:
        """There is nothing to deliver."""
        self._is_stopped = True
        self._watch.reschedule(asyncio.get_running_loop().time())


def task_configs(config: Properties, resolved: Resolved, defined: DefinedConnector) -> tuple[Properties, ...]:
    """Split the work. ``config``: as written, ``resolved``: with its variables' values.

    Raises ``ConnectorRefusedError`` for more tasks than allowed, and whatever the connector's own code raises.
    """
    split = defined.split()
    _demand_allowed(len(split), resolved.properties, defined)
    name = {TASK_CLASS: task_class(defined.traits.class_name, defined.traits.class_aliases)}
    return tuple({**config, **resolved.turned_back(own, config), **name} for own in split)


def task_class(class_name: str, aliases: Sequence[str] = ()) -> str:
    """Kafka's own name where a Java worker could run the task, else the plugin's name and ``Task``."""
    java = next((name for name in (class_name, *aliases) if name.startswith(_JAVA_FILE_PACKAGE)), class_name)
    return f"{java if java == class_name else java.removesuffix('Connector')}Task"


def with_task(config: Properties, task: Properties, *, name: str) -> dict[str, str]:
    """What a task runs with: its own config over the connector's, under the connector's name."""
    return {**config, **{key: value for key, value in task.items() if key != TASK_CLASS}, "name": name}


def _demand_allowed(count: int, properties: Properties, defined: DefinedConnector) -> None:
    is_enforced = properties.get("tasks.max.enforce", "true").strip().lower() != "false"
    if count > defined.traits.tasks_max and is_enforced:
        message = (
            f"The connector {properties.get('name')} has generated {count} tasks, which is greater than "
            f"{defined.traits.tasks_max}, the maximum number of tasks it is configured to create. "
            "Raise tasks.max, or set tasks.max.enforce to false to let it have them all the same."
        )
        raise ConnectorRefusedError(message)
