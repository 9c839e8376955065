"""Everything that runs on a worker, through its transitions and races, in virtual time."""

from __future__ import annotations

import asyncio
import math

import pytest

from metrics.events import ConnectorRemoved, ConnectorStarted, StopReported, TaskFailed, TaskRemoved
from service.config.providers import Resolved
from service.domain.cluster import Properties
from service.domain.errors import Recovery
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State, TargetState
from service.kafka.errors import DeliveryRetriable, WriterFenced
from service.worker.life import START_SECONDS_MAX
from tests.unit.worker.fake_kind import HANG, STOP_SECONDS, Scene, Script, connector, task

pytestmark = pytest.mark.looptime
C, T0, T1 = ConnectorId("c"), TaskId("c", 0), TaskId("c", 1)
R, P, S, F, X, U = State.RUNNING, State.PAUSED, State.STOPPED, State.FAILED, State.RESTARTING, State.UNASSIGNED
PAUSED, STOPPED = TargetState.PAUSED, TargetState.STOPPED


def now() -> float:
    """Virtual time."""
    return asyncio.get_running_loop().time()


async def test_a_task_runs_with_its_own_config_over_the_connectors() -> None:
    """``task.class`` is Java's business; the name is the connector's whatever the task config says."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {T0: task(file="a")})
        await asyncio.sleep(1)
        assert scene.running[T0].config == {"name": "c", "file": "a", "part": "0"}
        assert scene.states == {T0: [R]}
        assert scene.versions == {T0: "7.1"}
        assert scene.topics == [(T0, "things")]


async def test_variables_are_resolved_for_the_task_and_turned_back_in_its_config() -> None:
    """The value is in no task config."""
    scene = Scene()

    def resolve(written: Properties) -> Resolved:
        return Resolved({key: value.replace("${env:PW}", "hush") for key, value in written.items()})

    async with scene.instances(resolve=resolve) as instances:
        instances.apply("c", {C: connector(password="${env:PW}"), T0: task(password="${env:PW}")})
        await asyncio.sleep(1)
        assert scene.running[T0].config["password"] == "hush"
        ((_, (published,), made_from),) = scene.task_configs
    assert published["password"] == made_from["password"] == "${env:PW}"


async def test_a_connector_splits_its_work_once_it_runs() -> None:
    """As Connect writes it: the whole config, the task's own keys, and the class of the task."""
    scene = Scene()
    async with scene.instances() as instances:
        wanted = connector(dotted={"tasks.max": "2"}, split="2")
        instances.apply("c", {C: wanted})
        await asyncio.sleep(1)
        assert scene.states == {C: [R]}
        ((who, tasks, made_from),) = scene.task_configs
    assert (who, made_from) == (C, wanted.config)
    assert tasks == tuple({**wanted.config, "part": part, "task.class": "FakeTask"} for part in ("0", "1"))
    (started,) = scene.told(ConnectorStarted)
    assert (started.connector_class, started.version, started.is_success) == ("Fake", "7.1", True)


async def test_more_tasks_than_allowed_fail_the_connector() -> None:
    """Unless ``tasks.max.enforce`` is off."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(split="5")})
        await asyncio.sleep(1)
        assert scene.states == {C: [F]}
        assert "The connector c has generated 5 tasks, which is greater than 1, the maximum" in scene.traces[C]
        assert scene.task_configs == []
        instances.apply("c", {C: connector(dotted={"tasks.max.enforce": "false"}, split="5")})
        await asyncio.sleep(1)
    assert scene.states[C] == [F, U, R, U]
    assert len(scene.task_configs[0][1]) == 5


async def test_a_refused_connector_fails_and_leaves_its_tasks_alone() -> None:
    """Its old tasks go on until there are new configs for them."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(), T0: task()})
        await asyncio.sleep(1)
        instances.apply("c", {C: connector(refused="no such table"), T0: task()})
        await asyncio.sleep(1)
        assert scene.state(C) is F
        assert "no such table" in scene.traces[C]
        assert T0 in scene.running
        assert scene.starts[T0] == 1
    assert [event.is_success for event in scene.told(ConnectorStarted)] == [True, False]


async def test_a_connector_that_cannot_be_split_now_is_tried_again() -> None:
    """With back-off, as tasks are."""
    scene = Scene(split_failure=lambda number: DeliveryRetriable("away") if number < 3 else None)
    async with scene.instances() as instances:
        instances.apply("c", {C: connector()})
        await asyncio.sleep(60)
        assert scene.states[C] == [X, X, R]
        assert scene.splits == 3


async def test_pause_delivers_what_was_fetched_and_resume_begins_anew() -> None:
    """A paused task holds nothing but its state."""
    scene = Scene({T0: Script(stop_seconds=2)})
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(), T0: task()})
        await asyncio.sleep(1)
        instances.apply("c", {C: connector(PAUSED), T0: task(target=PAUSED)})
        await asyncio.sleep(1)
        assert scene.state(T0) is R
        assert scene.state(C) is P
        await asyncio.sleep(2)
        assert scene.state(T0) is P
        assert scene.running == {}
        assert instances.idle_seconds == math.inf
        instances.apply("c", {C: connector(), T0: task()})
        await asyncio.sleep(1)
        assert instances.idle_seconds != math.inf
    assert scene.states == {C: [R, P, R, U], T0: [R, P, R, U]}
    assert [event.left_records for event in scene.told(StopReported)] == [0, 0]


async def test_created_paused_nothing_is_started_or_split() -> None:
    """A connector made PAUSED has no tasks yet, as in Connect."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(PAUSED)})
        await asyncio.sleep(1)
        assert scene.states == {C: [P]}
        assert scene.task_configs == []


async def test_a_stopped_connector_keeps_its_state_and_comes_back() -> None:
    """Resume from STOPPED splits anew."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(), T0: task()})
        await asyncio.sleep(1)
        instances.apply("c", {C: connector(STOPPED)})
        await asyncio.sleep(1)
        assert instances.idle_seconds == math.inf
        instances.apply("c", {C: connector()})
        await asyncio.sleep(1)
        assert len(scene.task_configs) == 2
    assert scene.states == {C: [R, S, R, U], T0: [R, U]}


async def test_a_restart_is_told_and_makes_a_new_incarnation() -> None:
    """Of a running one in the staged way, of a paused one in its state alone."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(), T0: task(), T1: task(target=PAUSED)})
        await asyncio.sleep(1)
        instances.restart([C, T0, T1, TaskId("c", 9)])
        await asyncio.sleep(1)
        assert scene.starts == {T0: 2}
        assert len(scene.task_configs) == 2
    assert scene.states == {C: [R, X, R, U], T0: [R, X, R, U], T1: [P, X, P, U]}


async def test_a_failed_task_waits_for_a_person() -> None:
    """Pause and resume leave it FAILED; a restart starts it."""
    scene = Scene({T0: Script(failure=lambda start: ValueError("bug") if start == 1 else None)})
    async with scene.instances() as instances:
        for wanted in (task(), task(target=PAUSED), task()):
            instances.apply("c", {T0: wanted})
            await asyncio.sleep(1)
            assert scene.state(T0) is F
        assert "ValueError: bug" in scene.traces[T0]
        instances.restart([T0])
        await asyncio.sleep(1)
    assert scene.states[T0] == [R, F, X, R, U]


async def test_a_failed_task_is_healed_by_another_config() -> None:
    """Also when the new one is to be paused."""
    scene = Scene({T0: Script(failure=lambda start: ValueError("bug") if start < 3 else None)})
    async with scene.instances() as instances:
        for wanted in (task(1), task(2), task(3, PAUSED), task(3)):
            instances.apply("c", {T0: wanted})
            await asyncio.sleep(1)
    assert scene.states[T0] == [R, F, U, R, F, U, P, R, U]


async def test_what_cannot_be_made_is_failed_with_its_text() -> None:
    """A task config that no longer fits."""
    scene = Scene()
    async with scene.instances() as instances:
        instances.apply("c", {T0: task(refused="Missing required configuration")})
        await asyncio.sleep(1)
        assert scene.states == {T0: [F]}
        assert "Missing required configuration" in scene.traces[T0]


async def test_reconfigured_twice_quickly_only_the_last_one_starts() -> None:
    """After the old one has ended in the staged way, never beside it."""
    scene = Scene({T0: Script(stop_seconds=3)})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task(1, file="a")})
        await asyncio.sleep(1)
        instances.apply("c", {T0: task(2, file="b")})
        await asyncio.sleep(1)
        instances.apply("c", {T0: task(3, file="c")})
        await asyncio.sleep(3)
        assert scene.running[T0].config["file"] == "c"
        assert scene.starts[T0] == 2
    assert scene.states[T0] == [R, U, R, U]


async def test_a_wish_that_comes_back_while_the_old_one_stops_is_granted() -> None:
    """Delete and create again, faster than the stop: a new incarnation, and no removal in between."""
    scene = Scene({T0: Script(stop_seconds=3)})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task()})
        await asyncio.sleep(1)
        instances.apply("c", {})
        await asyncio.sleep(1)
        instances.apply("c", {T0: task()})
        await asyncio.sleep(3)
        assert scene.starts[T0] == 2
        assert T0 in scene.running
        assert scene.told(TaskRemoved) == []


@pytest.mark.parametrize("following", [task(target=PAUSED), None, task(2)])
async def test_what_has_not_begun_to_run_makes_way_soon(following: object) -> None:
    """Nothing is in its hands yet: pause, delete and reconfigure do not wait for a start that hangs."""
    scene = Scene({T0: Script(start_seconds=HANG)})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task()})
        await asyncio.sleep(1)
        scene.scripts[T0] = Script()
        instances.apply("c", {T0: following} if following is not None else {})  # type: ignore[dict-item]
        await asyncio.sleep(START_SECONDS_MAX + 0.1)
        assert scene.state(T0) is (P if following == task(target=PAUSED) else U if following is None else R)


async def test_a_delete_while_it_stops_ends_it_once() -> None:
    """And its series end last."""
    scene = Scene({T0: Script(stop_seconds=3)})
    async with scene.instances() as instances:
        instances.apply("c", {C: connector(), T0: task()})
        await asyncio.sleep(1)
        instances.apply("c", {C: connector(STOPPED)})
        await asyncio.sleep(1)
        instances.apply("c", {})
        assert instances.idle_seconds != math.inf
        await asyncio.sleep(5)
        assert instances.idle_seconds == math.inf
    assert scene.states == {C: [R, S, U], T0: [R, U]}
    assert len(scene.told(TaskRemoved)) == len(scene.told(ConnectorRemoved)) == 1
    assert isinstance(scene.events[-1], ConnectorRemoved)


async def test_a_stop_that_hangs_is_cancelled_at_three_quarters_and_cut_off_at_the_end() -> None:
    """The new incarnation waits for it, and says what was left."""
    scene = Scene({T0: Script(stop_seconds=HANG, farewell_seconds=HANG)})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task(1)})
        await asyncio.sleep(1)
        instances.apply("c", {T0: task(2)})
        asked_at = now()
        while scene.starts[T0] < 2:
            await asyncio.sleep(0.01)
        assert now() - asked_at == pytest.approx(STOP_SECONDS, abs=0.1)
        scene.scripts[T0] = Script()
    (report, _) = scene.told(StopReported)
    assert (report.left_records, report.is_complete) == (7, False)


async def test_fenced_and_no_longer_wanted_it_ends_quietly() -> None:
    """The other worker was quicker than the word of it."""
    scene = Scene({T0: Script(failure=lambda _: WriterFenced("a newer writer took over"))})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task()})
        await asyncio.sleep(3)
        instances.apply("c", {})
        await asyncio.sleep(1)
    assert scene.states[T0] == [R, U]
    assert scene.told(TaskFailed) == []


async def test_superseded_before_its_start_it_waits_to_be_told() -> None:
    """It runs nothing; its newer configs begin at once when they are heard of."""
    scene = Scene(superseded={(T0, 1)})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task(generation=1)})
        await asyncio.sleep(3)
        assert scene.states == {}
        instances.apply("c", {T0: task(generation=2)})
        await asyncio.sleep(1)
        assert scene.states[T0][-1] is R
    assert scene.told(TaskFailed) == []


async def test_fenced_but_still_wanted_it_is_failed() -> None:
    """Somebody else uses its name: a person must look."""
    scene = Scene({T0: Script(failure=lambda _: WriterFenced("a newer writer took over"))})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task()})
        await asyncio.sleep(60)
        assert scene.states[T0] == [R, F]
        assert "a newer writer took over" in scene.traces[T0]
        assert scene.failures[T0] is Recovery.FENCED


async def test_superseded_and_never_told_otherwise_it_is_failed_as_that() -> None:
    """The herder starts it anew when it is wanted after all: by the class of the failure, not by words in its trace."""
    scene = Scene(superseded={(T0, 1)})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task(generation=1)})
        await asyncio.sleep(60)
        assert scene.states[T0] == [F]
        assert scene.failures[T0] is Recovery.SUPERSEDED


async def test_a_failure_while_it_is_paused_is_seen() -> None:
    """What it had fetched could not be delivered."""
    scene = Scene({T0: Script(fails_when_stopped=ValueError("bug"))})
    async with scene.instances() as instances:
        instances.apply("c", {T0: task()})
        await asyncio.sleep(1)
        instances.apply("c", {T0: task(target=PAUSED)})
        await asyncio.sleep(1)
        assert scene.states[T0] == [R, F]


async def test_the_worker_stops_everything_together() -> None:
    """In the time of one; afterwards nothing begins any more."""
    tasks = [TaskId("c", number) for number in range(20)]
    scene = Scene({task_id: Script(stop_seconds=HANG) for task_id in tasks})
    async with scene.instances() as instances:
        instances.apply("c", {task_id: task() for task_id in tasks})
        await asyncio.sleep(1)
        asked_at = now()
        await instances.stop()
        assert now() - asked_at == pytest.approx(STOP_SECONDS * 0.75, abs=0.1)
        instances.apply("c", {T0: task()})
        await asyncio.sleep(1)
        assert scene.running == {}
    assert {scene.state(task_id) for task_id in tasks} == {U}
    assert scene.told(TaskRemoved) == []


async def test_idleness_is_that_of_the_busiest() -> None:
    """What rests or is FAILED counts for nothing, what starts is busy."""
    scene = Scene({T1: Script(start_seconds=2)})
    async with scene.instances() as instances:
        assert instances.idle_seconds == float("inf")
        instances.apply("c", {T0: task(refused="x"), C: connector(PAUSED)})
        await asyncio.sleep(1)
        assert instances.idle_seconds == float("inf")
        instances.apply("c", {T0: task(refused="x"), T1: task()})
        await asyncio.sleep(1)
        assert instances.idle_seconds is None
        await asyncio.sleep(2)
        scene.running[T1].activity.idle_seconds = 41.0
        assert instances.idle_seconds == 41.0
