"""Create, change, delete, pause, resume, stop: checks in Connect's order, and what the cluster then does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from service.domain.cluster import Properties
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State, TargetState
from service.herder.errors import BadRequestError, ConflictError, ElsewhereError, NotFoundError, RequestError
from service.herder.view import NO_LEADER, STALE
from tests.unit.herder.world import ME, OTHER, SOURCE, HerderWorld

pytestmark = pytest.mark.looptime


def with_tasks(count: int) -> Properties:
    """A source of so many tasks."""
    return {**SOURCE, "tasks.max": str(count)}


async def test_a_created_connector_runs_with_its_tasks() -> None:
    """The answer comes before the tasks do; the name is put into the config."""
    async with HerderWorld().started() as world:
        info = await world.herder.changes.create("c", with_tasks(2), None)
        assert info.tasks == ()
        assert info.config["name"] == "c"
        assert info.type == "source"
        await world.settled()
        assert world.states("c") == {"": "RUNNING", "0": "RUNNING", "1": "RUNNING"}
        assert world.herder.reads.info("c").tasks == (TaskId("c", 0), TaskId("c", 1))
        assert [config["number"] for _, config in world.herder.reads.tasks("c")] == ["0", "1"]


async def test_an_invalid_config_is_refused_with_all_errors_before_anything_else() -> None:
    """Even on a worker that is not the leader, and for a name that exists: 400, not 409."""
    async with HerderWorld().started() as world:
        await world.herder.changes.create("c", SOURCE, None)
        world.validator.errors = ["first", "second"]
        world.membership.become(OTHER, ME)
        with pytest.raises(BadRequestError) as refused:
            await world.herder.changes.create("c", SOURCE, None)
        assert str(refused.value) == (
            "Connector configuration is invalid and contains the following 2 error(s):\nfirst\nsecond\n"
            "You can also find the above list of errors at the endpoint "
            "`/connector-plugins/{connectorType}/config/validate`"
        )


async def test_a_config_without_a_class_is_refused_with_its_own_text() -> None:
    """Before validation looks at it."""
    async with HerderWorld().started() as world:
        with pytest.raises(BadRequestError, match="Connector config contains no connector type"):
            await world.herder.changes.create("c", {}, None)


async def test_another_name_in_the_config_is_refused() -> None:
    """For POST, PUT and PATCH alike."""
    text = r"Connector name configuration \(d\) doesn't match connector name in the URL \(c\)"
    async with HerderWorld().started() as world:
        herder = world.herder
        with pytest.raises(BadRequestError, match=text):
            await herder.changes.create("c", {**SOURCE, "name": "d"}, None)
        with pytest.raises(BadRequestError, match=text):
            await herder.changes.put("c", {**SOURCE, "name": "d"})
        await herder.changes.create("c", SOURCE, None)
        with pytest.raises(BadRequestError, match=text):
            await herder.changes.patch("c", {"name": "d"})


async def test_a_name_that_exists_is_a_conflict_for_create_and_a_change_for_put() -> None:
    """PUT says which of the two it was."""
    async with HerderWorld().started() as world:
        herder = world.herder
        assert (await herder.changes.put("c", SOURCE))[1]
        with pytest.raises(ConflictError, match="Connector c already exists"):
            await herder.changes.create("c", SOURCE, None)
        info, is_created = await herder.changes.put("c", {**SOURCE, "topic": "u"})
        assert not is_created
        assert info.config["topic"] == "u"


async def test_patch_merges_removes_and_keeps() -> None:
    """And needs a connector that is there."""
    async with HerderWorld().started() as world:
        herder = world.herder
        with pytest.raises(NotFoundError, match="Connector c not found"):
            await herder.changes.patch("c", {"topic": "u"})
        await herder.changes.create("c", SOURCE, None)
        info = await herder.changes.patch("c", {"topic": "u", "file": None})
        assert info.config == {"connector.class": "FileStreamSource", "topic": "u", "name": "c"}


async def test_a_changed_config_restarts_tasks_whose_own_config_is_equal() -> None:
    """They run with the connector config of their generation, so they need a new one."""
    async with HerderWorld().started() as world:
        await world.herder.changes.create("c", SOURCE, None)
        await world.settled()
        before = world.instances.applied[TaskId("c", 0)]
        await world.herder.changes.put("c", {**SOURCE, "topic": "u"})
        await world.settled()
        after = world.instances.applied[TaskId("c", 0)]
        assert after.task == before.task
        assert after.generation > before.generation
        assert after.config["topic"] == "u"


async def test_a_deleted_connector_is_forgotten_with_its_states_and_topics() -> None:
    """At once, for the worker that deletes; another delete finds nothing."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, None)
        await world.settled()
        world.instances.observer.on_topic(TaskId("c", 0), "t")
        assert herder.reads.topics("c") == ["t"]
        await herder.changes.delete("c")
        with pytest.raises(NotFoundError, match="No status found for connector c"):
            herder.reads.status("c")
        await world.settled()
        assert world.instances.applied == {}
        assert world.statuses.connector("c") is None
        assert world.statuses.tasks("c") == {}
        assert herder.reads.topics("c") == []
        with pytest.raises(NotFoundError, match="Connector c not found"):
            await herder.changes.delete("c")


async def test_pause_and_resume_reach_connector_and_tasks() -> None:
    """And are for connectors that exist; repeating them harms nothing."""
    async with HerderWorld().started() as world:
        herder = world.herder
        with pytest.raises(NotFoundError, match="Unknown connector c"):
            await herder.changes.set_target("c", TargetState.PAUSED)
        await herder.changes.create("c", SOURCE, None)
        await world.settled()
        for _ in range(2):
            await herder.changes.set_target("c", TargetState.PAUSED)
        await world.settled()
        assert world.states("c") == {"": "PAUSED", "0": "PAUSED"}
        await herder.changes.set_target("c", TargetState.STARTED)
        await world.settled()
        assert world.states("c") == {"": "RUNNING", "0": "RUNNING"}


async def test_a_stopped_connector_has_no_tasks_until_it_is_resumed() -> None:
    """Their states are forgotten."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", with_tasks(2), None)
        await world.settled()
        await herder.changes.set_target("c", TargetState.STOPPED)
        await world.settled()
        assert world.states("c") == {"": "STOPPED"}
        assert world.statuses.tasks("c") == {}
        assert herder.reads.info("c").tasks == ()
        await herder.changes.set_target("c", TargetState.STARTED)
        await world.settled()
        assert world.states("c") == {"": "RUNNING", "0": "RUNNING", "1": "RUNNING"}


@pytest.mark.parametrize("initial", [TargetState.PAUSED, TargetState.STOPPED])
async def test_a_connector_may_be_created_at_rest(initial: TargetState) -> None:
    """It makes no tasks before it is resumed."""
    async with HerderWorld().started() as world:
        await world.herder.changes.create("c", SOURCE, initial)
        await world.settled()
        assert world.states("c") == {"": str(initial)}


async def test_fewer_tasks_leave_no_state_behind() -> None:
    """``tasks.max`` down, and up again."""
    async with HerderWorld().started() as world:
        herder = world.herder
        for count in (3, 1, 2):
            await herder.changes.put("c", with_tasks(count))
            await world.settled()
            assert len(world.states("c")) == count + 1
            assert len(world.statuses.tasks("c")) == count


async def test_what_only_the_leader_may_do_is_sent_to_it() -> None:
    """Pause, resume and reads are anybody's."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, None)
        world.membership.become(OTHER, ME)
        leader_only: list[Callable[[], Awaitable[object]]] = [
            lambda: herder.changes.create("d", SOURCE, None),
            lambda: herder.changes.put("c", SOURCE),
            lambda: herder.changes.patch("c", {}),
            lambda: herder.changes.delete("c"),
            lambda: herder.changes.set_target("c", TargetState.STOPPED),
        ]
        for operation in leader_only:
            with pytest.raises(ElsewhereError) as elsewhere:
                await operation()
            assert elsewhere.value.url == OTHER.url
        await herder.changes.set_target("c", TargetState.PAUSED)
        assert herder.reads.names() == ["c"]


async def test_without_a_group_changes_are_conflicts_to_be_tried_again() -> None:
    """Reads of one connector too, since what this worker knows may be old; lists and states are not refused."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, None)
        await world.settled()
        world.membership.leave()
        with pytest.raises(ConflictError) as no_leader:
            await herder.changes.put("c", SOURCE)
        assert str(no_leader.value) == NO_LEADER
        with pytest.raises(ConflictError) as stale:
            herder.reads.info("c")
        assert str(stale.value) == STALE
        with pytest.raises(ConflictError):
            herder.reads.tasks("c")
        assert herder.reads.info("c", is_consistent=False).name == "c"
        assert herder.reads.status("c").connector.state == "RUNNING"


async def test_a_leader_that_is_fenced_steps_back_until_the_group_says_otherwise() -> None:
    """A worker that was frozen must not take the lead from its successor; it may when a new generation makes it so."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, None)
        world.config_records.claim_elsewhere()
        with pytest.raises(ConflictError) as fenced:
            await herder.changes.delete("c")
        assert str(fenced.value) == NO_LEADER
        await asyncio.sleep(world.settings.doubt_seconds / 2)
        assert not world.configs.is_leader
        world.membership.become(ME, OTHER)
        await world.settled()
        assert world.configs.is_leader
        await herder.changes.delete("c")


async def test_a_leader_whose_write_failed_leads_on() -> None:
    """The failed write took its claim, and nobody else has one: it claims at its next tick, which is due at once."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, TargetState.PAUSED)
        await world.settled()
        world.config_records.failures = 1
        with pytest.raises(RequestError, match="the broker is away"):
            await herder.changes.delete("c")
        with pytest.raises(ConflictError) as unclaimed:
            await herder.changes.delete("c")
        assert str(unclaimed.value) == NO_LEADER
        await asyncio.sleep(0.1)
        await herder.changes.delete("c")


async def test_task_configs_whose_write_failed_are_written_later() -> None:
    """Trying again without the claim is no sign of another leader, and does not keep this one from claiming."""
    async with HerderWorld().started() as world:
        world.instances.is_silent = True
        await world.herder.changes.create("c", SOURCE, None)
        await world.settled()
        world.config_records.failures = 1
        made_from = world.configs.config.connectors["c"].config
        world.instances.observer.on_task_configs(ConnectorId("c"), [{"a": "1"}], made_from)
        await asyncio.sleep(1)
        assert world.configs.config.connectors["c"].tasks == ({"a": "1"},)


async def test_states_of_what_is_deleted_meanwhile_do_not_come_back() -> None:
    """The owner of a task may learn late, and says UNASSIGNED then."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", SOURCE, None)
        await world.settled()
        await herder.changes.delete("c")
        await world.settled()
        world.instances.observer.on_state(ConnectorId("c"), State.UNASSIGNED, trace=None, version=None)
        assert world.statuses.connector("c") is None
