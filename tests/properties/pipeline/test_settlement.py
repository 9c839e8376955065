"""What becomes of each record of a micro-batch."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import DedupeScope, Page, Rejection
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import ConvertedBatch, input_table
from service.pipeline.dead_letters import DeadLetter
from service.pipeline.duplicates import Judged, fresh_among
from service.pipeline.settlement import Settlement, SettlementRules, settle
from spark_batch.outcome import OUTCOME_SCHEMA
from spark_batch.plan import ConversionPlan, PayloadFormat
from tests.unit.pipeline.fake_kafka import TOPIC, FakeKafka, MemoryDedupe
from tests.unit.pipeline.fakes import BAD, DROPPED, PARTITION, page, queued, verdicts

ALL_TRUE = np.ones(2, dtype=bool)


def converted(*pages: Page, has_dedupe: bool = False, chunks: int = 1) -> ConvertedBatch:
    """The micro-batch of these pages after the fake conversion, its outcome in so many chunks."""
    batch = MicroBatch(tuple(queued(item) for item in pages), CloseReason.COUNT, 0.0)
    records = input_table(batch)
    plan = ConversionPlan(PayloadFormat.BYTES, dedupe_fields=("id",) if has_dedupe else ())
    outcome = verdicts(plan, records)
    size = max(1, -(-outcome.num_rows // chunks))
    outcome = pa.Table.from_batches(outcome.to_batches(max_chunksize=size), OUTCOME_SCHEMA)
    return ConvertedBatch(batch, records, outcome)


def settled(*pages: Page, seen: MemoryDedupe | None = None, is_tolerant: bool = True, chunks: int = 1) -> Settlement:
    """Settle these pages."""
    rules = SettlementRules(TOPIC, PARTITION, is_tolerant=is_tolerant, has_dedupe=seen is not None)
    batch = converted(*pages, has_dedupe=seen is not None, chunks=chunks)
    return settle(batch, rules, seen or MemoryDedupe())


def values(settlement: Settlement, topic: str = TOPIC) -> list[Any]:
    """What goes to a topic."""
    return [value for write in settlement.records if write.topic == topic for value in write.values.to_pylist()]


def letters_of(settlement: Settlement) -> tuple[DeadLetter, ...]:
    """What was rejected."""
    return tuple(letter for portion in settlement.rejects.portions() for letter in portion)


def test_with_tolerance_none_nothing_of_the_bad_records_page_is_delivered() -> None:
    """The pages before it are; the failure says where, never what."""
    result = settled(page(b"1", position=1), page(b"2", b"bad3", position=3), page(b"4", position=4), is_tolerant=False)
    assert values(result) == [b"1"]
    assert letters_of(result) == ()
    assert result.offsets == ((PARTITION, {"position": 1}),)
    assert result.fetched == result.delivered == 1
    assert "malformed_json" in str(result.failure)
    assert "bad3" not in str(result.failure)


def test_with_tolerance_none_a_bad_first_page_leaves_nothing_to_commit() -> None:
    """Not even an offset."""
    result = settled(page(b"bad1"), page(b"2"), is_tolerant=False)
    assert (result.pages, result.records, result.offsets) == ((), (), ())
    assert result.failure is not None


def test_what_a_filter_dropped_moves_the_offset_and_is_no_letter() -> None:
    """It is counted by itself; what is rejected is so whether a filter would drop it or not."""
    result = settled(page(b"1", DROPPED, position=2), page(BAD, DROPPED, position=4), seen=MemoryDedupe())
    assert values(result) == [b"1"]
    assert [letter.value for letter in letters_of(result)] == [BAD]
    assert result.offsets == ((PARTITION, {"position": 4}),)
    assert result.filtered + result.deduplicated == 2
    assert result.fetched == result.delivered + len(letters_of(result)) + result.filtered + result.deduplicated


def test_a_letter_has_the_original_bytes_and_says_where_it_came_from() -> None:
    """Key, value, timestamp, headers, stage, reason, and the position of the very record."""
    result = settled(
        page(b"1"),
        page(
            b"2",
            b"bad3",
            position=9,
            keys=[b"k2", b"k3"],
            timestamps_ms=[2, 3],
            headers=[[], [("h", b"3")]],
            positions=[70, 80],
            position_name="line",
            topic="other",
        ),
    )
    (letter,) = letters_of(result)
    assert (letter.key, letter.value) == (b"k3", b"bad3")
    assert (letter.timestamp_ms, letter.headers) == (3, [("h", b"3")])
    assert (letter.stage, letter.reason) == ("VALUE_CONVERTER", "malformed_json")
    assert letter.topic == "other"
    assert json.loads(letter.partition) == PARTITION
    assert json.loads(letter.offset) == {"position": 9, "line": 80}


@pytest.mark.parametrize("has_positions", [False, True])
def test_of_a_long_offset_a_letter_tells_what_its_page_says(has_positions: bool) -> None:  # noqa: FBT001 - a parameter
    """The record's own position stays; what is committed is the whole offset."""
    positions: dict[str, Any] = {"positions": [70]} if has_positions else {}
    told: dict[str, Any] = {"newest": "é", "position": 9}
    result = settled(Page([b"bad"], {"position": 9, "seen": "x" * 9_000}, told_offset=told, **positions))
    (letter,) = letters_of(result)
    assert json.loads(letter.offset) == ({**told, "position": 70} if has_positions else told)
    assert "seen" in result.offsets[0][1]


def test_what_a_fetcher_cannot_vouch_for_is_a_letter_although_it_converts() -> None:
    """Its own reason wins, also over the conversion's."""
    own = (Rejection(1, "too_large", "over record.bytes.max"), Rejection(2, "cut", "ended early"))
    result = settled(page(b"0"), page(b"1", b"2", b"bad3", b"4", rejections=own))
    assert values(result) == [b"0", b"1", b"4"]
    assert [(letter.value, letter.stage, letter.reason) for letter in letters_of(result)] == [
        (b"2", "TASK_POLL", "too_large"),
        (b"bad3", "TASK_POLL", "cut"),
    ]


def test_a_page_of_bad_rows_is_looked_at_a_number_of_times_that_grows_with_them() -> None:
    """Not with their square: that many rows of a file may be bad from the first to the last."""
    looks = 0

    class Counted(Rejection):
        def __getattribute__(self, name: str) -> Any:
            nonlocal looks
            looks += name == "index"
            return super().__getattribute__(name)

    count = 500
    own = tuple(Counted(index, "malformed_json", "expected two fields") for index in range(count))
    result = settled(page(*[b"x"] * count, rejections=own))
    assert len(letters_of(result)) == count
    assert looks <= 5 * count


def test_records_go_to_the_topic_of_their_page_or_of_their_outcome() -> None:
    """What a transformation routed wins over the page, the page over the config."""
    result = settled(page(b"1"), page(b"2", b"to:routed:3", topic="paged"), page(b"to:routed:4"))
    assert {write.topic: write.values.to_pylist() for write in result.records} == {
        TOPIC: [b"1"],
        "paged": [b"2"],
        "routed": [b"to:routed:3", b"to:routed:4"],
    }


def test_keys_timestamps_headers_and_tombstones_stay_with_their_records() -> None:
    """Also after records between them were taken out."""
    header = [("h", b"v")]
    result = settled(
        page(b"1", b"bad2", None, keys=[b"k1", None, b"k3"], timestamps_ms=[1, 2, 3], headers=[[], [], header]),
        page(b"4"),
    )
    (write,) = result.records
    assert write.values.to_pylist() == [b"1", None, b"4"]
    assert write.keys is not None
    assert write.keys.to_pylist() == [b"k1", b"k3", None]
    assert write.timestamps_ms is not None
    assert write.timestamps_ms.to_pylist() == [1, 3, None]
    assert list(write.headers or []) == [[], header, ()]


def test_the_offset_is_the_last_of_each_source_partition() -> None:
    """Pages of several partitions may be mixed; the order of a partition's keys does not matter."""
    result = settled(
        page(b"1", position=1, partition={"a": 1, "b": 2}),
        page(b"2", position=5, partition={"a": 2}),
        page(b"3", position=2, partition={"b": 2, "a": 1}),
        page(position=7),
    )
    assert [(dict(place), offset["position"]) for place, offset in result.offsets] == [
        ({"a": 1, "b": 2}, 2),
        ({"a": 2}, 5),
        (PARTITION, 7),
    ]


def test_pages_without_records_only_move_the_offset() -> None:
    """Nothing is written but it."""
    result = settled(page(position=3), seen=MemoryDedupe())
    assert (result.records, letters_of(result), result.fetched) == ((), (), 0)
    assert result.offsets == ((PARTITION, {"position": 3}),)


def test_a_record_of_two_windows_is_one_while_the_first_is_open() -> None:
    """The exports of two neighbouring days may both hold an event; the window in which it came first remembers it."""
    monday, tuesday = DedupeScope("1", "1"), DedupeScope("2", "1")
    seen = MemoryDedupe()
    result = settled(
        page(b"a", b"b", dedupe=monday),
        page(b"a", dedupe=monday),
        page(b"a", b"c", dedupe=tuesday),
        page(b"c", dedupe=monday),
        seen=seen,
    )
    assert values(result) == [b"a", b"b", b"c"]
    assert result.deduplicated == 3
    assert [(scope, len(hashes)) for scope, hashes in result.fresh_hashes] == [(monday, 2), (tuesday, 1), (monday, 0)]
    seen.commit()
    assert values(settled(page(b"a", b"b", b"d", dedupe=tuesday), seen=seen)) == [b"d"]


def test_what_a_source_without_windows_has_seen_says_nothing_of_one_with() -> None:
    """Nor the other way round."""
    seen = MemoryDedupe()
    result = settled(page(b"a"), page(b"a", dedupe=DedupeScope("1", "1")), page(b"a"), seen=seen)
    assert values(result) == [b"a", b"a"]


def test_a_rejected_record_does_not_make_its_corrected_successor_a_duplicate() -> None:
    """Both have one key (the fake hashes what follows ``bad``): the good one is delivered all the same."""
    seen = MemoryDedupe()
    first = settled(page(b"bad7", b"7", b"7", b"bad7"), seen=seen)
    seen.commit()
    assert values(first) == [b"7"]
    assert [letter.value for letter in letters_of(first)] == [b"bad7"]
    assert first.deduplicated == 2
    again = settled(page(b"7", b"bad7"), seen=seen)
    assert (again.delivered, len(letters_of(again)), again.deduplicated) == (0, 0, 2)


record = st.one_of(
    st.just(None),
    st.builds(lambda is_bad, number: (BAD if is_bad else b"") + b"%d" % number, st.booleans(), st.integers(0, 9)),
)
records_of_pages = st.lists(st.lists(record, max_size=8), max_size=8)


@settings(max_examples=200, deadline=None)
@given(records_of_pages, st.booleans(), st.booleans(), st.integers(1, 4))
def test_the_accounts_balance(
    source: list[list[bytes | None]],
    is_tolerant: bool,  # noqa: FBT001 - Hypothesis fills it
    has_dedupe: bool,  # noqa: FBT001 - likewise
    chunks: int,
) -> None:
    """Fetched = delivered + letters + duplicates, in order, however the outcome is chunked."""
    pages = [page(*payloads, position=number) for number, payloads in enumerate(source)]
    result = settled(*pages, seen=MemoryDedupe() if has_dedupe else None, is_tolerant=is_tolerant, chunks=chunks)
    assert result.fetched == result.delivered + len(letters_of(result)) + result.deduplicated
    handed_over = [payload for item in result.pages for payload in item.page.values()]
    assert result.fetched == len(handed_over)
    expected = [value for value in handed_over if value is None or not value.startswith(BAD)]
    letters = [value for value in handed_over if value is not None and value.startswith(BAD)]
    if has_dedupe:
        expected = [value for at, value in enumerate(expected) if value is None or value not in expected[:at]]
        letters = [value for value in dict.fromkeys(letters) if not _came_good_before(value, handed_over)]
    assert values(result) == expected
    assert [letter.value for letter in letters_of(result)] == letters
    if not is_tolerant:
        assert not letters
        bad_pages = [
            number for number, page_ in enumerate(source) if any(value and value.startswith(BAD) for value in page_)
        ]
        assert len(result.pages) == (bad_pages[0] if bad_pages else len(source))
        assert (result.failure is not None) == bool(bad_pages)


def _came_good_before(bad: bytes, handed_over: list[bytes | None]) -> bool:
    return bad.removeprefix(BAD) in handed_over[: handed_over.index(bad)]


def test_a_rejected_twin_of_another_page_is_a_duplicate_whatever_stands_between_them() -> None:
    """As it would be in a micro-batch of its own."""
    monday, tuesday, later = DedupeScope("1", "0"), DedupeScope("2", "0"), DedupeScope("1", "1")
    result = settled(
        page(b"7", dedupe=monday),
        page(b"8", dedupe=tuesday),
        page(b"bad7", b"bad9", dedupe=later),
        page(b"9", dedupe=monday),
        seen=MemoryDedupe(),
    )
    assert [letter.value for letter in letters_of(result)] == [b"bad9"]
    assert values(result) == [b"7", b"8", b"9"]
    assert result.deduplicated == 1
    told = [(scope, len(hashes)) for scope, hashes in result.fresh_hashes]
    assert told == [(monday, 1), (tuesday, 1), (later, 1), (monday, 1)]


def test_a_rejected_copy_of_what_was_delivered_is_a_duplicate() -> None:
    """A day that is read again under a stricter contract must not fill the dead letters with what was delivered."""
    kafka = FakeKafka()
    seen = MemoryDedupe(kafka)
    seen.seen.add(("", bytes(15) + b"\1"))
    judged = Judged(np.array([[*bytes(15), 1], [*bytes(15), 2]], dtype=np.uint8), ALL_TRUE, ALL_TRUE)
    fresh, noted = fresh_among(judged, seen, window="")
    assert fresh.tolist() == [False, True]
    assert [row.tobytes() for row in ~noted] == [bytes(15) + b"\2"]


def test_coerced_fields_are_counted_in_what_is_delivered() -> None:
    """By the bits of the outcome; rejected records count nowhere, and nothing is looked at where nothing is coerced."""
    batch = converted(page(b"a", b"b", b"bad", b"c"))
    bits = pa.array([1, 3, 2, None], pa.int64())
    at = batch.outcome.schema.get_field_index("coerced")
    coerced = replace(batch, outcome=batch.outcome.set_column(at, batch.outcome.schema.field(at), bits))
    rules = SettlementRules(TOPIC, PARTITION, is_tolerant=True, has_dedupe=False, coerced_fields=("x", "y", "z"))
    assert settle(coerced, rules, MemoryDedupe()).coerced == (("x", 2), ("y", 1))
    assert settle(coerced, replace(rules, coerced_fields=()), MemoryDedupe()).coerced == ()
