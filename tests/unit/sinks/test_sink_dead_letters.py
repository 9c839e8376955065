"""Dead letters of a sink: what they hold, and what making many of them costs the others."""

from __future__ import annotations

import asyncio
import sys

import numpy as np
import pyarrow as pa
import pytest

from metrics.events import TaskEvents, discard
from service.domain.ids import TaskId
from service.kafka.errors import CommitOutdated, DeliveryRetriable
from service.kafka.library import GroupMember
from service.sinks.batch import Refusal
from service.sinks.dead_letters import DeadLetterRules, Polled, RefusedRecords, dead_letter_records
from tests.unit.sinks.fake_library import TOPIC, polled
from tests.unit.sinks.fakes import FakeLetters, numbers

TASK = TaskId("sink", 3)
RULES = DeadLetterRules(is_tolerant=True, topic="letters", has_headers=True)
MANY = 20_000
MEMBER = GroupMember("connect-sink", 0, "member")
ALL = {(TOPIC, 0): MANY}


def refusal(row: int, message: str = "no") -> Refusal:
    """By the sink."""
    return Refusal(row, "TASK_PUT", "odd", message, "Sink")


def test_a_dead_letter_is_the_record_with_its_own_headers_and_the_reason() -> None:
    """Key, value and timestamp as they were; a timestamp of −1 is none."""
    table = polled([b"a", None, b"c"], begin=7)
    headers = pa.array([None, [{"name": "own", "value": b"x"}, {"name": "null", "value": None}], None])
    table = table.set_column(7, table.schema.field("headers"), headers.cast(table.schema.field("headers").type))
    table = table.set_column(3, "timestamp", pa.array([1, 2, -1], pa.int64()))
    letters = dead_letter_records(table, [refusal(1), refusal(2, "\ud800")], TASK, RULES)
    assert letters.values.to_pylist() == [None, b"c"]
    assert letters.timestamps_ms is not None
    assert letters.timestamps_ms.to_pylist() == [2, None]
    assert letters.headers is not None
    first, second = (list(each) for each in letters.headers)
    assert first[:2] == [("own", b"x"), ("null", None)]
    assert dict(second)["__connect.errors.offset"] == b"9"
    assert dict(second)["__connect.errors.task.id"] == b"3"
    assert dict(second)["__connect.errors.exception.message"] == b"\\ud800"
    bare = dead_letter_records(table, [refusal(0)], TASK, DeadLetterRules(is_tolerant=True, topic="letters"))
    assert bare.headers is None or [list(each) for each in bare.headers] == [[]]


async def test_a_poll_of_dead_letters_does_not_hold_the_event_loop() -> None:
    """Others go on while as many are made as a poll may have records."""
    letters = FakeLetters([])
    refused = RefusedRecords(TASK, RULES, letters, TaskEvents(discard, "sink", 3))
    table = Polled(polled(numbers(MANY)))
    for row in range(MANY):
        refused.add(table, refusal(row))
    async with asyncio.TaskGroup() as group:
        settling = group.create_task(refused.settle(ALL, MEMBER))
        turns = 0
        while not settling.done():
            await asyncio.sleep(0)
            turns += 1
    assert [len(write) for write in letters.written] == [MANY]
    assert turns > 100


def two_refused(letters: FakeLetters) -> tuple[RefusedRecords, Polled]:
    """Of three records the first two, and all may be committed."""
    refused = RefusedRecords(TASK, RULES, letters, TaskEvents(discard, "sink", 3))
    table = Polled(polled(numbers(3)))
    for row in range(2):
        refused.add(table, refusal(row))
    return refused, table


async def test_letters_that_were_not_written_are_written_the_next_time() -> None:
    """A broker that is away makes no refusal forgotten: their offsets would be committed without them."""
    letters = FakeLetters([])
    refused, _ = two_refused(letters)
    errors: list[Exception] = [DeliveryRetriable("broker away")]
    letters.fail = lambda: errors.pop() if errors else None
    with pytest.raises(DeliveryRetriable):
        await refused.settle(ALL, MEMBER)
    assert letters.values == []
    await refused.settle(ALL, MEMBER)
    assert letters.values == [b"0", b"1"]
    await refused.settle(ALL, MEMBER)
    assert letters.values == [b"0", b"1"]


async def test_a_record_that_is_refused_again_during_the_write_has_one_letter() -> None:
    """As one that is refused again later: a put that was given up may go on in a thread. Others keep theirs."""
    letters = FakeLetters([])
    refused, table = two_refused(letters)

    def refuse_again() -> None:
        letters.fail = lambda: None
        refused.add(table, refusal(1, "again"))
        refused.add(table, refusal(2))

    letters.fail = refuse_again
    await refused.settle({(TOPIC, 0): 2}, MEMBER)
    refused.add(table, refusal(0, "again"))
    await refused.settle(ALL, MEMBER)
    assert letters.values == [b"0", b"1", b"2"]


async def test_a_letter_that_waits_for_its_offset_alone_is_not_doubled() -> None:
    """Its poll is let go, and the put that was given up still refuses records of that poll."""
    letters = FakeLetters([])
    refused, table = two_refused(letters)
    table.is_done[:], table.reached = True, table.ends
    await refused.settle({(TOPIC, 0): 1}, MEMBER)
    refused.add(table, refusal(1, "again"))
    await refused.settle(ALL, MEMBER)
    assert letters.values == [b"0", b"1"]


async def test_a_thread_may_refuse_while_letters_are_settled() -> None:
    """As a sink may that flushes records in a thread of its own: none of them is lost, and none has two letters."""
    letters = FakeLetters([])
    refused = RefusedRecords(TASK, RULES, letters, TaskEvents(discard, "sink", 3))
    table = Polled(polled(numbers(MANY)))
    switch_seconds = sys.getswitchinterval()

    def refuse_all() -> None:
        for row in range(MANY):
            refused.add(table, refusal(row))

    sys.setswitchinterval(1e-5)
    try:
        refusing = asyncio.get_running_loop().run_in_executor(None, refuse_all)
        while not refusing.done():
            await refused.settle({(TOPIC, 0): 0}, MEMBER)
            await asyncio.sleep(0)
        await refusing
    finally:
        sys.setswitchinterval(switch_seconds)
    await refused.settle(ALL, MEMBER)
    assert sorted(map(bytes, letters.values)) == sorted(map(bytes, numbers(MANY)))  # type: ignore[arg-type]


async def test_two_who_settle_at_once_write_each_letter_once() -> None:
    """A put that failed for good settles beside others; the second one waits for what the first one writes."""
    letters = FakeLetters([])
    refused, table = two_refused(letters)
    async with asyncio.TaskGroup() as group:
        group.create_task(refused.settle(ALL, MEMBER))
        group.create_task(refused.settle_failed(table, np.array([1])))
    assert letters.values == [b"0", b"1"]


async def test_letters_wait_for_the_offsets_of_their_records() -> None:
    """Written before, they would come twice after a kill; meanwhile nothing is kept of the poll but themselves."""
    letters = FakeLetters([])
    refused, table = two_refused(letters)
    table.is_done[:], table.reached = True, table.ends
    assert await refused.settle({(TOPIC, 0): 1}, MEMBER)
    assert letters.values == [b"0"]
    assert letters.group.committed == 1
    [(kept, refusals)] = refused._waiting.items()
    assert kept.records.column("value").to_pylist() == [b"1"]
    assert list(refusals) == [0]
    assert await refused.settle({(TOPIC, 0): 3}, MEMBER)
    assert letters.values == [b"0", b"1"]
    assert letters.group.committed == 3
    assert not refused.has_waiting


async def test_a_member_that_the_group_has_given_up_writes_no_letters() -> None:
    """Whoever has its partitions now refuses the records again."""
    letters = FakeLetters([])
    refused, _ = two_refused(letters)
    letters.group.generation = 1
    with pytest.raises(CommitOutdated):
        await refused.settle(ALL, MEMBER)
    assert letters.values == []
    assert letters.group.committed is None
