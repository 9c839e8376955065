"""Logs of state in real topics: what they are made as, what is refused, who may write, what an outage does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from metrics.events import Emit, StateLogInterrupted, StateLogResumed, discard
from metrics.fanout import RecordingEmitter
from service.domain.cluster import ConfigChange, RestartRequest
from service.domain.states import TargetState
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, WriterFenced
from service.stores.config_log import ConfigLog
from service.stores.kafka_log import KafkaStateLog, LogClients
from service.stores.state_log import ClaimMissing
from service.stores.state_topic import StateKind, StateTopic
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(kafka: KafkaStack) -> KafkaSettings:
    """Settings for the run's broker."""
    return KafkaSettings(bootstrap=kafka.bootstrap)


@asynccontextmanager
async def opened(
    settings: KafkaSettings,
    topic: str,
    *,
    listener: Callable[[ConfigChange], None] = lambda _: None,
    emit: Emit = discard,
) -> AsyncIterator[ConfigLog]:
    """A started store that does not lead."""
    log = KafkaStateLog(
        StateTopic.of(StateKind.CONFIG, topic),
        LogClients(settings, settings),
        emit=emit,
        leader_id=f"connect-cluster-{topic}",
    )
    store = ConfigLog(log, emit=discard)
    store.listen(listener)
    try:
        await store.start()
        yield store
    finally:
        await store.stop()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what another store has written."""
    async with asyncio.timeout(180):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_topics_are_made_as_the_worker_says(settings: KafkaSettings, topic_name: str) -> None:
    """Compacted, with the partitions and settings of the worker's keys; the clean-up is not to be chosen."""
    properties = {
        "status.storage.topic": topic_name,
        "status.storage.replication.factor": "-1",
        "status.storage.segment.ms": "600000",
        "status.storage.cleanup.policy": "delete",
        "config.storage.retention.ms": "1",
    }
    topic = StateTopic.of(StateKind.STATUS, topic_name, partitions=3, replication=-1, worker_properties=properties)
    await topic.ensure(settings)
    await topic.ensure(settings)
    async with KafkaAdmin.opened(settings) as admin:
        config = await admin.topic_config(topic_name)
        assert (config["cleanup.policy"], config["segment.ms"]) == ("compact", "600000")
        assert config["retention.ms"] != "1"
        assert await admin.partition_count(topic_name) == 3


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ((2, "compact"), r"required to have a single partition .* but found 2 partitions\. Create a topic with one"),
        ((1, "delete"), r"required to have 'cleanup\.policy=compact' .* connector configurations"),
        ((1, "compact,delete"), r"currently has 'cleanup\.policy=compact,delete'"),
    ],
)
async def test_a_config_topic_that_could_lose_state_is_refused(
    settings: KafkaSettings, topic_name: str, made: tuple[int, str], expected: str
) -> None:
    """In Connect's words, with what to do about it."""
    partitions, policy = made
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic_name, partitions=partitions, config={"cleanup.policy": policy})
    with pytest.raises(DeliveryFatal, match=expected):
        async with opened(settings, topic_name):
            pass


async def test_a_leader_that_was_replaced_cannot_write(settings: KafkaSettings, topic_name: str) -> None:
    """It hears of it with its next write, keeps following the log, and may claim again only by being told to."""
    async with opened(settings, topic_name) as old, opened(settings, topic_name) as new:
        await old.claim_leadership()
        await old.put_connector("c", {"by": "old"})
        await new.claim_leadership()
        assert new.config.connectors["c"].config == {"by": "old"}
        await new.put_connector("c", {"by": "new"})
        for error in (WriterFenced, ClaimMissing):
            with pytest.raises(error):
                await old.put_connector("c", {"by": "zombie"})
            assert not old.is_leader
        await old.put_target_state("c", TargetState.PAUSED)
        assert (old.config.connectors["c"].config, new.is_leader) == ({"by": "new"}, True)
        await new.put_tasks("c", [{"by": "new"}])
        await until(lambda: old.config == new.config)


async def test_requests_to_restart_act_only_on_who_reads_them_live(settings: KafkaSettings, topic_name: str) -> None:
    """Whoever starts later hears of the connectors, not of old requests."""
    request = RestartRequest("c", is_failed_only=False, has_tasks=True)
    live: list[ConfigChange] = []
    late: list[ConfigChange] = []
    async with opened(settings, topic_name) as leader, opened(settings, topic_name, listener=live.append):
        await leader.claim_leadership()
        await leader.put_connector("c", {})
        await leader.put_restart(request)
        await leader.put_logger_level("org", "DEBUG")
        await until(lambda: len(live) == 3)
        async with opened(settings, topic_name, listener=late.append) as newcomer:
            assert newcomer.config == leader.config
    assert [change.restart for change in live] == [None, request, None]
    assert [change.logger for change in live] == [None, None, ("org", "DEBUG")]
    assert [(change.connector, change.restart, change.logger) for change in late] == [
        ("c", None, None),
        ("c", None, None),
        (None, None, None),
    ]


@pytest.mark.faults
async def test_an_outage_of_the_broker_is_outlasted(
    kafka: KafkaStack, settings: KafkaSettings, topic_name: str
) -> None:
    """Writes during it wait or fail as "safe to retry"; afterwards each record is heard once, in order."""
    heard: list[ConfigChange] = []
    async with opened(settings, topic_name, listener=heard.append) as store:
        await store.put_target_state("a", TargetState.PAUSED)
        kafka.kill()
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_written(store))
            await asyncio.to_thread(kafka.restart)
        if not writing.result():
            await store.put_target_state("b", TargetState.PAUSED)
        await store.claim_leadership()
        await store.put_connector("c", {})
    offsets = [change.after.offset for change in heard]
    assert offsets == sorted(set(offsets))
    assert {change.connector for change in heard} == {"a", "b", "c"}


async def test_a_bug_in_whoever_hears_does_not_end_the_reading(settings: KafkaSettings, topic_name: str) -> None:
    """It is told with its place in the code, and the records after it are heard."""
    emitter = RecordingEmitter()
    heard: list[str | None] = []

    def hear(change: ConfigChange) -> None:
        if change.connector == "odd" and not emitter.of(StateLogInterrupted):
            raise RuntimeError("a bug")
        heard.append(change.connector)

    async with opened(settings, topic_name, listener=hear, emit=emitter) as store:
        await store.put_target_state("even", TargetState.PAUSED)
        await store.put_target_state("odd", TargetState.PAUSED)
        await store.put_target_state("last", TargetState.PAUSED)
    (told,) = emitter.of(StateLogInterrupted)
    assert "RuntimeError: a bug" in told.reason
    assert f"{Path(__file__).name}:" in told.reason
    assert len(emitter.of(StateLogResumed)) == 1
    assert heard == ["even", "last"]


async def _written(store: ConfigLog) -> bool:
    try:
        await store.put_target_state("b", TargetState.PAUSED)
    except DeliveryRetriable:
        return False
    return True
