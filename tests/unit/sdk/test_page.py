"""Pages, offsets of several partitions, and the values that go with them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from fetchers.sdk import BackOff, Page, RateLimited, Retriable, StatusTable, StatusVerdict, partition_key


def test_a_page_holds_bytes_and_tombstones() -> None:
    """Payloads become one Arrow column, null stays null, and the size counts the column."""
    page = Page([b"a", None, b"\xff\x00"], offset={"n": 1})
    assert list(page.values()) == [b"a", None, b"\xff\x00"]
    assert page.payload_column.type == pa.binary()
    assert len(page) == 3
    assert page.bytes == page.payload_column.nbytes >= 3


@pytest.mark.parametrize(
    "payloads",
    [
        pa.array([b"a", b"b"], type=pa.binary()),
        pa.array(["a", "b"]),
        pa.array([b"a", b"b"], type=pa.large_binary()),
        pa.chunked_array([[b"a"], [b"b"]], type=pa.binary()),
        (b"a", b"b"),
    ],
)
def test_payloads_of_any_arrow_kind(payloads: pa.Array) -> None:  # type: ignore[type-arg]
    """Text, large and chunked arrays are brought into one binary column."""
    page = Page(payloads, offset={})
    assert page.payload_column.type == pa.binary()
    assert list(page.values()) == [b"a", b"b"]


def test_a_page_keeps_its_offset_while_the_fetcher_goes_on_with_its_dict() -> None:
    """Else the offset that is committed with a page would be that of a later one, and a restart would skip records."""
    offset, partition = {"position": 1}, {"filename": "a"}
    page = Page([b"x"], offset, partition=partition)
    offset["position"], partition["filename"] = 2, "b"
    assert (page.offset, page.partition) == ({"position": 1}, {"filename": "a"})


def test_an_empty_page_moves_the_offset_only() -> None:
    """A page without records is a page."""
    assert (len(Page([], offset={"n": 2})), Page([], offset={"n": 2}).bytes) == (0, 0)


@pytest.mark.parametrize("column", ["keys", "timestamps_ms", "positions", "headers"])
def test_columns_must_be_of_one_length(column: str) -> None:
    """A page whose columns do not fit is a mistake, found where it is made."""
    with pytest.raises(ValueError, match=f"2 payloads and 1 {column}"):
        Page([b"a", b"b"], offset={}, **{column: [None]})  # type: ignore[arg-type]


def test_partitions_are_equal_whatever_their_order() -> None:
    """The same keys in another order are the same source partition."""
    assert partition_key({"a": 1, "b": "x"}) == partition_key({"b": "x", "a": 1}) != partition_key({"a": 1})


def test_back_off_grows_to_its_cap_and_obeys_the_source() -> None:
    """Waits double, with jitter, up to the cap; a wait that the source asks for is the least."""
    back_off = BackOff(first_seconds=1.0, cap_seconds=10.0, jitter_seconds=0.5)
    waits = [back_off.wait_seconds(attempt) for attempt in range(1, 8)]
    assert all(2**n <= wait <= 1.5 * 2**n for n, wait in zip(range(3), waits, strict=False))
    assert max(waits) <= 10.0
    assert back_off.wait_seconds(100_000) <= 10.0
    assert back_off.wait_seconds(1, asked_seconds=77.0) == 77.0


def test_back_off_keeps_its_jitter_at_the_cap() -> None:
    """A thousand tasks that lost one source do not all come back to it in one moment."""
    back_off = BackOff(first_seconds=1.0, cap_seconds=60.0, jitter_seconds=0.5)
    waits = sorted(back_off.wait_seconds(50) for _ in range(1000))
    assert 40.0 <= waits[0] < 42.0
    assert 58.0 < waits[-1] <= 60.0
    assert len(set(waits)) > 990


@pytest.mark.parametrize("attempt", [1, 2, 30, 100_000])
def test_back_off_without_jitter_is_exact(attempt: int) -> None:
    """First, double, double, cap."""
    wait = BackOff(first_seconds=2.0, cap_seconds=16.0, jitter_seconds=0.0).wait_seconds(attempt)
    assert wait == {1: 2.0, 2: 4.0}.get(attempt, 16.0)


def test_a_back_off_of_nothing_waits_for_what_is_asked_alone() -> None:
    """For tests and for sources that say themselves how long to wait."""
    back_off = BackOff(first_seconds=0.0, jitter_seconds=0.0)
    assert back_off.wait_seconds(3) == 0.0
    assert back_off.wait_seconds(3, asked_seconds=2.0) == 2.0


def test_errors_carry_the_wait() -> None:
    """A rate limit is retriable and knows how long."""
    error = RateLimited("slow down", wait_seconds=5.0)
    assert isinstance(error, Retriable)
    assert (str(error), error.wait_seconds) == ("slow down", 5.0)


def test_status_table() -> None:
    """Defaults hold for what is not said otherwise, and a table is not changed by making another."""
    table = StatusTable().with_verdict(StatusVerdict.SKIP, [404]).with_verdict(StatusVerdict.FATAL, range(500, 600))
    assert [table.verdict(status) for status in (200, 404, 500, 429, 408, 418)] == [
        StatusVerdict.ACCEPT,
        StatusVerdict.SKIP,
        StatusVerdict.FATAL,
        StatusVerdict.RATE_LIMITED,
        StatusVerdict.RETRY,
        StatusVerdict.FATAL,
    ]
    assert StatusTable().verdict(500) is StatusVerdict.RETRY
