"""The inbox of a listener: bounds, pages, and what is told of both."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import InboxLimits, Page, Rejection
from fetchers.sdk.inbox import MARK_SECONDS, RECEIVED_AT, Inbox
from fetchers.sdk.testing import FakeContext
from metrics.events import InboxChanged, InboxWaitBegan, InboxWaited, SourceGap
from tests.unit.pipeline.virtual_time import run_virtual

pytestmark = pytest.mark.looptime
SMALL = InboxLimits(records_max=4, bytes_max=100, page_records_max=3, page_bytes_max=50, page_age_seconds_max=2.0)


async def test_what_is_there_is_handed_over_at_once_while_the_pipeline_has_nothing() -> None:
    """One message is one page then: nobody gains by waiting for a second one."""
    inbox = FakeContext().inbox(SMALL)
    await inbox.put([b"1"], offset={"id": 1})
    page = await inbox.take()
    assert page is not None
    assert (list(page.values()), page.offset, asyncio.get_running_loop().time()) == ([b"1"], {"id": 1}, 0.0)


async def test_a_page_waits_for_its_count_or_age_while_others_wait_in_the_queue() -> None:
    """Large pages are cheaper, and the pipeline is busy anyway."""
    context = FakeContext()
    context.is_starved = False
    inbox = context.inbox(SMALL)
    for number in range(3):
        await inbox.put([b"%d" % number], offset={"id": number})
    full = await inbox.take()
    await inbox.put([b"3"], offset={"id": 3})
    assert full is not None
    assert (list(full.values()), full.offset, asyncio.get_running_loop().time()) == ([b"0", b"1", b"2"], {"id": 2}, 0.0)
    aged = await inbox.take()
    assert aged is not None
    assert (list(aged.values()), asyncio.get_running_loop().time()) == ([b"3"], 2.0)


async def test_a_queue_that_becomes_empty_ends_the_wait_for_more() -> None:
    """The age is for a busy pipeline only."""
    context = FakeContext()
    context.is_starved = False
    inbox = context.inbox(SMALL)
    await inbox.put([b"1"], offset={"id": 1})
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(inbox.take())
        await asyncio.sleep(0.5)
        context.is_starved = True
        inbox.nudge()
    assert taking.result() is not None
    assert asyncio.get_running_loop().time() == 0.5


async def test_a_full_inbox_holds_the_source_back_until_a_page_is_taken() -> None:
    """And the wait is told when it begins and when it ends."""
    context = FakeContext()
    inbox = context.inbox(SMALL)
    await inbox.put([b"1", b"2", b"3"], offset={"id": 3})
    async with asyncio.TaskGroup() as group:
        putting = group.create_task(inbox.put([b"4", b"5"], offset={"id": 5}))
        await asyncio.sleep(1.0)
        assert not putting.done()
        assert (inbox.records, inbox.offset) == (3, {"id": 3})
        await inbox.take()
    assert (inbox.records, inbox.offset) == (2, {"id": 5})
    told = [event for event in context.events if isinstance(event, InboxWaitBegan | InboxWaited | InboxChanged)]
    assert [type(event) for event in told] == [InboxWaitBegan, InboxChanged, InboxWaited]
    assert isinstance(told[-1], InboxWaited)
    assert told[-1].seconds == 1.0


async def test_what_is_larger_than_the_inbox_is_let_in_alone() -> None:
    """No bound can deadlock."""
    inbox = FakeContext().inbox(SMALL)
    await inbox.put([b"x" * 1000], offset={"id": 1})
    page = await inbox.take()
    assert page is not None
    assert len(page) == 1


async def test_a_page_with_keys_goes_through_as_it_is() -> None:
    """It is not joined with what came before or after it, and keeps its place."""
    inbox = FakeContext().inbox(SMALL)
    own = Page([b"k"], {"id": 2}, keys=[b"key"], topic="other")
    await inbox.put([b"1"], offset={"id": 1})
    await inbox.put_page(own)
    await inbox.put([b"3"], offset={"id": 3})
    pages = [await inbox.take() for _ in range(3)]
    assert pages[1] is own
    assert [page.offset["id"] for page in pages if page is not None] == [1, 2, 3]


async def test_a_page_without_records_is_handed_over() -> None:
    """It moves the offset though nothing comes."""
    inbox = FakeContext().inbox(SMALL)
    await inbox.put_page(Page([], {"id": 1}))
    page = await inbox.take()
    assert page is not None
    assert (len(page), page.offset) == (0, {"id": 1})


async def test_an_offset_without_records_goes_with_what_is_there() -> None:
    """It is where the next connection begins, in any case."""
    inbox = FakeContext().inbox(SMALL)
    await inbox.put([b"1"], offset={"id": 1})
    await inbox.put([], offset={"id": 2})
    page = await inbox.take()
    assert page is not None
    assert (page.offset, inbox.offset) == ({"id": 2}, {"id": 2})


async def test_the_first_connection_of_all_has_no_gap_and_each_later_one_tells_its_own() -> None:
    """From when the source was last heard to when it is heard again."""
    context = FakeContext()
    inbox = context.inbox()
    inbox.connected(is_resumed=False)
    await inbox.put([b"1"])
    await context.clock.advance(30)
    inbox.heard()
    await context.clock.advance(7)
    inbox.connected(is_resumed=False)
    assert [(gap.reason, gap.seconds) for gap in _gaps(context)] == [("disconnected", 7.0)]
    page = await inbox.take()
    assert page is not None
    again = FakeContext(offset=page.offset, clock=context.clock)
    again.inbox().connected(is_resumed=False)
    assert [(gap.reason, gap.seconds) for gap in _gaps(again)] == [("restarted", 37.0)]


async def test_a_connection_that_brought_nothing_ends_the_gap_before_it() -> None:
    """What follows is a gap of its own, and no second is told twice."""
    context = FakeContext()
    inbox = context.inbox()
    for seconds in (7, 5, 3):
        inbox.connected(is_resumed=False)
        await context.clock.advance(seconds)
    assert [gap.seconds for gap in _gaps(context)] == [7.0, 5.0]


async def test_a_quiet_source_that_cannot_be_resumed_stores_when_it_was_heard() -> None:
    """The gap after a restart begins when it was last heard, not with its last message; each time is stored once."""
    context = FakeContext()
    inbox = context.inbox()
    inbox.connected(is_resumed=False)
    await inbox.put([b"1"])
    await inbox.take()
    await context.clock.advance(3_600)
    inbox.heard()
    mark = await inbox.take()
    assert mark is not None
    assert (len(mark), inbox.offset) == (0, mark.offset)
    await context.clock.advance(7)
    again = FakeContext(offset=mark.offset, clock=context.clock)
    again.inbox().connected(is_resumed=False)
    assert [(gap.reason, gap.seconds) for gap in _gaps(again)] == [("restarted", 7.0)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10 * MARK_SECONDS):
            await inbox.take()


@pytest.mark.parametrize("is_resumed", [False, True])
async def test_an_offset_of_the_source_is_never_replaced_by_a_time(*, is_resumed: bool) -> None:
    """It is where the source goes on."""
    context = FakeContext(offset={"id": 1})
    inbox = context.inbox()
    inbox.connected(is_resumed=is_resumed)
    await context.clock.advance(100)
    inbox.heard()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10 * MARK_SECONDS):
            await inbox.take()
    assert inbox.offset == {"id": 1}


async def test_a_source_that_goes_on_where_it_was_has_no_gap() -> None:
    """Whatever the time between."""
    context = FakeContext()
    inbox = context.inbox()
    for _ in range(2):
        inbox.connected(is_resumed=True)
        await inbox.put([b"1"], offset={"id": 1})
    assert not _gaps(context)


async def test_what_a_stop_leaves_inside_is_told_where_it_cannot_be_had_again() -> None:
    """As a number of messages."""
    for offset, expected in ((None, [2]), ({"id": 2}, [])):
        context = FakeContext()
        inbox = context.inbox()
        await inbox.put([b"1", b"2"], offset=offset)
        inbox.abandon()
        assert [gap.messages for gap in _gaps(context)] == expected


puts = st.lists(
    st.tuples(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.booleans(), st.booleans()), max_size=30
)


@settings(max_examples=60, deadline=None)
@given(puts, st.booleans())
def test_everything_comes_out_once_in_order_and_the_bounds_hold(
    given_puts: list[tuple[list[bytes], bool, bool]],
    is_starved: bool,  # noqa: FBT001 - Hypothesis fills it
) -> None:
    """Lists and columns mixed, rejections kept at their records, no put divided."""

    async def run() -> None:
        context = FakeContext()
        context.is_starved = is_starved
        inbox = context.inbox(SMALL)
        async with asyncio.TaskGroup() as group:
            group.create_task(_put_all(inbox, given_puts))
            pages = []
            while (page := await inbox.take()) is not None:
                pages.append(page)
                assert inbox.records <= max(SMALL.records_max, 4)
        assert [value for page in pages for value in page.values()] == [
            value for values, _, _ in given_puts for value in values
        ]
        bad = [list(page.values())[rejection.index] for page in pages for rejection in page.rejections]
        assert bad == [values[-1] for values, is_bad, _ in given_puts if is_bad]
        ends = [sum(len(values) for values, _, _ in given_puts[: count + 1]) for count in range(len(given_puts))]
        total = 0
        for page in pages:
            total += len(page)
            assert page.offset == {"count": total}
            assert total in ends

    run_virtual(run())


async def _put_all(inbox: Inbox, given_puts: list[tuple[list[bytes], bool, bool]]) -> None:
    count = 0
    for values, is_bad, is_column in given_puts:
        count += len(values)
        rejections = (Rejection(len(values) - 1, "bad", "bad"),) if is_bad else ()
        payloads = pa.array(values, pa.binary()) if is_column else values
        await inbox.put(payloads, offset={"count": count}, rejections=rejections)
    inbox.close()


async def test_an_offset_of_a_source_that_cannot_be_resumed_is_when_it_was_heard() -> None:
    """So that the next start knows for how long nobody listened."""
    context = FakeContext()
    inbox = context.inbox()
    await inbox.put([b"1"])
    assert inbox.offset == {RECEIVED_AT: int(context.clock.now().timestamp() * 1000)}


def _gaps(context: FakeContext) -> list[SourceGap]:
    return [event for event in context.events if isinstance(event, SourceGap)]
