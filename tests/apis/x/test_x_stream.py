"""``XStreamSource`` against the simulated X: what the stream says, and how it fails."""

from __future__ import annotations

import json
from email.utils import format_datetime

import pytest

from fetchers.sdk import Fatal
from fetchers.sdk.testing import FakeClock
from metrics.events import InboxWaitBegan
from service.simulators.x import XSimulator
from service.simulators.x_posts import message_of
from service.simulators.x_settings import RULES_PATH, STREAM_PATH, TOKEN_PATH, Fault, no_rules
from service.simulators.x_stream import Ending
from tests.apis.x.hearing import hearing, simulated


def statuses(x: XSimulator, path: str) -> list[int]:
    """Of all answers for a path, in order."""
    return x.ledger.statuses(path)


async def test_posts_come_as_they_are_under_their_ids() -> None:
    """Only those that meet a rule; cut over segments inside a character, with U+2028 and an escaped line end."""
    async with simulated() as (x, clock), hearing(x, clock) as heard:
        await x.wait_for_connections(1)
        x.post("nothing about it")
        first = x.post("Kafka \u2028 in two\nlines 🐱")
        await heard.wait_for(1)
        text = message_of({"data": {"id": "1741610183685046999", "text": "Kafka 🐱"}})
        middle = text.index("🐱".encode()) + 2
        for part in (text[:5], text[5:middle], text[middle:], b"\r", b"\n"):
            x.say_raw(part)
        await heard.wait_for(2)
        assert [key for key, _ in heard.records] == [first.id.encode(), b"1741610183685046999"]
        assert heard.records[1][1] == text
        assert heard.texts == ["Kafka \u2028 in two\nlines 🐱", "Kafka 🐱"]


async def test_an_edit_is_a_post_of_its_own_and_partial_errors_come_with_theirs() -> None:
    """The history of the edit tells the first version; a failed expansion is in the record."""
    async with simulated() as (x, clock), hearing(x, clock) as heard:
        await x.wait_for_connections(1)
        first = x.post("kafka one")
        edit = x.post("kafka two", earlier=first, errors=({"title": "Not Found Error", "resource_id": "7"},))
        await heard.wait_for(2)
        assert [key for key, _ in heard.records] == [first.id.encode(), edit.id.encode()]
        told = json.loads(heard.records[1][1] or b"")
        assert told["data"]["edit_history_tweet_ids"] == [first.id, edit.id]
        assert told["errors"] == [{"title": "Not Found Error", "resource_id": "7"}]


async def test_a_deletion_is_a_tombstone_also_before_its_post_which_then_stays_away() -> None:
    """Also after a restart: the offset remembers it."""
    clock = FakeClock()
    async with simulated(clock) as (x, _):
        late = x.make.post("kafka that was deleted", clock.now())
        async with hearing(x, clock, x_recovery="none") as heard:
            await x.wait_for_connections(1)
            posted = x.post("kafka one")
            x.delete(posted.id, late.id)
            await heard.wait_for(3)
            assert heard.records[1:] == [(posted.id.encode(), None), (late.id.encode(), None)]
            offset = heard.offset
        await x.wait_for_no_connection()
        async with hearing(x, clock, offset=offset, x_recovery="none") as again:
            await x.wait_for_connections(2)
            x.publish(late)
            x.post("kafka two")
            await again.wait_for(1)
            assert again.texts == ["kafka two"]
            assert again.passed_over == {"deleted": 1}


async def test_notices_are_records_and_what_nobody_knows_is_counted_and_passed_over() -> None:
    """A limit is a gap of so many posts since the last; a warning is told in X's own words."""
    async with simulated() as (x, clock), hearing(x, clock) as heard:
        await x.wait_for_connections(1)
        notice = message_of({"scrub_geo": {"user_id": 14090452, "up_to_status_id": 23260136625}})
        x.say(notice)
        x.say(b'{"something":{"new":1}}')
        x.say(message_of({"limit": {"track": 5}}))
        x.say(message_of({"limit": {"track": 12}}))
        x.say(message_of({"warning": {"code": "FALLING_BEHIND", "message": "Read faster.", "percent_full": 60}}))
        x.post("kafka")
        await heard.wait_for(2)
        assert heard.records[0] == (None, notice)
        assert heard.passed_over == {"unknown": 1, "warning": 1}
        assert [(gap.reason, gap.messages) for gap in heard.gaps] == [("dropped", 5), ("dropped", 7)]


@pytest.mark.parametrize("is_closed", [True, False])
async def test_errors_in_the_stream_end_it_and_are_no_data(is_closed: bool) -> None:  # noqa: FBT001 - a case
    """Also where X leaves the socket open; the next connection is made at once."""
    async with simulated() as (x, clock), hearing(x, clock) as heard:
        await x.wait_for_connections(1)
        x.post("kafka one")
        await heard.wait_for(1)
        x.disconnect(is_closed=is_closed)
        await x.wait_for_connections(2)
        x.end(Ending.CLEAN) if is_closed else None
        await heard.wait(lambda: bool(x.connections))
        x.post("kafka two")
        await heard.wait(lambda: heard.texts == ["kafka one", "kafka two"])
        assert "disconnected upstream for operational reasons" in str(heard.context.retries[0][0])
        assert heard.waits[0] == 0.0


async def test_a_token_that_was_revoked_fails_the_task() -> None:
    """Code 6 of v1.1; a stall is only a reason to connect again."""
    async with simulated() as (x, clock), hearing(x, clock) as heard:
        await x.wait_for_connections(1)
        x.say(message_of({"disconnect": {"code": 4, "stream_name": "s", "reason": "stall"}}))
        await x.wait_for_connections(2)
        x.say(message_of({"disconnect": {"code": 6, "stream_name": "s", "reason": "token revoked"}}))
        assert isinstance(await heard.failure(), Fatal)
        assert "token revoked" in str(heard.error)


async def test_a_post_that_is_too_large_or_no_json_keeps_its_bytes() -> None:
    """The first is rejected here, the second by the conversion."""
    async with simulated() as (x, clock), hearing(x, clock, x_message_bytes_max="300") as heard:
        await x.wait_for_connections(1)
        x.say(b'{"data":{"id":"5","text":"' + b"x" * 400 + b'"}}')
        x.say(b'{"data":{"id":"6"')
        await heard.wait_for(2)
        values = [(value, page.rejections) for page in heard.pages for value in page.values()]
        assert values[0][0] == b'{"data":{"id":"5","text":"' + b"x" * 274
        assert [rejection.reason for rejection in values[0][1]] == ["too_large"]
        assert values[1] == (b'{"data":{"id":"6"', ())


async def test_after_429_nobody_asks_before_the_moment_that_x_names() -> None:
    """90 seconds by the header, though the back-off would wait for 60."""
    async with simulated() as (x, clock):
        now = clock.now()
        reset = {
            "Date": format_datetime(now, usegmt=True),
            "x-rate-limit-remaining": "0",
            "x-rate-limit-reset": str(int(now.timestamp()) + 90),
        }
        x.faults.append(Fault(path=STREAM_PATH, status=429, headers=reset))
        async with hearing(x, clock):
            await x.wait_for_connections(1)
            at = [request.at_seconds for request in x.requests if request.path == STREAM_PATH]
            assert at[1] - at[0] >= 90.0
            assert statuses(x, STREAM_PATH) == [429, 200]


async def test_waits_by_the_kind_of_failure() -> None:
    """503 doubles from five seconds, with a tenth of jitter; a 429 without a moment from a minute."""
    async with simulated() as (x, clock):
        x.faults.extend(Fault(path=STREAM_PATH, status=503) for _ in range(5))
        unlimited = {"x-rate-limit-remaining": "", "x-rate-limit-reset": ""}
        x.faults.extend(Fault(path=STREAM_PATH, status=429, headers=unlimited) for _ in range(3))
        async with hearing(x, clock) as heard:
            await x.wait_for_connections(1)
            for waited, planned in zip(heard.waits, (5, 10, 20, 40, 80, 60, 120, 240), strict=True):
                assert planned <= waited <= planned * 1.1


async def test_refused_connections_are_tried_again_at_once_and_then_a_little_later_each_time() -> None:
    """Nobody has refused anything: 0, 250, 500 milliseconds."""
    async with simulated() as (x, clock):
        url = x.url
    async with hearing(x, clock, x_base_url=url) as heard:
        await heard.wait(lambda: len(heard.waits) >= 4)
        assert heard.waits[:4] == [0.0, 0.25, 0.5, 0.75]


async def test_wrong_credentials_end_after_one_request_with_the_words_of_x() -> None:
    """A bearer token at the rules, key and secret at the token server; none is asked twice, so none earns a 429."""
    async with simulated() as (x, clock):
        async with hearing(x, clock, x_bearer_token="odd-wrong-token") as heard:
            assert isinstance(await heard.failure(), Fatal)
            assert "Unauthorized" in str(heard.error)
            assert "odd-wrong-token" not in str(heard.error)
        assert [(request.path, request.status) for request in x.requests] == [(RULES_PATH, 401)]
        keys = {"x.consumer.key": "odd-key", "x.consumer.secret": "odd-wrong-secret"}
        async with hearing(x, clock, x_bearer_token="", more=keys) as heard:
            assert isinstance(await heard.failure(), Fatal)
            assert "Unable to verify your credentials" in str(heard.error)
            assert "odd-wrong-secret" not in str(heard.error)
        assert [(request.path, request.status) for request in x.requests[1:]] == [(TOKEN_PATH, 403)]


async def test_key_and_secret_get_a_token() -> None:
    """Once for all requests; both are encoded as X asks for it."""
    async with simulated() as (x, clock):
        keys = {"x.consumer.key": x.settings.consumer_key, "x.consumer.secret": x.settings.consumer_secret}
        async with hearing(x, clock, x_bearer_token="", more=keys) as heard:
            await x.wait_for_connections(1)
            x.post("kafka")
            await heard.wait_for(1)
        assert statuses(x, TOKEN_PATH) == [200]


async def test_no_access_is_told_in_the_words_of_x() -> None:
    """Title and detail of a 403 at the stream."""
    async with simulated() as (x, clock):
        x.faults.append(Fault(path=STREAM_PATH, status=403))
        async with hearing(x, clock) as heard:
            assert isinstance(await heard.failure(), Fatal)
            assert "Client Forbidden" in str(heard.error)
            assert "attached to a Project" in str(heard.error)


async def test_without_rules_at_x_they_are_added_and_the_connection_is_made() -> None:
    """Somebody has deleted ours between two connections, or between our look and the connection (409)."""
    async with simulated() as (x, clock):
        x.faults.append(Fault(path=STREAM_PATH, status=409, body=no_rules()))
        async with hearing(x, clock) as heard:
            await x.wait_for_connections(1)
            assert x.rules.values == {"kafka": "headrace:cats:1"}
            x.rules.changed(b"{}", {"delete_all": "true"}, clock.now())
            x.end(Ending.CLEAN)
            await x.wait_for_connections(2)
            x.post("kafka")
            await heard.wait_for(1)
        assert x.rules.values == {"kafka": "headrace:cats:1"}


async def test_a_slow_pipeline_stops_the_reading_x_cuts_and_what_was_lost_is_found_again() -> None:
    """The inbox fills to its bound and no further; then X's buffer runs over, and the search brings the rest."""
    posts = 120
    async with (
        simulated(buffer_bytes_max=500_000, search_age_seconds_min=0.0) as (x, clock),
        hearing(x, clock, is_narrow=True, more={"x.query.tweet.fields": "note_tweet"}) as heard,
    ):
        await x.wait_for_connections(1)
        heard.pause()
        (inbox,) = heard.context.inboxes
        for number in range(posts):
            x.post(f"kafka {number}", note_tweet={"text": "x" * 100_000})
            await heard.breathe()
        assert [connection.ending for connection in x.connections] == [Ending.OVERFLOW]
        assert inbox.bytes <= 1_000_000
        assert any(isinstance(event, InboxWaitBegan) for event in heard.context.events)
        heard.go_on()
        await heard.wait(lambda: len(heard.ids) == posts)
        assert len(heard.texts) == posts
        assert heard.gaps == []
