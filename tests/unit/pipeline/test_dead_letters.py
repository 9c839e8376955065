"""Dead letters: the original bytes and the headers."""

from __future__ import annotations

import asyncio
import json
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from service.domain.ids import TaskId
from service.kafka.errors import DeliveryFatal
from service.kafka.headers import CompressedHeaders, PackedHeaders
from service.kafka.records import Header
from service.pipeline.dead_letters import (
    DeadLetter,
    DeadLetterRules,
    as_json,
    dead_letter_headers,
    dead_letter_records,
    written,
)

LETTER = DeadLetter(
    key=None,
    value=b"\xff{",
    stage="VALUE_CONVERTER",
    reason="invalid_utf8",
    message="é is not UTF-8 here",
    topic="things",
    partition=as_json({"filename": "/ä", "b": 1}),
    offset=as_json({"position": 2**60, "line": 3}),
)


def test_headers_are_connects_and_ours() -> None:
    """Names and texts as KIP-298 has them, and where a source's record came from."""
    headers = dict(dead_letter_headers(LETTER, TaskId("c", 2), class_name="io.x.AvroConverter"))
    assert headers == {
        "__connect.errors.topic": b"things",
        "__connect.errors.connector.name": b"c",
        "__connect.errors.task.id": b"2",
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": b"io.x.AvroConverter",
        "__connect.errors.exception.class.name": b"org.apache.kafka.connect.errors.DataException",
        "__connect.errors.exception.message": "é is not UTF-8 here".encode(),
        "__headrace.errors.reason": b"invalid_utf8",
        "__headrace.errors.source.partition": '{"b":1,"filename":"/ä"}'.encode(),
        "__headrace.errors.source.offset": b'{"line":3,"position":1152921504606846976}',
    }


@pytest.mark.parametrize("has_headers", [True, False])
def test_records_keep_bytes_and_order(has_headers: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A null value stays null; headers can be switched off."""
    letters = [LETTER, replace(LETTER, key=b"k", value=None)]
    records = dead_letter_records(letters, TaskId("c", 0), rules=DeadLetterRules("dlq", "x", has_headers=has_headers))
    assert records.topic == "dlq"
    assert records.values.to_pylist() == [b"\xff{", None]
    assert records.keys is not None
    assert records.keys.to_pylist() == [None, b"k"]
    assert (records.headers is not None) == has_headers


@pytest.mark.parametrize("has_headers", [True, False])
def test_a_record_keeps_its_own_headers_and_tells_its_timestamp(has_headers: bool) -> None:  # noqa: FBT001 - likewise
    """The record's come first; the letter's own timestamp is the time of writing, by which its topic forgets."""
    letter = replace(LETTER, headers=[("trace", b"abc"), ("x", None)], timestamp_ms=1_000)
    rules = DeadLetterRules("dlq", "x", has_headers=has_headers)
    records = dead_letter_records([letter, LETTER], TaskId("c", 0), rules=rules)
    assert records.headers is not None
    assert list(records.headers[0][:2]) == [("trace", b"abc"), ("x", None)]
    assert dict(records.headers[0]).get("__headrace.errors.source.timestamp") == (b"1000" if has_headers else None)
    assert "__headrace.errors.source.timestamp" not in dict(records.headers[1])
    assert records.timestamps_ms is None


def test_a_lone_surrogate_in_an_offset_does_not_stop_the_letter() -> None:
    """Python's texts may hold what UTF-8 cannot say, such as the name of a file that is no UTF-8."""
    letter = replace(LETTER, partition=as_json({"filename": "a\udcff"}))
    headers = dict(dead_letter_headers(letter, TaskId("c", 0), class_name="x"))
    value = headers["__headrace.errors.source.partition"]
    assert value is not None
    assert json.loads(value) == {"filename": "a\udcff"}


def test_packed_headers_read_back_as_they_were() -> None:
    """Also empty ones, null, and what is longer than one byte says."""
    headers: list[list[Header]] = [[("a", b"1"), ("é", None)], [], [("long", b"x" * 300), ("a", b"")]]
    packed = PackedHeaders.of(headers)
    assert list(packed) == headers
    assert list(packed[1:]) == headers[1:]
    compressed = CompressedHeaders.of(headers)
    assert list(compressed) == headers
    assert list(compressed[1:]) == list(compressed.slice(1, 2)) == headers[1:]
    assert list(compressed.take([2, 0])) == [headers[2], headers[0]]
    assert compressed.blocks().to_pylist() == packed.blocks.to_pylist()
    assert compressed.lengths.tolist() == [len(block or b"") for block in packed.blocks.to_pylist()]
    assert list(CompressedHeaders.of([])) == []


async def python_bytes_peak(letters: int) -> int:
    """Memory of Python's objects while so many letters are made and written."""
    rejects = Rejected(letters)
    tracemalloc.start()
    try:
        found = await written(rejects, TaskId("c", 0), rules=DeadLetterRules("dlq", "x"))
        assert len(found) == letters
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@dataclass
class Rejected:
    """Rejected records, each a letter of its own."""

    count: int

    def __len__(self) -> int:
        """So many."""
        return self.count

    def portions(self) -> Iterator[tuple[DeadLetter, ...]]:
        """A thousand at once."""
        for start in range(0, self.count, 1_000):
            yield tuple(replace(LETTER, offset=f"{number}") for number in range(start, start + 1_000))


async def test_memory_does_not_grow_with_the_letters() -> None:
    """A page may hold a million bad records: only a portion of its letters is there singly."""
    assert await python_bytes_peak(5_000) < 2 * await python_bytes_peak(1_000)


async def test_a_million_bad_records_keep_little_more_than_their_bytes() -> None:
    """Their headers are nearly all alike: until they are sent they stay compressed, and come out as they went in."""
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        found = await written(Rejected(100_000), TaskId("c", 0), rules=DeadLetterRules("dlq", "x"))
        kept = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
    finally:
        tracemalloc.stop()
    assert kept < 100_000 * 80
    last = found.records[-1].headers
    assert last is not None
    assert dict(last[-1])["__headrace.errors.source.offset"] == b"99999"


async def test_more_letters_than_a_transaction_takes_end_the_task_in_words() -> None:
    """A page is never split, so it would fail for ever; without headers they fit."""
    rules = DeadLetterRules("dlq", "x", headers_bytes_max=100_000)
    with pytest.raises(DeliveryFatal, match=r"2000 dead letters .* more than 100000 bytes.*headers.enable=false"):
        await written(Rejected(2_000), TaskId("c", 0), rules=rules)
    without = replace(rules, has_headers=False)
    assert len(await written(Rejected(2_000), TaskId("c", 0), rules=without)) == 2_000


@dataclass
class Waiting:
    """Rejected records that are letters once the event loop has gone on."""

    count: int
    has_gone_on: threading.Event = field(default_factory=threading.Event)

    def __len__(self) -> int:
        """So many."""
        return self.count

    def portions(self) -> Iterator[tuple[DeadLetter, ...]]:
        """On the event loop it would wait in vain."""
        assert self.has_gone_on.wait(60)
        yield (LETTER,) * self.count


async def test_many_letters_are_made_beside_the_event_loop() -> None:
    """An answer whose every row is bad must not hold up the other tasks."""
    rejects = Waiting(20_000)
    async with asyncio.TaskGroup() as group:
        writing = group.create_task(written(rejects, TaskId("c", 0), rules=DeadLetterRules("dlq", "x")))
        await asyncio.sleep(0)
        rejects.has_gone_on.set()
    letters = writing.result()
    assert len(letters) == letters.counts["VALUE_CONVERTER", "invalid_utf8"] == 20_000
