"""Asking, writing and making topics together: whoever asks in time is served, and nobody's failure is another's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

import pytest

from service.kafka.admin import MissingTopic
from service.kafka.errors import DeliveryFatal, DeliveryRetriable, KafkaFailure
from service.kafka.sharing import CommitTogether, SharedRounds, StandbyAdmin, TopicRounds


class Errand:
    """Counts its runs; each takes a second of virtual time."""

    def __init__(self) -> None:
        """Nothing ran yet."""
        self.runs = 0
        self.running = 0
        self.fails_in: int | None = None

    async def __call__(self) -> int:
        """The number of the run."""
        self.runs += 1
        number = self.runs
        self.running += 1
        assert self.running == 1
        try:
            await asyncio.sleep(1)
        finally:
            self.running -= 1
        if number == self.fails_in:
            raise OSError("broken")
        return number


@pytest.mark.looptime
async def test_a_thousand_who_ask_together_cost_two_runs() -> None:
    """The first asks alone, the second run is everybody else's."""
    errand = Errand()
    rounds = SharedRounds(errand)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(rounds.answer()) for _ in range(1000)]
    assert [task.result() for task in asking] == [1] + [2] * 999
    assert errand.runs == 2


@pytest.mark.looptime
async def test_who_asks_during_a_run_waits_for_the_next() -> None:
    """What is written during a run may be missing from its answer."""
    rounds = SharedRounds(Errand())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(rounds.answer())
        await asyncio.sleep(0.5)
        second = group.create_task(rounds.answer())
    assert (first.result(), second.result()) == (1, 2)
    assert await rounds.answer() == 3


@pytest.mark.looptime
async def test_an_error_is_nobody_elses() -> None:
    """Whose run fails hears of it; the others get a run that succeeds. So it is with cancellation."""
    errand = Errand()
    errand.fails_in = 1
    rounds = SharedRounds(errand)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(answered(rounds)) for _ in range(3)]
    assert [task.result() for task in asking] == ["broken", 2, 2]
    async with asyncio.TaskGroup() as group:
        cancelled, other = (group.create_task(answered(rounds)) for _ in range(2))
        await asyncio.sleep(0.5)
        cancelled.cancel()
    assert other.result() == 4


async def answered(rounds: SharedRounds[int]) -> int | str:
    """The answer, or the text of the error."""
    try:
        return await rounds.answer()
    except OSError as error:
        return str(error)


@pytest.mark.looptime
async def test_an_answer_may_last() -> None:
    """So long nobody's question is asked again, counted from when it was; an error lasts for no time at all."""
    errand = Errand()
    errand.fails_in = 1
    rounds = SharedRounds(errand, lasting_seconds=10)
    assert [await answered(rounds), await answered(rounds)] == ["broken", 2]
    await asyncio.sleep(8.5)
    assert await rounds.answer() == 2
    await asyncio.sleep(1)
    assert await rounds.answer() == 3


class Commits:
    """Takes a second of virtual time for each commit; those with a "bad" item fail."""

    def __init__(self) -> None:
        """Nothing is written yet."""
        self.written: list[list[str]] = []

    async def __call__(self, items: list[str]) -> None:
        """All or none."""
        await asyncio.sleep(1)
        if "bad" in items:
            raise OSError("refused")
        self.written.append(items)


@pytest.mark.looptime
async def test_who_waits_travels_with_the_next_commit() -> None:
    """A hundred writers need two commits, in the order in which they came."""
    commits = Commits()
    together = CommitTogether(commits)
    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(together.write([f"{number}", "x"]))
    assert commits.written == [["0", "x"], [item for number in range(1, 100) for item in (f"{number}", "x")]]


@pytest.mark.looptime
async def test_an_error_is_told_to_all_who_travelled_in_it() -> None:
    """And to nobody else."""
    commits = Commits()
    together = CommitTogether(commits)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(written(together, "first"))
        await asyncio.sleep(0.5)
        failing = [group.create_task(written(together, item)) for item in ("bad", "good")]
        await asyncio.sleep(1)
        later = group.create_task(written(together, "later"))
    assert [task.result() for task in (first, *failing, later)] == ["", "refused", "refused", ""]
    assert commits.written == [["first"], ["later"]]


@pytest.mark.looptime
async def test_who_is_cancelled_takes_nobody_along() -> None:
    """A carrier leaves the others to the next; who only waits leaves alone."""
    commits = Commits()
    together = CommitTogether(commits)
    async with asyncio.TaskGroup() as group:
        carrier, waiting, other = (
            group.create_task(together.write([name])) for name in ("carrier", "waiting", "other")
        )
        await asyncio.sleep(0.5)
        carrier.cancel()
        waiting.cancel()
        await asyncio.sleep(0.1)
        last = group.create_task(together.write(["last"]))
    assert (carrier.cancelled(), waiting.cancelled()) == (True, True)
    assert (other.result(), last.result()) == (None, None)
    assert commits.written == [["other"], ["last"]]


async def written(together: CommitTogether[str], item: str) -> str:
    """What became of it."""
    try:
        await together.write([item])
    except OSError as error:
        return str(error)
    return ""


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


async def made(rounds: TopicRounds, *topics: MissingTopic) -> str:
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
        asking = [group.create_task(made(rounds, MissingTopic(name))) for name in names]
    assert [task.result() for task in asking] == ["there", "there", "DeliveryFatal", "there"]
    assert admin.rounds == [["one"], ["two", "no-three", "four"]]


@pytest.mark.looptime
async def test_a_wish_ends_with_its_caller() -> None:
    """A round that failed, or was cancelled, leaves nothing behind that the next could fail at."""
    admin = Admin("away")
    rounds = rounds_of(admin)
    assert await made(rounds, MissingTopic("away")) == "DeliveryRetriable"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await rounds.ensure([MissingTopic("away")])
    assert await made(rounds, MissingTopic("fine")) == "there"
    assert admin.rounds == [["away"], ["away"], ["fine"]]


@pytest.mark.looptime
async def test_who_waits_beside_a_failing_round_has_another() -> None:
    """With what it wants: an error is the caller's own whose round it was."""
    admin = Admin("away")
    rounds = rounds_of(admin)
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(made(rounds, MissingTopic(name))) for name in ("one", "away", "fine")]
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
