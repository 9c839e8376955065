"""Workers find one another by a real broker, and work is never nobody's for longer than its grace."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer

from service.domain.cluster import ClusterConfig, ConfigChange
from service.herder.assignment import AssignmentTracker
from tests.integration.group_worker import CONFIG, SESSION_SECONDS, GroupWorker, View, worker_process
from tests.stack import KafkaStack
from tests.unit.herder.config_log import cluster, instances

pytestmark = pytest.mark.integration

EVERYTHING = sorted(map(str, instances(CONFIG)))


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Workers that are still there at the end leave."""
    async with AsyncExitStack() as stack:
        yield stack


def owned(views: Iterable[View]) -> list[str]:
    """What they own together, twice if twice."""
    return sorted(name for view in views for name in view.owned)


async def test_three_workers_agree_and_share_evenly(kafka: KafkaStack, topic_name: str, stack: AsyncExitStack) -> None:
    """One leader, one roster, everything once."""
    workers = [await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, name)) for name in "abc"]
    views = [await worker.wait_until(lambda view: view.members == "abc") for worker in workers]

    assert len({(view.generation, view.leader) for view in views}) == 1
    assert len({tuple(worker.tracker.assignment.owners().items()) for worker in workers}) == 1
    assert owned(views) == EVERYTHING
    assert {len(view.owned) for view in views} == {6}


async def test_who_leaves_has_its_work_held_and_then_handed_out(
    kafka: KafkaStack, topic_name: str, stack: AsyncExitStack
) -> None:
    """The others keep what they have, through both rounds."""
    a, b = [await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, name)) for name in "ab"]
    async with GroupWorker(kafka.bootstrap, topic_name, "c") as c:
        before = [await worker.wait_until(lambda view: view.members == "abc") for worker in (a, b, c)]
        seen = [len(worker.settled) for worker in (a, b)]
    assert not c.view.generation
    # Held for a second, which may have gone by when this is reached.
    held = [
        await worker.first(lambda view: view.members == "ab", after=count)
        for worker, count in zip((a, b), seen, strict=True)
    ]
    after = [await worker.wait_until(lambda view: view.members == "ab" and not view.absent) for worker in (a, b)]

    assert [view.owned for view in held] == [view.owned for view in before[:2]]
    assert {view.absent for view in held} == {"c"}
    assert owned(after) == EVERYTHING
    assert all(set(old.owned) <= set(new.owned) for old, new in zip(before, after, strict=False))


async def test_who_comes_back_within_its_grace_keeps_its_work(
    kafka: KafkaStack, topic_name: str, stack: AsyncExitStack
) -> None:
    """A rolling restart moves nothing, not even of the leader."""
    a, b = [
        await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, name, grace_seconds=60))
        for name in "ab"
    ]
    async with GroupWorker(kafka.bootstrap, topic_name, "c", grace_seconds=60) as c:
        before = [(await worker.wait_until(lambda view: view.members == "abc")).owned for worker in (a, b, c)]
    await a.wait_until(lambda view: view.members == "ab")
    again = await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, "c", grace_seconds=60))
    after = [(await worker.wait_until(lambda view: view.members == "abc")).owned for worker in (a, b, again)]
    leader, other = (a, b) if a.view.leader == "a" else (b, a)
    await leader.membership.stop()
    await other.wait_until(lambda view: len(view.members) == 2)
    name = "a" if leader is a else "b"
    new = await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, name, grace_seconds=60))
    last = [(await worker.wait_until(lambda view: view.members == "abc")).owned for worker in (new, other, again)]

    assert before == after
    assert sorted(before) == sorted(last)
    assert last[0] == after[0 if leader is a else 1]


@pytest.mark.slow
@pytest.mark.faults
async def test_a_killed_leaders_work_runs_elsewhere(
    kafka: KafkaStack, topic_name: str, stack: AsyncExitStack, tmp_path: Path
) -> None:
    """SIGKILL tells nobody; the broker does at the end of the session."""
    with worker_process(kafka.bootstrap, topic_name, "c", log=tmp_path / "c") as c:
        await c.wait_until(lambda view: view.leader == "c")
        a, b = [await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, name)) for name in "ab"]
        before = [await worker.wait_until(lambda view: view.members == "abc") for worker in (a, b)]
        c.signal(signal.SIGKILL)
        after = [await worker.wait_until(lambda view: view.members == "ab" and not view.absent) for worker in (a, b)]

    assert {view.leader for view in before} == {"c"}
    assert {view.leader for view in after} <= {"a", "b"}
    assert owned(after) == EVERYTHING
    assert all(set(old.owned) <= set(new.owned) for old, new in zip(before, after, strict=True))


@pytest.mark.slow
@pytest.mark.faults
async def test_a_worker_that_was_stopped_too_long_knows_it_when_it_wakes(
    kafka: KafkaStack, topic_name: str, stack: AsyncExitStack, tmp_path: Path
) -> None:
    """The first it sees is that it is out; then it is in again, with a part of the work."""
    with worker_process(kafka.bootstrap, topic_name, "c", log=tmp_path / "c") as c:
        await c.wait_until(lambda view: view.members == "c")
        a = await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, "a"))
        await c.wait_until(lambda view: view.members == "ac")
        c.signal(signal.SIGSTOP)
        alone = await a.wait_until(lambda view: view.members == "a" and not view.absent)
        seen = len(c.views())
        c.signal(signal.SIGCONT)
        both = await a.wait_until(lambda view: view.members == "ac")
        back = await c.wait_until(lambda view: view.generation == both.generation, after=seen)

    assert list(alone.owned) == EVERYTHING
    assert c.views()[seen].generation == 0
    assert owned([both, back]) == EVERYTHING
    assert len(both.owned) == len(back.owned)


@pytest.mark.slow
@pytest.mark.faults
async def test_a_restarted_broker_moves_nothing(kafka: KafkaStack, topic_name: str, stack: AsyncExitStack) -> None:
    """Members find it again, in the same places or in a new round with the same work; until then they are not ready."""
    a, b = [
        await stack.enter_async_context(
            GroupWorker(kafka.bootstrap, topic_name, name, grace_seconds=60, session_seconds=SESSION_SECONDS)
        )
        for name in "ab"
    ]
    before = [(await worker.wait_until(lambda view: view.members == "ab")).owned for worker in (a, b)]
    await asyncio.to_thread(kafka.kill)
    try:
        # Without a broker nobody knows whether the others still count on it.
        for worker in (a, b):
            while worker.view.generation:
                await asyncio.sleep(0.1)
            assert worker.membership.is_rebalancing
            while worker.readiness[-1]:
                await asyncio.sleep(0.1)
            assert worker.readiness[:2] == [False, True]
    finally:
        await asyncio.to_thread(kafka.restart)
    c = await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, "c", grace_seconds=60))
    views = [await worker.wait_until(lambda view: view.members == "abc") for worker in (a, b, c)]

    assert owned(views) == EVERYTHING
    assert all(set(view.owned) <= set(old) for view, old in zip(views, before, strict=False))
    assert c.readiness[:2] == [False, True]
    for worker in (a, b):
        while not worker.readiness[-1]:
            await asyncio.sleep(0.1)


async def test_a_live_group_of_another_kind_is_refused(
    kafka: KafkaStack, topic_name: str, stack: AsyncExitStack
) -> None:
    """The text says what to do, and nothing is tried again."""
    consumer = AIOKafkaConsumer(
        topic_name, bootstrap_servers=kafka.bootstrap, group_id=topic_name, session_timeout_ms=120_000
    )
    await consumer.start()
    try:
        worker = await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, "a"))
        while worker.membership.failure is None:
            await asyncio.sleep(0.05)
    finally:
        await consumer.stop()

    assert str(worker.membership.failure).startswith(f"group '{topic_name}' has live members of another kind")
    assert worker.view.generation == 0


async def test_two_workers_with_one_url_do_not_both_work(
    kafka: KafkaStack, topic_name: str, stack: AsyncExitStack
) -> None:
    """The second waits, says why, and has the place as soon as the first has gone."""
    async with GroupWorker(kafka.bootstrap, topic_name, "a", grace_seconds=60) as first:
        before = await first.wait_until(lambda view: view.members == "a")
        second = await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, "a", grace_seconds=60))
        while second.membership.trouble is None:
            await asyncio.sleep(0.05)
        assert second.membership.trouble == f"another worker of group '{topic_name}' has the URL http://a:8083/"
        assert second.view.generation == 0
        assert (await first.wait_until(lambda view: view.generation > before.generation)).owned == before.owned
    after = await second.wait_until(lambda view: view.members == "a")

    assert list(after.owned) == EVERYTHING


async def test_a_leader_reads_as_far_as_any_member_has(
    kafka: KafkaStack, topic_name: str, stack: AsyncExitStack
) -> None:
    """Its base speaks of everything that anyone knows."""
    newer = cluster({"c0": 2, "d": 1}, offset=101)
    behind = AssignmentTracker(CONFIG)

    async def catch_up() -> None:
        behind.on_change(ConfigChange(ClusterConfig(newer.offset, newer.connectors), "d"))

    a = await stack.enter_async_context(
        GroupWorker(kafka.bootstrap, topic_name, "a", tracker=behind, catch_up=catch_up)
    )
    await a.wait_until(lambda view: view.leader == "a")
    b = await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, "b", tracker=AssignmentTracker(newer)))
    views = [await worker.wait_until(lambda view: view.members == "ab") for worker in (a, b)]

    assert owned(views) == sorted(map(str, instances(newer)))


@pytest.mark.slow
@pytest.mark.faults
async def test_who_leaves_in_the_middle_of_a_round_is_not_in_it(
    kafka: KafkaStack, topic_name: str, stack: AsyncExitStack, tmp_path: Path
) -> None:
    """While the others wait for a worker that was stopped, one more comes and goes: it is given nothing.

    The round lasts until the stopped one is woken, however long it takes to come and to go.
    """
    with worker_process(kafka.bootstrap, topic_name, "c", log=tmp_path / "c", session_seconds=300.0) as c:
        await c.wait_until(lambda view: view.members == "c")
        c.signal(signal.SIGSTOP)
        a = await stack.enter_async_context(GroupWorker(kafka.bootstrap, topic_name, "a"))
        async with GroupWorker(kafka.bootstrap, topic_name, "b") as b:
            while not b.membership._member._member_id:
                await asyncio.sleep(0.05)
        assert not any(view.generation for view in a.views), "the round was over before: nothing was proven"
        c.signal(signal.SIGCONT)
        await a.wait_until(lambda view: view.members == "ac")

    assert {view.members for view in a.views} <= {"", "ac"}
    assert not any(view.generation for view in b.views)
