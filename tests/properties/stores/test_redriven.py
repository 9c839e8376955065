"""A connector that reads its days again, and redrives of its letters: whatever comes first, each record once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fetchers.sdk import DedupeScope
from service.pipeline.duplicates import Hashes, Judged, fresh_among
from service.redrive.remembered import RememberedByTasks
from service.stores.dedupe_store import StoredDedupe
from tests.properties.stores.dedupe_topic import CONNECTOR, DAYS, FakeTopic, StoreOf, hashes_of

TASKS = 2
ALL_TRUE = np.ones(1, dtype=bool)
NUMBERS = st.lists(st.integers(0, 11), max_size=8)


def day_of(number: int) -> str:
    """A record is always read in the same window."""
    return DAYS[number % len(DAYS)]


def task_of(number: int) -> int:
    """And by the same task."""
    return number // len(DAYS) % TASKS


def read_by(task: int, numbers: list[int], day: str) -> list[int]:
    """Those of one task and day."""
    return [number for number in numbers if (task_of(number), day_of(number)) == (task, day)]


def stand_in(topic: FakeTopic) -> RememberedByTasks:
    """The state of a redrive that has just begun."""
    store = StoreOf(topic)

    async def load_tasks() -> Mapping[int, StoredDedupe]:
        tasks = {0, *await store.tasks_of(CONNECTOR)}
        return await store.load_tasks(CONNECTOR, tasks, lambda task: store.open(CONNECTOR, task))

    state = RememberedByTasks(load_tasks)
    asyncio.run(state.load())
    return state


@dataclass
class Accounts:
    """What came of each number."""

    delivered: list[int] = field(default_factory=list)
    letters: list[int] = field(default_factory=list)
    """Not redriven yet."""
    read: set[int] = field(default_factory=set)


class RedrivenConnector(RuleBasedStateMachine):
    """The contract lets pass all numbers below a bound, which may be changed at any time."""

    def __init__(self) -> None:
        """Nothing was read."""
        super().__init__()
        self.topic, self.accounts = FakeTopic(), Accounts()
        self.bound = 6
        self.oldest_open = DAYS[0]

    @rule(bound=st.integers(0, 12))
    def change_contract(self, bound: int) -> None:
        """Connector and redrive both go by it."""
        self.bound = bound

    @rule(numbers=NUMBERS)
    def read(self, numbers: list[int]) -> None:
        """A fresh incarnation of each task reads some records, some of them again."""
        for task in range(TASKS):
            state = self.topic.open(task=task)
            for day in DAYS:
                self._read(state, read_by(task, numbers, day), day)

    def _read(self, state: StoredDedupe, numbers: list[int], day: str) -> None:
        if not numbers or day < self.oldest_open:
            return
        self.topic.write(state.encode([(DedupeScope(day, self.oldest_open), self._settled(state, numbers, day))]))
        state.commit()

    def _settled(self, state: StoredDedupe, numbers: list[int], day: str) -> Hashes:
        """What is noted of records of one day, which are delivered or become letters."""
        self.accounts.read |= set(numbers)
        judged = self._judged(numbers)
        fresh, noted = fresh_among(judged, state, window=day)
        for number, rejected, is_fresh in zip(numbers, judged.is_rejected, fresh, strict=True):
            if is_fresh:
                (self.accounts.letters if rejected else self.accounts.delivered).append(number)
        return noted

    def _judged(self, numbers: list[int]) -> Judged:
        is_rejected = np.array([number >= self.bound for number in numbers], dtype=bool)
        return Judged(hashes_of(numbers), np.ones(len(numbers), dtype=bool), is_rejected)

    @rule(count=st.integers(0, 20), fate=st.sampled_from("cca"))
    def redrive(self, count: int, fate: str) -> None:
        """The oldest letters; those that fail again stay. The transaction is committed, or aborted."""
        tried = self.accounts.letters[:count]
        state, judged = stand_in(self.topic), self._judged(tried)
        if fate == "a":
            state.encode([(None, fresh_among(judged, state, window="")[1])])
            state.rollback()
        fresh, noted = fresh_among(judged, state, window="")
        writes = state.encode([(None, noted)])
        self.topic.write(writes)
        state.commit()
        failed_again: list[int] = []
        for number, rejected, is_fresh in zip(tried, judged.is_rejected, fresh, strict=True):
            if is_fresh:
                (failed_again if rejected else self.accounts.delivered).append(number)
        self.accounts.letters = self.accounts.letters[count:] + failed_again

    @rule(day=st.sampled_from(DAYS), numbers=NUMBERS)
    def close_days(self, day: str, numbers: list[int]) -> None:
        """The tasks forget the days before this one, some of whose records the same micro-batch still holds."""
        was_open, self.oldest_open = self.oldest_open, max(self.oldest_open, day)
        for task in range(TASKS):
            state = self.topic.open(task=task)
            noted = [
                (DedupeScope(each, was_open), self._settled(state, read_by(task, numbers, each), each))
                for each in DAYS
                if each >= was_open
            ]
            self.topic.write(state.encode([*noted, (DedupeScope(DAYS[2], self.oldest_open), hashes_of([]))]))
            state.commit()

    @invariant()
    def each_is_delivered_once(self) -> None:
        """By whichever way."""
        assert len(self.accounts.delivered) == len(set(self.accounts.delivered))

    @invariant()
    def nothing_is_lost(self) -> None:
        """What was read is delivered, or a letter."""
        assert self.accounts.read == {*self.accounts.delivered, *self.accounts.letters}

    @invariant()
    def no_letter_is_there_twice(self) -> None:
        """A bad record that is read again is known, also after a redrive it failed in."""
        assert len(self.accounts.letters) == len(set(self.accounts.letters))


TestRedrivenConnector = RedrivenConnector.TestCase
TestRedrivenConnector.settings = settings(deadline=None, max_examples=100)


def test_what_nobody_remembers_is_redriven_once() -> None:
    """Letters from before the connector de-duplicated, or out of its sliding window."""
    topic = FakeTopic()
    for expected in ([True, False, True], [False, False, False]):
        state, hashes = stand_in(topic), hashes_of([1, 1, 2])
        fresh = state.fresh_mask(hashes, np.ones(3, dtype=bool), "")
        assert fresh.tolist() == expected
        topic.write(state.encode([(None, hashes[fresh])]))
        state.commit()
    assert topic.live() == [[CONNECTOR, 0, "", 0]]


def test_a_letter_that_came_good_is_known_after_its_day_was_closed() -> None:
    """Rejected, read again and delivered, its day closed, and only then redriven; and a second day of it."""
    topic, scope = FakeTopic(), DedupeScope(DAYS[0], DAYS[0])
    for is_rejected in (True, False):
        reading = topic.open()
        judged = Judged(hashes_of([5]), ALL_TRUE, np.array([is_rejected]))
        topic.write(reading.encode([(scope, fresh_among(judged, reading, window=DAYS[0])[1])]))
    for oldest_open in DAYS[1:]:
        topic.write(topic.open().encode([(DedupeScope(DAYS[2], oldest_open), hashes_of([]))]))
    assert topic.live() == [[CONNECTOR, 0, "", 2]]
    assert not fresh_among(judged_good([5]), stand_in(topic), window="")[0].any()


@pytest.mark.parametrize("is_one_batch", [False, True])
def test_a_letter_that_came_good_in_the_micro_batch_that_closes_its_day_is_known(*, is_one_batch: bool) -> None:
    """Rejected before or in that micro-batch itself, whose later page closes the day: delivered once."""
    topic, scope = FakeTopic(), DedupeScope(DAYS[0], DAYS[0])
    state, closing = topic.open(), (DedupeScope(DAYS[1], DAYS[1]), hashes_of([]))
    bad = (scope, fresh_among(Judged(hashes_of([5]), ALL_TRUE, ALL_TRUE), state, window=DAYS[0])[1])
    if not is_one_batch:
        topic.write(state.encode([bad]))
        state.commit()
    good = (scope, fresh_among(judged_good([5]), state, window=DAYS[0])[1])
    topic.write(state.encode([*([bad] if is_one_batch else []), good, closing]))
    assert not fresh_among(judged_good([5]), stand_in(topic), window="")[0].any()


def test_what_the_redrive_adds_lies_where_the_rejected_record_is() -> None:
    """The window is the letter's, and so is the task."""
    topic = FakeTopic()
    state = topic.open(task=1)
    scope = DedupeScope(DAYS[1], DAYS[0])
    state.fresh_mask(~hashes_of([5]), np.ones(1, dtype=bool), scope.window)
    topic.write(state.encode([(scope, ~hashes_of([5]))]))
    redriven = stand_in(topic)
    topic.write(redriven.encode([(None, hashes_of([5]))]))
    assert topic.live() == [[CONNECTOR, 1, DAYS[1], 0], [CONNECTOR, 1, DAYS[1], 1]]
    heir = topic.open(task=1)
    assert not heir.fresh_mask(hashes_of([5]), np.ones(1, dtype=bool), DAYS[1]).any()


def test_what_was_remembered_by_other_bytes_is_not_brought_again() -> None:
    """A payload that could not be read was remembered by all its bytes; what passes now goes by its fields."""
    topic, scope = FakeTopic(), DedupeScope(DAYS[1], DAYS[0])
    for day, numbers in ((DAYS[1], [5]), (DAYS[2], [6])):
        reading = topic.open()
        _, noted = fresh_among(judged_good(numbers), reading, window=day)
        topic.write(reading.encode([(DedupeScope(day, DAYS[0]), noted)]))
    redriven = stand_in(topic)
    fresh, noted = fresh_among(judged_good([7]), redriven, window="")
    assert fresh.all()
    topic.write(redriven.encode([(None, noted)]))
    assert not fresh_among(judged_good([7]), topic.open(), window=scope.window)[0].any()
    assert not fresh_among(judged_good([7]), stand_in(topic), window="")[0].any()


def test_letters_of_two_windows_with_one_hash_are_one_record() -> None:
    """The second is no letter while the first's window is open; delivered once, it comes again with neither day."""
    topic = FakeTopic()
    for day in DAYS[:2]:
        reading, bad = topic.open(), Judged(hashes_of([5]), ALL_TRUE, ALL_TRUE)
        topic.write(reading.encode([(DedupeScope(day, DAYS[0]), fresh_among(bad, reading, window=day)[1])]))
    redriven = stand_in(topic)
    fresh, noted = fresh_among(judged_good([5, 5]), redriven, window="")
    assert fresh.tolist() == [True, False]
    topic.write(redriven.encode([(None, noted)]))
    for day in DAYS[:2]:
        assert not fresh_among(judged_good([5]), topic.open(), window=day)[0].any()


def test_a_letter_that_fails_again_stays_behind_a_good_one_with_its_hash() -> None:
    """Of two windows: which of the two records was delivered is not for its equal to say."""
    topic = FakeTopic()
    for day in DAYS[:2]:
        reading, bad = topic.open(), Judged(hashes_of([5]), ALL_TRUE, ALL_TRUE)
        topic.write(reading.encode([(DedupeScope(day, DAYS[0]), fresh_among(bad, reading, window=day)[1])]))
    good_then_bad = Judged(hashes_of([5, 5]), np.ones(2, dtype=bool), np.array([False, True]))
    fresh, noted = fresh_among(good_then_bad, stand_in(topic), window="")
    assert fresh.all()
    assert len(noted) == 1


def judged_good(numbers: list[int]) -> Judged:
    """Records that pass."""
    count = len(numbers)
    return Judged(hashes_of(numbers), np.ones(count, dtype=bool), np.zeros(count, dtype=bool))
