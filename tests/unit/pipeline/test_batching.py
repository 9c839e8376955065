"""When a micro-batch is complete."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import Page
from service.domain.errors import SourceTransactionTooLargeError
from service.pipeline.batching import Batcher, BatchLimits, CloseReason, MicroBatch
from service.pipeline.queue import QueuedPage
from tests.unit.pipeline.fakes import page, queued

LIMITS = BatchLimits(records_max=4, bytes_max=200, age_seconds_max=0.5, transaction_bytes_max=1_000)


def batcher(*items: QueuedPage, now: float = 0.0) -> Batcher:
    """One that holds these pages."""
    made = Batcher(LIMITS)
    for item in items:
        made.add(item, now=now)
    return made


def test_it_closes_by_count_bytes_or_age_whichever_is_first() -> None:
    """And not before."""
    assert batcher(queued(page(b"1", b"2", b"3"))).reason_to_close(now=0.49, is_converting=True) is None
    assert batcher(queued(page(b"1", b"2", b"3", b"4"))).reason_to_close(now=0, is_converting=True) is CloseReason.COUNT
    assert batcher(queued(page(b"x" * 200))).reason_to_close(now=0, is_converting=True) is CloseReason.BYTES
    assert batcher(queued(page(b"1"))).reason_to_close(now=0.5, is_converting=True) is CloseReason.AGE


def test_it_closes_at_once_while_nothing_is_converted() -> None:
    """Waiting would only add latency."""
    assert batcher(queued(page(b"1"))).reason_to_close(now=0, is_converting=False) is CloseReason.IDLE


def test_an_empty_one_never_closes() -> None:
    """There is nothing to hand over."""
    assert batcher().is_empty
    assert batcher().reason_to_close(now=99, is_converting=False) is None


def test_a_page_that_would_break_a_limit_opens_the_next() -> None:
    """Which limit is said; a page alone may be larger."""
    held = batcher(queued(page(b"1", b"2", b"3")))
    assert held.reason_to_close_before(queued(page(b"4", b"5"))) is CloseReason.COUNT
    assert held.reason_to_close_before(queued(page(b"x" * 300))) is CloseReason.BYTES
    assert held.reason_to_close_before(queued(page(b"4"))) is None
    assert batcher().reason_to_close_before(queued(page(b"x" * 300))) is None


def test_an_unfinished_transaction_of_the_source_stays_for_the_next() -> None:
    """What came before it is handed over; it is never cut in two."""
    done, open_one, open_two = (
        queued(page(b"1")),
        queued(page(b"2", ends_transaction=False)),
        queued(page(b"3", b"4", ends_transaction=False)),
    )
    held = batcher(done, open_one, open_two, now=1.0)
    assert held.close(CloseReason.COUNT, now=3.0).pages == (done,)
    assert not held.is_closable
    assert held.reason_to_close(now=99, is_converting=False) is None
    last = queued(page(b"5"))
    held.add(last, now=4.0)
    batch = held.close(CloseReason.COUNT, now=5.0)
    assert batch.pages == (open_one, open_two, last)
    assert batch.age_seconds == 4.0
    assert batch.records == 4


def test_a_transaction_that_is_too_large_is_split_between_its_pages() -> None:
    """At once, with a reason of its own, into pieces of the ordinary size: each is in memory several times."""
    sizes = (1, 90, 90, 90, 300, 90, 90, 390)
    held, items = Batcher(LIMITS), [queued(page(b"x" * size, ends_transaction=False)) for size in sizes]
    for item in items:
        assert not held.is_closable
        held.add(item, now=0)
    pieces = []
    while held.reason_to_close(now=0, is_converting=True) is CloseReason.TRANSACTION:
        assert held.reason_to_close_before(queued(page(b"2"))) is CloseReason.TRANSACTION
        pieces.append(held.close(CloseReason.TRANSACTION, now=0).pages)
    assert [[len(item.page.payload_column[0].as_py()) for item in piece] for piece in pieces] == [
        [1, 90, 90],
        [90],
        [300],
        [90, 90],
    ]
    assert held.close(CloseReason.BYTES, now=0).pages == (items[-1],)
    assert held.is_empty


def test_a_transaction_that_became_too_large_behind_another_is_split_once_that_is_handed_over() -> None:
    """Nothing more comes of it until then: whoever fetches it waits for what it holds to be delivered."""
    whole, large = queued(page(b"1")), queued(page(b"x" * 1_001, ends_transaction=False))
    held = batcher(whole, large)
    assert held.reason_to_close(now=0, is_converting=True) is CloseReason.BYTES
    assert held.close(CloseReason.BYTES, now=0).pages == (whole,)
    assert held.reason_to_close(now=0, is_converting=True) is CloseReason.TRANSACTION
    assert held.close(CloseReason.TRANSACTION, now=0).pages == (large,)
    refusing = Batcher(replace(LIMITS, is_transaction_split=False))
    refusing.add(whole, now=0)
    refusing.add(large, now=0)
    assert refusing.close(CloseReason.BYTES, now=0).pages == (whole,)
    with pytest.raises(SourceTransactionTooLargeError):
        refusing.reason_to_close(now=0, is_converting=False)


def test_the_rest_of_a_split_transaction_is_handed_over_by_the_ordinary_limits() -> None:
    """Held until it is too large again, each of its pieces would be as large as the whole limit, several at once."""
    held = batcher(queued(page(b"x" * 1_001, ends_transaction=False)))
    held.close(CloseReason.TRANSACTION, now=0)
    held.add(queued(page(b"1", ends_transaction=False)), now=0)
    assert held.reason_to_close(now=0, is_converting=True) is None
    assert held.reason_to_close_before(queued(page(b"x" * 200))) is CloseReason.BYTES
    held.add(queued(page(b"x" * 200, ends_transaction=False)), now=0)
    assert held.reason_to_close(now=0, is_converting=True) is CloseReason.BYTES
    assert [len(item.page) for item in held.close(CloseReason.BYTES, now=0).pages] == [1, 1]
    held.add(queued(page(b"2")), now=0)
    held.add(queued(page(b"3", ends_transaction=False)), now=0)
    assert [len(item.page) for item in held.close(CloseReason.AGE, now=0).pages] == [1]
    assert not held.is_closable


def test_a_transaction_that_must_not_be_split_fails_with_the_keys_to_change() -> None:
    """Before memory is full."""
    held = Batcher(replace(LIMITS, is_transaction_split=False))
    with pytest.raises(SourceTransactionTooLargeError, match=r"source\.transaction\.overflow=split"):
        held.add(queued(page(b"x" * 1_000, ends_transaction=False)), now=0)


pages = st.builds(
    lambda sizes, ends: page(*[b"x" * size for size in sizes], ends_transaction=ends),
    st.lists(st.integers(0, 90), max_size=6),
    st.sampled_from([True, True, True, False]),
)


@given(st.lists(pages, max_size=25))
def test_every_page_is_in_exactly_one_batch_in_order_and_limits_hold(source: list[object]) -> None:
    """Only a page or transaction that is larger by itself exceeds a limit, and only one that is too large is split."""
    items = [QueuedPage(item, float(number)) for number, item in enumerate(source)]  # type: ignore[arg-type]
    held, batches = Batcher(LIMITS), list[MicroBatch]()
    for item in items:
        while (reason := held.reason_to_close_before(item)) is not None:
            batches.append(held.close(reason, now=0))
        held.add(item, now=0)
        if (reason := held.reason_to_close(now=0, is_converting=True)) is not None:
            batches.append(held.close(reason, now=0))
    while (reason := held.reason_to_close(now=0, is_converting=False)) is not None:
        batches.append(held.close(reason, now=0))
    assert sum(item.page.bytes for item in items[sum(len(batch.pages) for batch in batches) :]) <= 1_000
    handed_over = [item for batch in batches for item in batch.pages]
    assert handed_over == items[: len(handed_over)]
    assert not any(item.page.ends_transaction for item in items[len(handed_over) :])
    is_rest = False
    for batch in batches:
        assert batch.pages
        is_rest = (is_rest and not any(item.page.ends_transaction for item in batch.pages)) or (
            batch.reason is CloseReason.TRANSACTION
        )
        assert batch.pages[-1].page.ends_transaction or is_rest
        is_one_transaction = sum(item.page.ends_transaction for item in batch.pages) <= 1
        fits = batch.records <= LIMITS.records_max and batch.bytes <= LIMITS.bytes_max
        is_piece = batch.reason is CloseReason.TRANSACTION
        assert fits or len(batch.pages) == 1 or (is_one_transaction and not is_piece)


def test_memory_over_a_transaction_of_a_million_rows_is_bounded_by_its_limit() -> None:
    """By Arrow's own count: of its rows never more is held than the limit, and the page that breaks it."""
    rows, of_a_page, limit = 1_000_000, 10_000, 8 * 1024 * 1024
    held = Batcher(replace(LIMITS, records_max=50_000, bytes_max=limit, transaction_bytes_max=limit))
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    given = page_bytes = 0
    for number in range(rows // of_a_page):
        payloads = pa.array([b"x" * 90] * of_a_page, pa.binary(), memory_pool=pool)
        made = Page(payloads, {"at": number}, ends_transaction=(number + 1) * of_a_page == rows)
        page_bytes = made.bytes
        held.add(QueuedPage(made, 0.0), now=0.0)
        del made, payloads
        reason = held.reason_to_close(now=0.0, is_converting=False)
        if reason is not None:
            given += held.close(reason, now=0.0).records
    assert given == rows
    assert limit <= (pool.max_memory() or 0) <= limit + 4 * page_bytes
    assert pool.bytes_allocated() == 0
