"""Dead letters of a sink: what they hold, and what making many of them costs the others."""

from __future__ import annotations

import asyncio

import pyarrow as pa

from metrics.events import TaskEvents, discard
from service.domain.ids import TaskId
from service.sinks.batch import Refusal
from service.sinks.dead_letters import DeadLetterRules, Polled, RefusedRecords, dead_letter_records
from tests.unit.sinks.fakes import FakeLetters, numbers, polled

TASK = TaskId("sink", 3)
RULES = DeadLetterRules(is_tolerant=True, topic="letters", has_headers=True)
MANY = 20_000


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
    table.reached = table.ends
    for row in range(MANY):
        refused.add(table, refusal(row))
    async with asyncio.TaskGroup() as group:
        settling = group.create_task(refused.settle())
        turns = 0
        while not settling.done():
            await asyncio.sleep(0)
            turns += 1
    assert [len(write) for write in letters.written] == [MANY]
    assert turns > 100
