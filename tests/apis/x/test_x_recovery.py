"""What was posted while nobody listened: had again once each, or told as a gap."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fetchers.sdk import Fatal, Page
from service.simulators.x_settings import SEARCH_PATH, STREAM_PATH, Fault
from service.simulators.x_stream import Ending
from tests.apis.x.hearing import delivered, hearing, simulated


async def test_a_short_absence_is_searched_for_and_the_overlap_is_known() -> None:
    """Posts of before the cut are found again and dropped; the found ones look as the stream would have sent them."""
    async with simulated() as (x, clock), hearing(x, clock) as heard:
        await x.wait_for_connections(1)
        x.post("kafka one")
        await heard.wait_for(1)
        x.end(Ending.CUT)
        x.post("kafka two")
        await x.wait_for_connections(2)
        x.post("kafka three")
        await x.wait_for_requests(SEARCH_PATH, 1)
        await heard.wait(lambda: "missing_from" not in heard.offset)
        assert sorted(heard.texts) == ["kafka one", "kafka three", "kafka two"]
        assert len(heard.records) > 3
        assert heard.gaps == []
        assert heard.offset.keys() == {"last_id", "last_created_at"}


async def test_a_restart_searches_from_the_offset_and_a_crash_in_the_middle_searches_again() -> None:
    """What is missing stays in the offset until all of it was found."""
    async with simulated() as (x, clock):
        async with hearing(x, clock) as heard:
            await x.wait_for_connections(1)
            x.post("kafka one")
            await heard.wait_for(1)
            offset = heard.offset
        await x.wait_for_no_connection()
        for number in range(150):
            x.post(f"kafka away {number}", at=clock.now() + timedelta(seconds=number))
        await clock.advance(3_600)
        x.faults.append(Fault(path=SEARCH_PATH, status=503))
        async with hearing(x, clock, offset=offset) as again:
            await again.wait_for(101)
            crashed = dict(again.pages[1].offset)
        assert crashed["missing_from"] == offset["last_created_at"]
        await x.wait_for_no_connection()
        async with hearing(x, clock, offset=crashed) as last:
            await last.wait(lambda: "missing_from" not in last.offset)
            assert sorted(last.texts) == sorted(["kafka one", *(f"kafka away {number}" for number in range(150))])
            assert last.gaps == []


async def test_backfill_brings_doubles_that_are_known_and_nothing_is_missing() -> None:
    """X sends whole minutes again; the worker drops what it knows."""
    async with simulated(is_enterprise=True) as (x, clock), hearing(x, clock, x_recovery="backfill") as heard:
        await x.wait_for_connections(1)
        for number in range(5):
            x.post(f"kafka {number}")
        await heard.wait_for(5)
        x.end(Ending.CUT)
        x.post("kafka away")
        await x.wait_for_connections(2)
        await heard.wait_for(11)
        await clock.advance(1)
        x.post("kafka back")
        await heard.wait(lambda: "missing_from" not in heard.offset)
        assert heard.texts == [*(f"kafka {number}" for number in range(5)), "kafka away", "kafka back"]
        assert x.truth().doubles == 5
        asked = [request.query["backfill_minutes"] for request in x.requests if request.path == STREAM_PATH]
        assert asked == ["1", "1"]
        assert x.ledger.statuses(SEARCH_PATH) == []


@pytest.mark.parametrize("recovery", ["search", "backfill"])
async def test_a_task_that_dies_after_any_commit_loses_nothing_and_repeats_nothing(recovery: str) -> None:
    """Seven times, each time with half of its pages committed, posts before, between and after; in the end all once."""
    async with simulated(is_enterprise=True) as (x, clock):
        committed: list[Page] = []
        posted = []
        for life in range(8):
            offset = committed[-1].offset if committed else None
            async with hearing(x, clock, offset=offset, x_recovery=recovery) as heard:
                await x.wait_for_connections(life + 1)
                for number in range(4):
                    posted.append(x.post(f"kafka {life} {number}").data["text"])
                    await clock.advance(7)
                await heard.wait_for(4)
                if life == 7:
                    await heard.wait(lambda: "missing_from" not in heard.offset)
                    committed += heard.pages
                else:
                    committed += heard.pages[: len(heard.pages) // 2 + life % 2]
            await x.wait_for_no_connection()
            if life < 7:
                posted.append(x.post(f"kafka away {life}").data["text"])
                await clock.advance(40)
        assert sorted(delivered(committed)) == sorted(posted)
        assert x.truth().doubles > 0


async def test_what_backfill_does_not_reach_is_searched_for() -> None:
    """Five minutes by the stream, what is before that by the search."""
    async with simulated(is_enterprise=True) as (x, clock):
        async with hearing(x, clock, x_recovery="backfill") as heard:
            await x.wait_for_connections(1)
            x.post("kafka one")
            await heard.wait_for(1)
            offset = heard.offset
        await x.wait_for_no_connection()
        x.post("kafka long ago")
        await clock.advance(1_200)
        x.post("kafka a moment ago")
        async with hearing(x, clock, offset=offset, x_recovery="backfill") as again:
            await x.wait_for_connections(2)
            await clock.advance(60)
            x.post("kafka now")
            await again.wait(lambda: len(again.ids) == 4 and "missing_from" not in again.offset)
            assert sorted(again.texts) == ["kafka a moment ago", "kafka long ago", "kafka now", "kafka one"]
            assert again.gaps == []


async def test_an_account_without_backfill_hears_so_at_once() -> None:
    """In X's words, and not only after the first cut, in the night."""
    async with simulated() as (x, clock), hearing(x, clock, x_recovery="backfill") as heard:
        assert isinstance(await heard.failure(), Fatal)
        assert "backfill_minutes" in str(heard.error)


async def test_without_recovery_each_absence_is_a_gap() -> None:
    """After a cut and after a restart; the first connection of all has missed nothing."""
    async with simulated() as (x, clock):
        async with hearing(x, clock, x_recovery="none") as heard:
            await x.wait_for_connections(1)
            x.post("kafka one")
            await heard.wait_for(1)
            x.end(Ending.CUT)
            x.post("kafka lost")
            await x.wait_for_connections(2)
            x.post("kafka two")
            await heard.wait_for(2)
            assert heard.texts == ["kafka one", "kafka two"]
            assert [gap.reason for gap in heard.gaps] == ["disconnected"]
            offset = heard.offset
        await x.wait_for_no_connection()
        await clock.advance(90)
        async with hearing(x, clock, offset=offset, x_recovery="none") as again:
            await again.wait(lambda: bool(again.gaps))
            assert [(gap.reason, gap.seconds) for gap in again.gaps] == [("restarted", 90.0)]
        assert x.ledger.statuses(SEARCH_PATH) == []


async def test_what_x_refuses_to_search_for_is_a_gap_in_its_words_and_all_else_is_found() -> None:
    """An operator that only the stream knows stands in a search of its own."""
    rules = {"x.rule.sampled": "zebra sample:100"}
    async with simulated() as (x, clock), hearing(x, clock, more=rules) as heard:
        await x.wait_for_connections(1)
        x.end(Ending.CUT)
        x.post("kafka away")
        await heard.wait_for(1)
        await heard.wait(lambda: "missing_from" not in heard.offset)
        (gap,) = heard.gaps
        assert gap.reason == "unrecovered"
        assert "sample" in (gap.message or "")


async def test_what_is_older_than_the_search_is_a_gap() -> None:
    """Ten days away: three of them, and a minute, are told as lost."""
    async with simulated() as (x, clock):
        offset = {"last_id": "1", "last_created_at": (clock.now() - timedelta(days=10)).isoformat()}
        async with hearing(x, clock, offset=offset) as heard:
            await heard.wait(lambda: "missing_from" not in heard.offset and bool(heard.pages))
            ((reason, seconds),) = [(gap.reason, gap.seconds) for gap in heard.gaps]
            assert reason == "unrecovered"
            assert seconds == 3 * 24 * 3600 + 60


async def test_half_a_post_at_the_end_of_a_connection_is_had_again() -> None:
    """Without recovery it is a dead letter with its bytes."""
    for recovery in ("search", "none"):
        async with simulated() as (x, clock), hearing(x, clock, x_recovery=recovery) as heard:
            await x.wait_for_connections(1)
            x.cut_in_mid_post(x.make.post("kafka whole", clock.now()))
            await heard.wait_for(1)
            rejections = [rejection.reason for page in heard.pages for rejection in page.rejections]
            if recovery == "search":
                assert heard.texts == ["kafka whole"]
                assert rejections == []
            else:
                assert rejections == ["cut_off"]


async def test_a_search_brings_what_belongs_to_each_post() -> None:
    """Authors and quoted posts, in the form of the stream: only those of the post itself."""
    fields = {"x.query.expansions": "author_id,referenced_tweets.id", "x.query.user.fields": "username"}
    async with simulated() as (x, clock), hearing(x, clock, more=fields) as heard:
        await x.wait_for_connections(1)
        x.end(Ending.CUT)
        other = x.make.post("something else", clock.now(), author=2)
        x.post("kafka alone", author=1)
        x.post("kafka quoting", author=3, quotes=other)
        await heard.wait_for(2)
        found = {told["data"]["text"]: told["includes"] for told in heard.told}
        assert [user["username"] for user in found["kafka alone"]["users"]] == ["person_1"]
        assert "tweets" not in found["kafka alone"]
        assert [post["id"] for post in found["kafka quoting"]["tweets"]] == [other.id]
        assert [user["username"] for user in found["kafka quoting"]["users"]] == ["person_3"]
