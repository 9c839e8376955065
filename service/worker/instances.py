"""Everything that runs in this process: ``apply`` says what should, and each instance's own life brings it about.

No method waits: one connector that hangs in its start, its work or its stop keeps nothing from the others.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from metrics.events import ConnectorRemoved, TaskRemoved
from service.background import Background
from service.domain.errors import Recovery
from service.domain.ids import InstanceId, TaskId
from service.domain.states import State
from service.herder.ports import Desired
from service.worker.life import InstanceLife
from service.worker.making import InstanceMaker, InstanceParts


class RunningInstances:
    """The ``Instances`` of a worker. Use as an async context manager, whose end cancels what still runs."""

    def __init__(self, parts: InstanceParts) -> None:
        """Nothing runs yet."""
        self._parts = parts
        self._maker = InstanceMaker(parts)
        self._background = Background()
        self._lives: dict[str, dict[InstanceId, InstanceLife]] = {}
        """By connector."""
        self._desired: dict[str, Mapping[InstanceId, Desired]] = {}
        self._is_stopping = False

    async def __aenter__(self) -> Self:
        """Open the parent of all lives."""
        await self._background.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what was not stopped."""
        self._is_stopping = True
        try:
            await self._background.__aexit__(kind, error, trace)
        finally:
            self._parts.calls.close()

    def apply(self, connector: str, desired: Mapping[InstanceId, Desired]) -> None:
        """Start, stop, pause, resume and re-make until this runs of the connector; nothing once the worker stops."""
        if self._is_stopping:
            return
        if desired:
            self._desired[connector] = desired
        else:
            self._desired.pop(connector, None)
        lives = self._lives.get(connector, {})
        for instance, life in lives.items():
            if instance not in desired:
                life.want(None)
        for instance, wanted in desired.items():
            if instance in lives:
                lives[instance].want(wanted)
            else:
                self._begin(instance, wanted)

    def restart(self, instances: Sequence[InstanceId]) -> None:
        """New incarnations of instances that are here, FAILED ones too."""
        for instance in instances:
            life = self._lives.get(instance.connector, {}).get(instance)
            wanted = self._desired.get(instance.connector, {}).get(instance)
            if self._is_stopping or wanted is None:
                continue
            if life is None:
                # A bug has ended its life.
                self._begin(instance, wanted)
            else:
                life.restart()

    def is_stopped(self, connector: str) -> bool:
        """Whether nothing of the connector runs here, not even its end."""
        return all(life.is_at_rest for life in self._lives.get(connector, {}).values())

    @property
    def idle_seconds(self) -> float | None:
        """For how long everything here has had nothing to do: infinite where nothing runs, None while one is busy."""
        idle = [life.idle_seconds for life in self._all_lives()]
        known = [seconds for seconds in idle if seconds is not None]
        return min(known, default=math.inf) if len(known) == len(idle) else None

    async def stop(self) -> None:
        """The staged stop of everything, all together; within the graceful time-out and a little."""
        self._is_stopping = True
        for life in self._all_lives():
            life.want(None)
        await self._background.wait(seconds_max=self._parts.stop_seconds_max * 1.25)

    def _all_lives(self) -> list[InstanceLife]:
        return [life for lives in self._lives.values() for life in lives.values()]

    def _begin(self, instance: InstanceId, desired: Desired) -> None:
        life = self._maker.life(instance, desired)
        self._lives.setdefault(instance.connector, {})[instance] = life
        self._background.start(self._live(life), name=f"life of {instance}")

    async def _live(self, life: InstanceLife) -> None:
        """The border of an instance: no bug in it may end the others."""
        try:
            await life.run()
        except Exception as error:  # noqa: BLE001 - see above; told, never swallowed
            trace = "".join(traceback.format_exception(error))
            life.listener.on_failure(error, trace=trace)
            self._parts.observer.on_state(life.instance, State.FAILED, trace=trace, version=None, failure=Recovery.FAIL)
        finally:
            self._forget(life.instance)

    def _forget(self, instance: InstanceId) -> None:
        connector = instance.connector
        del self._lives[connector][instance]
        is_last = not self._lives[connector]
        if is_last:
            del self._lives[connector]
        if self._is_stopping:
            return
        if isinstance(instance, TaskId):
            self._parts.emit(TaskRemoved(connector, instance.task))
        if is_last:
            self._parts.emit(ConnectorRemoved(connector))
