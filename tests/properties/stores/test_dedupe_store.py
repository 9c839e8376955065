"""What the de-duplication state writes into a transaction is what a new incarnation needs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from fetchers.sdk import DedupeScope
from metrics.events import Event, StateRecordSkipped
from service.kafka.records import TopicRecords
from service.stores.dedupe import DedupeLimits
from service.stores.dedupe_chunks import CHUNK_BYTES_MAX, MERGED_CHUNKS, SEALED_HASHES
from service.stores.dedupe_records import partition_of
from service.stores.dedupe_store import StoredDedupe
from service.stores.hashes import HASH_BYTES
from service.stores.jackson import to_json
from tests.properties.stores.dedupe_topic import DAYS, FakeTopic, StoreOf, hashes_of


def see(state: StoredDedupe, numbers: list[int], scope: DedupeScope | None) -> tuple[list[int], list[TopicRecords]]:
    """Ask about a batch as the deliver stage does: which are fresh, and what to write."""
    hashes = hashes_of(numbers)
    mask = state.fresh_mask(hashes, np.ones(len(numbers), dtype=bool), scope.window if scope else "")
    fresh = [number for number, is_fresh in zip(numbers, mask, strict=True) if is_fresh]
    return fresh, state.encode([(scope, hashes[mask])])


class CrashingTask(RuleBasedStateMachine):
    """Over commits, aborts and kills, every number is fresh in one committed batch while the day of that is open."""

    def __init__(self) -> None:
        """Begin with an empty topic."""
        super().__init__()
        self.topic = FakeTopic()
        self.state = self.topic.open()
        self.delivered: dict[str, set[int]] = {}
        self.oldest_open = DAYS[0]

    @rule(numbers=st.lists(st.integers(0, 9), max_size=8), day=st.sampled_from(DAYS), fate=st.sampled_from("cak"))
    def batch(self, numbers: list[int], day: str, fate: str) -> None:
        """A batch is converted, and its transaction committed, aborted, or cut off by a kill."""
        if day < self.oldest_open:
            return
        fresh, writes = see(self.state, numbers, DedupeScope(day, self.oldest_open))
        known = self.delivered.setdefault(day, set())
        assert set(fresh) == set(numbers).difference(*self.delivered.values())
        assert len(fresh) == len(set(fresh))
        if fate == "c":
            self.topic.write(writes)
            self.state.commit()
            known |= set(fresh)
        elif fate == "a":
            self.state.rollback()
        else:
            self.state = self.topic.open()

    @rule(numbers=st.lists(st.integers(0, 9), max_size=8))
    def kill_after_commit(self, numbers: list[int]) -> None:
        """The transaction is committed, but the worker dies before it hears of it."""
        fresh, writes = see(self.state, numbers, DedupeScope(DAYS[2], self.oldest_open))
        self.topic.write(writes)
        self.delivered.setdefault(DAYS[2], set()).update(fresh)
        self.state = self.topic.open()

    @rule(day=st.sampled_from(DAYS))
    def close_days(self, day: str) -> None:
        """Days before this one are closed; their chunks are gone from the topic with that commit."""
        self.oldest_open = max(self.oldest_open, day)
        _, writes = see(self.state, [], DedupeScope(DAYS[2], self.oldest_open))
        self.topic.write(writes)
        self.state.commit()
        assert all(str(key[2]) >= self.oldest_open for key in self.topic.live())
        self.delivered = {day: known for day, known in self.delivered.items() if day >= self.oldest_open}


TestCrashingTask = CrashingTask.TestCase
TestCrashingTask.settings = settings(deadline=None, max_examples=60)


def test_keys_and_values_are_as_documented() -> None:
    """A chunk's key is connector, task, window and number; its value the packed hashes."""
    topic = FakeTopic()
    state = topic.open()
    fresh, writes = see(state, [1, 2, 1], DedupeScope("2024-01-01", "2024-01-01"))
    assert fresh == [1, 2]
    topic.write(writes)
    assert topic.records == {b'["c",0,"2024-01-01",0]': hashes_of([1, 2]).tobytes()}


def test_large_batches_are_split() -> None:
    """No chunk is larger than half a mebibyte, and together they hold everything."""
    topic = FakeTopic()
    state = topic.open()
    numbers = list(range(CHUNK_BYTES_MAX // HASH_BYTES * 2 + 1))
    _, writes = see(state, numbers, None)
    topic.write(writes)
    assert [len(value or b"") for value in topic.records.values()] == [CHUNK_BYTES_MAX, CHUNK_BYTES_MAX, HASH_BYTES]
    assert see(topic.open(), numbers, None)[0] == []


def test_tasks_do_not_see_each_other() -> None:
    """The chunks of another task, or of something else in the topic, are passed over."""
    topic = FakeTopic()
    topic.write(see(topic.open(task=1), [1], None)[1])
    topic.records |= {b"not json": b"x", b'["c",0]': b"x", b'["c",true,"",0]': b"x" * 16}
    assert see(topic.open(), [1], None)[0] == [1]


FOREIGN = {
    b"[" * 100_000: b"x",
    b"not json": b"x",
    b'["c",true,"",0]': b"x" * HASH_BYTES,
    b'["c",0,"",1]': b"short",
}


@pytest.mark.parametrize("key", FOREIGN, ids=lambda key: key[:16].decode())
async def test_what_somebody_else_wrote_into_the_topic_is_told_of_and_passed_over(key: bytes) -> None:
    """Brackets that no parser follows, and values that are no whole hashes, stop no task."""
    topic, told = FakeTopic(), list[Event]()
    topic.write(see(topic.open(), [1], None)[1])
    topic.records[key] = FOREIGN[key]
    state = StoreOf(topic, emit=told.append).open("c", 0)
    await state.load()
    (skipped,) = told
    assert isinstance(skipped, StateRecordSkipped)
    assert (skipped.topic, skipped.offset) == ("dedupe", 1)
    assert see(state, [1, 2], None)[0] == [2]


DAY = DedupeScope("2024-01-01", "2024-01-01")


@pytest.mark.parametrize("scope", [DAY, None], ids=["a day", "no window"])
def test_small_chunks_are_merged(scope: DedupeScope | None) -> None:
    """A slow source leaves few chunks in the topic, not one for every micro-batch; each commit writes little."""
    topic = FakeTopic()
    state = topic.open()
    for number in range(5_000):
        _, writes = see(state, [number], scope)
        topic.write(writes)
        state.commit()
        (write,) = writes
        assert len(write) <= 3 * MERGED_CHUNKS
        assert write.values.nbytes <= 2 * SEALED_HASHES * HASH_BYTES
    assert len(topic.live()) <= 5_000 // SEALED_HASHES + 3 * MERGED_CHUNKS
    assert see(topic.open(), list(range(5_000)), scope)[0] == []


@pytest.mark.parametrize("scope", [DAY, None], ids=["a day", "no window"])
def test_chunks_of_former_versions_are_merged_little_by_little(scope: DedupeScope | None) -> None:
    """One for each micro-batch of months: a commit each merges some of them, and nothing is forgotten."""
    topic = FakeTopic()
    window = scope.window if scope else ""
    topic.records |= {
        to_json(["c", 0, window, number]).encode(): hashes_of([number]).tobytes() for number in range(9_000)
    }
    state = topic.open()
    for number in range(9_000, 9_006):
        topic.write(see(state, [number], scope)[1])
        state.commit()
        if number % 3 == 0:
            state = topic.open()
            assert see(state, list(range(number + 1)), scope)[0] == []
            state.rollback()
    assert len(topic.live()) <= 9_006 // SEALED_HASHES + 3 * MERGED_CHUNKS
    assert see(topic.open(), list(range(9_006)), scope)[0] == []


def test_without_windows_the_topic_is_bounded_too() -> None:
    """The sliding window's oldest chunks are forgotten in the topic as well, the newest never."""
    limits = DedupeLimits(records_max=100)
    topic = FakeTopic()
    state = topic.open(limits=limits)
    for start in range(0, 1000, 10):
        fresh, writes = see(state, list(range(start, start + 10)), None)
        assert len(fresh) == 10
        topic.write(writes)
        state.commit()
        assert len(topic.live()) <= 10
    newest = list(range(920, 1000))
    assert see(state, newest, None)[0] == []
    assert see(topic.open(limits=limits), newest, None)[0] == []


def test_an_unchanged_state_writes_nothing() -> None:
    """A batch of repeats alone needs no record."""
    topic = FakeTopic()
    state = topic.open()
    topic.write(see(state, [1], None)[1])
    state.commit()
    assert see(state, [1], None) == ([], [])


SPREAD = 40
"""Chunks that former versions left in a topic of several partitions, each where its key belongs."""


def spread_topic() -> FakeTopic:
    """One chunk for each of the numbers, of one task."""
    topic = FakeTopic(partitions=5)
    topic.place_by_key({to_json(["c", 0, "", at]).encode(): hashes_of([at]).tobytes() for at in range(SPREAD)})
    assert all(topic.partitions)
    return topic


async def loaded(topic: FakeTopic) -> StoredDedupe:
    """A new incarnation of the task."""
    state = StoreOf(topic).open("c", 0)
    await state.load()
    return state


async def test_chunks_that_were_placed_by_their_keys_are_all_found_at_every_start() -> None:
    """Also when further chunks have joined them, and when some of them were merged."""
    topic = spread_topic()
    for number in range(SPREAD, SPREAD + 40):
        state = await loaded(topic)
        fresh, writes = see(state, list(range(number + 1)), None)
        assert fresh == [number]
        topic.write(writes)
        state.commit()
    assert len(topic.live()) < SPREAD + 40
    state = await loaded(topic)
    assert len(state.index) == SPREAD + 40


async def test_closing_a_window_forgets_its_chunks_in_whatever_partition_they_are() -> None:
    """A tombstone in another partition would leave them for ever."""
    topic = FakeTopic(partitions=5)
    topic.place_by_key({to_json(["c", 0, DAYS[0], at]).encode(): hashes_of([at]).tobytes() for at in range(SPREAD)})
    state = await loaded(topic)
    topic.write(see(state, [SPREAD], DedupeScope(DAYS[1], DAYS[1]))[1])
    assert [place[2] for place in topic.live()] == [DAYS[1]]


async def test_a_reset_forgets_the_chunks_of_a_connector_in_whatever_partition_they_are() -> None:
    """Everything comes anew, and what comes is remembered in one partition alone."""
    topic = spread_topic()
    topic.write(await StoreOf(topic).forgotten("c"))
    assert topic.live() == []
    state = await loaded(topic)
    topic.write(see(state, [1], None)[1])
    home = partition_of(("c", 0), 5)
    assert [at for at, records in enumerate(topic.partitions) if any(records.values())] == [home]


async def test_a_redrive_loads_chunks_that_were_placed_by_their_keys() -> None:
    """And adds to them so that the task finds everything."""
    topic = spread_topic()
    store = StoreOf(topic)
    state = (await store.load_tasks("c", [0], lambda task: store.open("c", task)))[0]
    assert see(state, list(range(SPREAD)), None)[0] == []
    topic.write(see(state, [SPREAD], None)[1])
    assert see(await loaded(topic), list(range(SPREAD + 1)), None)[0] == []
