"""What workers do for each other: task configs to the leader, signatures, fencing, hand-over, duties, the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from metrics.events import HerderStepFailed
from service.domain.cluster import InstanceStatus, Member, SessionKey
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.domain.states import State, TargetState
from service.herder.api import Signature
from service.herder.errors import (
    BadRequestError,
    ElsewhereError,
    ForbiddenError,
    NotFoundError,
    RequestError,
    StartingError,
)
from service.herder.peers import HASHES, demand_member, demand_signed, new_key, sign
from service.herder.ports import HerderSettings
from tests.unit.herder.world import ME, OTHER, SOURCE, HerderWorld

pytestmark = pytest.mark.looptime
KEY = SessionKey(b"secret", "HmacSHA256", 1)
ALGORITHMS = ("HmacSHA256",)
TWO_TASKS = {**SOURCE, "tasks.max": "2"}


def as_owner_of(world: HerderWorld, name: str) -> None:
    """Let the connector be this worker's, and another lead."""
    world.membership.become(OTHER, ME, leader=OTHER, owners={ConnectorId(name): ME})


async def with_connector(world: HerderWorld) -> None:
    """A connector that has made no tasks yet."""
    world.instances.is_silent = True
    await world.herder.changes.create("c", SOURCE, None)
    await world.settled()


async def never() -> bytes:
    """No body is read for this request."""
    raise AssertionError


def reading(body: bytes) -> Callable[[], Awaitable[bytes]]:
    """A request's body."""

    async def read() -> bytes:
        return body

    return read


async def test_an_owner_hands_its_task_configs_to_the_leader_signed() -> None:
    """And tries again until it is done."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        as_owner_of(world, "c")
        world.peers.refusals = 3
        made_from = world.configs.config.connectors["c"].config
        world.instances.observer.on_task_configs(ConnectorId("c"), [{"a": "1"}], made_from)
        await asyncio.sleep(30)
        [(url, connector, body, signature)] = world.peers.published
        assert (url, connector, json.loads(body)) == (OTHER.url, "c", [{"a": "1"}])
        proven, key = demand_member(signature, world.configs.config.session_key, target="c", algorithms=ALGORITHMS)
        demand_signed(body, proven, key)


async def test_task_configs_that_are_outdated_are_handed_to_nobody() -> None:
    """Made from another config than that of now, of a stopped connector, of one that is another's, or known already."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        herder, observer = world.herder, world.instances.observer
        made_from = world.configs.config.connectors["c"].config
        observer.on_task_configs(ConnectorId("c"), [{"a": "1"}], made_from)
        await world.settled()
        written = world.configs.config.offset
        observer.on_task_configs(ConnectorId("c"), [{"a": "1"}], made_from)
        observer.on_task_configs(ConnectorId("c"), [{"a": "2"}], {**made_from, "file": "/old"})
        observer.on_task_configs(ConnectorId("gone"), [{"a": "2"}], made_from)
        await world.settled()
        assert world.configs.config.offset == written
        world.membership.become(ME, OTHER, owners={ConnectorId("c"): OTHER})
        observer.on_task_configs(ConnectorId("c"), [{"a": "2"}], made_from)
        await world.settled()
        assert world.configs.config.offset == written
        world.membership.become(ME, OTHER, owners={ConnectorId("c"): ME})
        await herder.changes.set_target("c", TargetState.STOPPED)
        observer.on_task_configs(ConnectorId("c"), [{"a": "2"}], made_from)
        await world.settled()
        assert herder.reads.info("c").tasks == ()


async def test_the_leader_writes_what_an_owner_has_signed() -> None:
    """Unsigned, wrongly signed and unreadable bodies are refused; a stopped connector gets no tasks."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        herder = world.herder
        key = world.configs.config.session_key
        assert key is not None

        async def publish(name: str, body: bytes) -> None:
            signature = sign(body, key, algorithm="HmacSHA256", target=name)
            await herder.publication.receive(name, signature=signature, read=reading(body))

        await publish("c", b'[{"a":"1"},{"a":"2"}]')
        assert [config for _, config in herder.reads.tasks("c")] == [{"a": "1"}, {"a": "2"}]
        with pytest.raises(BadRequestError, match="missing required signature"):
            await herder.publication.receive("c", signature=None, read=never)
        for forged in (Signature("", "HmacSHA256"), sign(b"[]", KEY, algorithm="HmacSHA256", target="c")):
            with pytest.raises(ForbiddenError):
                await herder.publication.receive("c", signature=forged, read=never)
        other = sign(b"[]", key, algorithm="HmacSHA256", target="d")
        with pytest.raises(ForbiddenError):
            await herder.publication.receive("c", signature=other, read=never)
        right = sign(b"[]", key, algorithm="HmacSHA256", target="c")
        with pytest.raises(ForbiddenError):
            await herder.publication.receive("c", signature=right, read=reading(b"[{}]"))
        for body in (b"{", b"{}", b"[1]"):
            with pytest.raises(BadRequestError, match="Task configurations"):
                await publish("c", body)
        with pytest.raises(NotFoundError):
            await publish("x", b"[]")
        await herder.changes.set_target("c", TargetState.STOPPED)
        await publish("c", b'[{"a":"1"}]')
        assert herder.reads.tasks("c") == ()
        world.membership.become(OTHER, ME)
        with pytest.raises(ElsewhereError):
            await publish("c", b"[]")


async def test_a_standalone_worker_has_no_internal_requests() -> None:
    """Nor a key to sign them by."""
    async with HerderWorld(HerderSettings("g", is_standalone=True)).started() as world:
        assert world.configs.config.session_key is None
        with pytest.raises(RequestError):
            await world.herder.publication.receive("c", signature=None, read=never)


@pytest.mark.parametrize("algorithm", list(HASHES))
def test_signatures_of_every_algorithm_hold_for_their_body_and_key_alone(algorithm: str) -> None:
    """One bit more or another key, and the request is refused."""
    key = new_key(algorithm, created_ms=1)
    signature = sign(b"body", key, algorithm=algorithm, target="c")
    assert demand_member(signature, key, target="c", algorithms=(algorithm,)) == (signature, key)
    demand_signed(b"body", signature, key)
    with pytest.raises(ForbiddenError, match=r"Internal request contained invalid signature\."):
        demand_signed(b"body.", signature, key)
    with pytest.raises(ForbiddenError):
        demand_signed(b"body", signature, KEY)
    for wrong_key, target in ((KEY, "c"), (key, "d")):
        with pytest.raises(ForbiddenError):
            demand_member(signature, wrong_key, target=target, algorithms=(algorithm,))


def test_a_signature_is_what_java_makes_of_the_same_key_and_body() -> None:
    """Worked out by another implementation (openssl dgst -sha256 -hmac)."""
    assert sign(b"[]", KEY, algorithm="HmacSHA256", target="c").value == "UzZKB/zFY+cS9Cz8neHijh4tOfI2zuQw8RIgPlV66j8="


def test_what_cannot_be_checked_is_refused_with_its_own_status() -> None:
    """No signature, an algorithm that is not allowed, no key yet, no Base64."""
    signature = sign(b"", KEY, algorithm="HmacSHA256", target="c")
    with pytest.raises(BadRequestError):
        demand_member(None, KEY, target="c", algorithms=ALGORITHMS)
    with pytest.raises(BadRequestError, match="HmacSHA256"):
        demand_member(signature, KEY, target="c", algorithms=("HmacSHA512",))
    with pytest.raises(StartingError):
        demand_member(signature, None, target="c", algorithms=ALGORITHMS)
    for head in ("é", "\udcff", ""):
        with pytest.raises(ForbiddenError):
            demand_member(Signature("é", "HmacSHA256", head), KEY, target="c", algorithms=ALGORITHMS)


async def test_the_session_key_is_made_by_the_leader_and_replaced_when_it_is_old() -> None:
    """Every ``inter.worker.key.ttl.ms``; the clock of the test is the machine's, so age is made by the setting."""
    async with HerderWorld(HerderSettings("g", key_seconds_max=0.001)).started() as world:
        first = world.configs.config.session_key
        await asyncio.to_thread(lambda: None)
        await world.settled()
        second = world.configs.config.session_key
        assert first is not None
        assert second is not None
        assert first.key != second.key


async def test_before_fewer_tasks_start_the_leader_fences_the_older_ones() -> None:
    """Those of the generation before, by their transactional ids; the new ones wait for the record of it."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", TWO_TASKS, None)
        await world.settled()
        assert world.fenced == []
        await herder.changes.put("c", SOURCE)
        await world.settled()
        assert world.fenced == [["g-c-0", "g-c-1"]]
        assert world.configs.config.task_counts["c"] == 1
        assert world.states("c") == {"": "RUNNING", "0": "RUNNING"}
        await herder.changes.put("c", {**SOURCE, "topic": "u"})
        await world.settled()
        assert world.fenced == [["g-c-0", "g-c-1"]], "one task before and one now: its own start fences the other"


async def test_new_tasks_wait_while_fencing_fails() -> None:
    """And run when it has worked; the sink's do not wait."""
    async with HerderWorld().started() as world:
        herder = world.herder
        await herder.changes.create("c", TWO_TASKS, None)
        await world.settled()
        world.unfenceable = {"c"}
        await herder.changes.put("c", SOURCE)
        await asyncio.sleep(20)
        assert TaskId("c", 0) not in world.instances.applied
        world.unfenceable = set()
        await asyncio.sleep(20)
        assert TaskId("c", 0) in world.instances.applied


async def test_a_connector_that_cannot_be_fenced_holds_up_no_other() -> None:
    """It is told which one it is, and tried again; each is fenced with its own config, whose overrides count."""
    async with HerderWorld().started() as world:
        herder = world.herder
        for name in "ab":
            await herder.changes.create(name, TWO_TASKS, None)
        await world.settled()
        world.unfenceable = {"a"}
        for name in "ab":
            await herder.changes.put(name, {**SOURCE, "admin.override.client.id": name})
        await world.settled()
        assert TaskId("a", 0) not in world.instances.applied
        assert TaskId("b", 0) in world.instances.applied
        assert {config["admin.override.client.id"] for config in world.fenced_with} == {"a", "b"}
        told = {event.message for event in world.events if isinstance(event, HerderStepFailed)}
        assert told == {"fencing of a: not authorized"}
        world.unfenceable = set()
        await asyncio.sleep(3)
        assert TaskId("a", 0) in world.instances.applied


async def test_a_new_leader_forgets_what_the_one_before_has_deleted_but_not_forgotten() -> None:
    """It died between the two. Followers forget nothing, and what is there keeps its states and topics."""
    async with HerderWorld().started() as world:
        await world.herder.changes.create("there", SOURCE, None)
        await world.settled()
        world.membership.become(OTHER, ME, owners={ConnectorId("there"): OTHER, TaskId("there", 0): OTHER})
        for name in ("there", "gone"):
            for instance in (ConnectorId(name), TaskId(name, 0)):
                world.statuses.put(instance, InstanceStatus(State.RUNNING, OTHER.worker_id, 2))
            world.statuses.add_topic("t", TaskId(name, 0))
        world.statuses.add_topic("t", TaskId("used", 0))
        await world.settled()
        assert set(world.statuses.names()) == {"there", "gone", "used"}
        world.membership.become(ME, OTHER)
        await world.settled()
        assert world.statuses.names() == ["there"]
        assert list(world.statuses.tasks("there")) == [0]
        assert world.herder.reads.topics("there") == ["t"]
        assert world.herder.reads.topics("gone") == []


async def test_work_of_a_worker_that_is_there_is_taken_when_it_has_let_go() -> None:
    """It says so by UNASSIGNED; not longer than the graceful time-out, and not for one that has left."""
    async with HerderWorld(HerderSettings("g", graceful_seconds=5)).started() as world:
        world.membership.become(ME, OTHER)
        for name in ("polite", "slow"):
            await world.herder.changes.create(name, SOURCE, TargetState.PAUSED)
        owned: dict[InstanceId, Member] = {ConnectorId("polite"): OTHER, ConnectorId("slow"): OTHER}
        world.membership.become(ME, OTHER, owners=owned)
        await world.settled()
        assert world.instances.applied == {}
        for instance in owned:
            world.statuses.put(instance, InstanceStatus(State.PAUSED, OTHER.worker_id, 2))
        world.membership.become(ME, OTHER, owners=dict.fromkeys(owned, ME))
        await asyncio.sleep(1)
        assert world.instances.applied == {}
        world.statuses.put(ConnectorId("polite"), InstanceStatus(State.UNASSIGNED, OTHER.worker_id, 2))
        await asyncio.sleep(1)
        assert list(world.instances.applied) == [ConnectorId("polite")]
        await asyncio.sleep(4)
        assert set(world.instances.applied) == set(owned)


async def test_work_of_a_worker_that_has_left_is_taken_at_once() -> None:
    """Whatever it said last."""
    async with HerderWorld().started() as world:
        world.membership.become(ME, OTHER)
        await world.herder.changes.create("c", SOURCE, TargetState.PAUSED)
        world.membership.become(ME, OTHER, owners={ConnectorId("c"): OTHER})
        await world.settled()
        world.statuses.put(ConnectorId("c"), InstanceStatus(State.RUNNING, OTHER.worker_id, 2))
        world.membership.become(ME, owners={ConnectorId("c"): ME})
        await world.settled()
        assert list(world.instances.applied) == [ConnectorId("c")]


async def test_a_state_that_a_former_owner_has_overwritten_is_told_again() -> None:
    """It let go late, or failed because it was fenced."""
    async with HerderWorld().started() as world:
        await world.herder.changes.create("c", SOURCE, None)
        await world.settled()
        world.mark(TaskId("c", 0), State.FAILED, by=OTHER, trace="fenced")
        await asyncio.sleep(3)
        assert world.herder.reads.task_status(TaskId("c", 0)).state is State.RUNNING


async def test_out_of_the_group_what_runs_goes_on() -> None:
    """A broker that is away for a while must not stop everything."""
    async with HerderWorld().started() as world:
        await world.herder.changes.create("c", SOURCE, None)
        await world.settled()
        world.membership.leave()
        await world.settled()
        assert TaskId("c", 0) in world.instances.applied


async def test_the_end_is_in_order_and_told() -> None:
    """Tasks stop, their states are written, the worker leaves the group."""
    world = HerderWorld()
    async with world.started():
        await world.herder.changes.create("c", SOURCE, None)
        await world.settled()
    assert world.instances.has_stopped
    assert world.membership.has_left
    told = world.statuses.connector("c")
    assert told is not None
    assert told.state is State.UNASSIGNED


async def test_log_levels_of_the_cluster_reach_this_worker() -> None:
    """By the config log."""
    async with HerderWorld().started() as world:
        await world.herder.changes.set_cluster_logger("headrace.task", "DEBUG")
        await world.settled()
        assert world.levels == [("headrace.task", "DEBUG")]


async def test_task_configs_that_cannot_be_written_end_nothing_else() -> None:
    """A connector of somebody's own may make anything; it is told, and the others go on."""
    async with HerderWorld().started() as world:
        await with_connector(world)
        made_from = world.configs.config.connectors["c"].config
        world.instances.observer.on_task_configs(ConnectorId("c"), [{"a": "\ud800"}], made_from)
        await world.settled()
        assert [event.step for event in world.events if isinstance(event, HerderStepFailed)] == ["publish"]
        world.instances.is_silent = False
        await world.herder.changes.create("d", SOURCE, None)
        await world.settled()
        assert world.states("d") == {"": "RUNNING", "0": "RUNNING"}


async def test_what_fails_in_the_end_keeps_the_rest_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that cannot be left is told, and the topics are let go all the same."""
    world = HerderWorld()
    stopped: list[str] = []

    async def fail() -> None:
        stopped.append("group")
        raise LookupError

    async def stop_configs() -> None:
        stopped.append("configs")

    monkeypatch.setattr(world.membership, "stop", fail)
    monkeypatch.setattr(world.configs, "stop", stop_configs)
    with pytest.raises(LookupError):
        async with world.started():
            pass
    assert world.instances.has_stopped
    assert stopped == ["group", "configs"]
