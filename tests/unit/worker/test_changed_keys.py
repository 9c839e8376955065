"""Tasks that go on under a changed config, beside those that are made anew, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from service.domain.ids import TaskId
from service.domain.states import State, TargetState
from service.kafka.errors import DeliveryRetriable
from tests.unit.worker.fake_kind import Scene, Script, task

pytestmark = pytest.mark.looptime
T0 = TaskId("c", 0)
R, P, PAUSED = State.RUNNING, State.PAUSED, TargetState.PAUSED


async def test_what_takes_changed_keys_over_goes_on_and_later_incarnations_are_made_of_them() -> None:
    """Only while it runs, and only where nothing else has changed."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {T0: task(1, dotted={"live.rule": "a"})})
        await asyncio.sleep(1)
        instances.apply("c", {T0: task(2, dotted={"live.rule": "b", "live.more": "c"})})
        await asyncio.sleep(1)
        assert (scene.starts[T0], scene.states[T0]) == (1, [R])
        scene.superseded.add((T0, 1))  # whoever asks the config log as the older generation would be ended
        instances.restart([T0])
        await asyncio.sleep(1)
        assert scene.starts[T0] == 2
        assert scene.running[T0].config["live.rule"] == "b"
        instances.apply("c", {T0: task(3, dotted={"live.rule": "c"}, file="other")})
        await asyncio.sleep(1)
        assert scene.starts[T0] == 3
        instances.apply("c", {T0: task(4, PAUSED, dotted={"live.rule": "d"}, file="other")})
        await asyncio.sleep(1)
        assert scene.states[T0][-1] is P
        assert T0 not in scene.running


async def test_what_fails_after_it_took_keys_over_starts_again_with_them() -> None:
    """An incarnation that ends by itself is followed by one of the newest config."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {T0: task(1, dotted={"live.rule": "a"})})
        await asyncio.sleep(1)
        instances.apply("c", {T0: task(2, dotted={"live.rule": "b"})})
        scene.scripts[T0] = Script()
        scene.running[T0].script.fails_when_stopped = DeliveryRetriable("broken")
        scene.running[T0].request_stop()
        await asyncio.sleep(30)
        assert scene.starts[T0] == 2
        assert scene.running[T0].config["live.rule"] == "b"
