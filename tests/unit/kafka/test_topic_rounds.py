"""Topics of many connectors are made together, and what is wrong with one connector's is no other's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from service.kafka.admin import MissingTopic
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, KafkaFailure
from service.kafka.standby_admin import StandbyAdmin
from service.kafka.topic_rounds import TopicRounds


class Admin:
    """Remembers what each round asks for; each takes a second, and `failing` spoils those it is part of."""

    def __init__(self, *failing: str) -> None:
        """Nothing asked yet."""
        self._failing = set(failing)
        self.rounds: list[list[str]] = []

    async def use(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """As StandbyAdmin's."""
        return await work(self)

    async def ensure_topics(self, wanted: Iterable[MissingTopic]) -> Mapping[str, KafkaFailure | None]:
        """As KafkaAdmin's; topics named no-… may not be made."""
        names = [topic.name for topic in wanted]
        self.rounds.append(names)
        await asyncio.sleep(1)
        if self._failing.intersection(names):
            raise DeliveryRetriable("the broker has gone")
        return {name: DeliveryFatal("not allowed") if name.startswith("no-") else None for name in names}


def rounds_of(admin: Admin) -> TopicRounds:
    """Rounds that ask `admin`."""
    return TopicRounds(cast("StandbyAdmin", cast("Any", admin)))


async def outcome(rounds: TopicRounds, *topics: MissingTopic) -> str:
    """What becomes of a wish."""
    try:
        await rounds.ensure(topics)
    except KafkaFailure as error:
        return type(error).__name__
    return "there"


@pytest.mark.looptime
async def test_those_who_wait_together_share_a_round() -> None:
    """The first asks alone; of the others each hears of its own topic only."""
    admin = Admin()
    rounds = rounds_of(admin)
    names = ("one", "two", "no-three", "four")
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(outcome(rounds, MissingTopic(name))) for name in names]
    assert [task.result() for task in asking] == ["there", "there", "DeliveryFatal", "there"]
    assert admin.rounds == [["one"], ["two", "no-three", "four"]]


@pytest.mark.looptime
async def test_a_wish_ends_with_its_caller() -> None:
    """A round that failed, or was cancelled, leaves nothing behind that the next could fail at."""
    admin = Admin("away")
    rounds = rounds_of(admin)
    assert await outcome(rounds, MissingTopic("away")) == "DeliveryRetriable"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await rounds.ensure([MissingTopic("away")])
    assert await outcome(rounds, MissingTopic("fine")) == "there"
    assert admin.rounds == [["away"], ["away"], ["fine"]]


@pytest.mark.looptime
async def test_who_waits_beside_a_failing_round_has_another() -> None:
    """With what it wants: an error is the caller's own whose round it was."""
    admin = Admin("away")
    rounds = rounds_of(admin)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(outcome(rounds, MissingTopic(name))) for name in ("one", "away", "fine")]
    assert [task.result() for task in asking] == ["there", "DeliveryRetriable", "there"]
    assert admin.rounds[-1] == ["fine"]


@pytest.mark.parametrize(
    "topic",
    [
        MissingTopic("t", replication=40_000),
        MissingTopic("t", partitions=2**31),
        MissingTopic("t" * 33_000),
        MissingTopic("t-\ud800"),
        MissingTopic("t", config={"retention.ms": "\udc00"}),
    ],
)
async def test_what_no_request_can_say_is_in_none(topic: MissingTopic) -> None:
    """Its own connector is told why; the others' request is not spoilt by it."""
    admin = Admin()
    with pytest.raises(DeliveryFatal, match=r"topic 't.* cannot be created"):
        await rounds_of(admin).ensure([MissingTopic("good"), topic])
    assert admin.rounds == []
