"""What a broker answers about topics, sorted by what can be done about it, and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import errors as kafka
from aiokafka.admin import AIOKafkaAdminClient

from service.kafka.admin import KafkaAdmin, MissingTopic, connected
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, DeliveryRetriable


class Answer:
    """One broker's answer to a question about settings."""

    def __init__(self, error: type[kafka.KafkaError], text: str | None = None, *entries: tuple[str, str]) -> None:
        """In the protocol's order of fields."""
        self.resources = [(error.errno, text, 2, "t", list(entries))]


class Brokers:
    """Answers one question after the other."""

    def __init__(self, *answers: Answer) -> None:
        """The answers, in order."""
        self._answers = list(answers)

    async def describe_configs(self, resources: Sequence[object]) -> list[Answer]:
        """As the client's method."""
        del resources
        return [self._answers.pop(0)]


def asking(*answers: Answer) -> KafkaAdmin:
    """An administrator whose brokers answer so."""
    return KafkaAdmin(cast("AIOKafkaAdminClient", cast("Any", Brokers(*answers))))


@pytest.mark.parametrize(
    "error", [kafka.UnknownTopicOrPartitionError, kafka.LeaderNotAvailableError, kafka.RequestTimedOutError]
)
async def test_a_broker_that_lags_behind_is_asked_again(error: type[kafka.KafkaError]) -> None:
    """It may not have heard of a topic that another broker has just made: nobody has to change anything."""
    admin = asking(Answer(error), Answer(kafka.NoError, None, ("cleanup.policy", "compact")))
    with pytest.raises(DeliveryRetriable, match=rf"settings of topic 't' cannot be read: {error.__name__}"):
        await admin.demand_compacted("t", worker_key="offset.storage.topic", purpose="offsets")
    await admin.demand_compacted("t", worker_key="offset.storage.topic", purpose="offsets")


async def test_settings_that_may_not_be_read_are_fatal() -> None:
    """Somebody has to give the permission; the broker's own text says which."""
    admin = asking(Answer(kafka.TopicAuthorizationFailedError, "no DESCRIBE_CONFIGS"))
    with pytest.raises(DeliveryFatal, match=r"settings of topic 't' cannot be read: no DESCRIBE_CONFIGS"):
        await admin.topic_config("t")


class Cluster:
    """Topics by the leader of their one partition; what is made gets a leader when it is next asked for."""

    def __init__(self, leaders: Mapping[str, int]) -> None:
        """With one broker."""
        self.leaders = dict(leaders)
        self.looks = 0
        self.leader_of_new = 0

    async def _send_request(self, request: Any, node_id: int | None = None) -> Any:
        """The metadata of what is asked for."""
        del node_id
        self.looks += 1
        topics = [
            {
                "topic": name,
                "error_code": 0 if name in self.leaders else kafka.UnknownTopicOrPartitionError.errno,
                "partitions": [{"leader": self.leaders[name]}] if name in self.leaders else [],
            }
            for name in request._topics
        ]
        return SimpleNamespace(to_object=lambda: {"topics": topics})

    async def describe_cluster(self) -> Mapping[str, Any]:
        """As the client's method."""
        return {"brokers": [{"node_id": 0}]}

    async def create_topics(self, topics: Sequence[Any]) -> Any:
        """As the client's method."""
        codes = [(topic.name, 36 if topic.name in self.leaders else 0) for topic in topics]
        self.leaders |= {name: self.leader_of_new for name, code in codes if code == 0}
        return SimpleNamespace(topic_errors=codes)


def administering(cluster: Cluster) -> KafkaAdmin:
    """An administrator of this cluster."""
    return KafkaAdmin(cast("AIOKafkaAdminClient", cast("Any", cluster)))


@pytest.mark.looptime
async def test_a_topic_that_is_there_without_leaders_holds_up_no_start() -> None:
    """The broker that has its partition is away: nothing is to be made, and nothing is waited for."""
    cluster = Cluster({"stuck": -1, "there": 0})
    outcomes = await administering(cluster).ensure_topics([MissingTopic(name) for name in ("stuck", "new", "there")])
    assert outcomes == {"new": None}
    assert cluster.looks == 2, "one for what is missing, one for the leader of what was made"
    assert asyncio.get_running_loop().time() == 0, "in virtual time"


@pytest.mark.looptime
async def test_a_topic_that_was_made_without_leaders_is_told() -> None:
    """After a while; whose topic it is tries again."""
    cluster = Cluster({"there": 0})
    cluster.leader_of_new = -1
    outcomes = await administering(cluster).ensure_topics([MissingTopic(name) for name in ("new", "there")])
    assert outcomes.keys() == {"new"}
    assert isinstance(outcomes["new"], DeliveryRetriable)
    assert "'new' have leaders" in str(outcomes["new"])


@pytest.mark.looptime
async def test_a_cancellation_stays_one_beside_a_broker_that_does_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that does not close changes nothing of what was done with it."""

    async def start(_: AIOKafkaAdminClient) -> None:
        return

    async def close(_: AIOKafkaAdminClient) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(AIOKafkaAdminClient, "start", start)
    monkeypatch.setattr(AIOKafkaAdminClient, "close", close)

    async def use(waits: asyncio.Event) -> None:
        async with connected(KafkaSettings(bootstrap="127.0.0.1:1"), doing="asking"):
            await waits.wait()

    waits = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        using = group.create_task(use(waits))
        await asyncio.sleep(1)
        using.cancel()
    assert using.cancelled()
    waits.set()
    await use(waits)
