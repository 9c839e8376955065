"""The simulated X is no kinder than the real one, and keeps honest accounts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from fetchers.sdk.testing import FakeClock
from service.simulators.x import XSimulator
from service.simulators.x_rules import RuleRefused, parse_rule
from service.simulators.x_settings import (
    RULES_PATH,
    SEARCH_PATH,
    STREAM_PATH,
    TOKEN_PATH,
    Fault,
    Limits,
    SecondConnection,
    XSettings,
)
from service.simulators.x_stream import Ending

ENTERPRISE = XSettings(is_enterprise=True)


@asynccontextmanager
async def asking(
    settings: XSettings | None = None, clock: FakeClock | None = None, *rules: str
) -> AsyncIterator[tuple[XSimulator, aiohttp.ClientSession]]:
    """A simulator with rules, and a client that it knows."""
    async with XSimulator(settings, clock=clock) as x:
        for rule in rules or ("kafka",):
            x.rules.add(rule)
        headers = {"Authorization": f"Bearer {x.settings.bearer_token}"}
        async with aiohttp.ClientSession(x.url, headers=headers) as client:
            yield x, client


async def asked(client: aiohttp.ClientSession, path: str, **query: str) -> tuple[int, Any]:
    """Status and body of a GET; names have ``_`` for their dots where X has dots."""
    async with client.get(path, params=query) as answer:
        return answer.status, json.loads(await answer.read())


async def change(client: aiohttp.ClientSession, body: object, **query: str) -> tuple[int, Any]:
    """Status and body of a change of rules."""
    async with client.post(RULES_PATH, json=body, params=query) as answer:
        return answer.status, await answer.json(content_type=None)


async def heard(answer: aiohttp.ClientResponse) -> Mapping[str, Any]:
    """The next message; keep-alives are none."""
    while not (line := (await answer.content.readline()).strip()):
        assert not answer.content.at_eof()
    message: Mapping[str, Any] = json.loads(line)
    return message


async def test_a_post_is_told_with_the_fields_that_were_asked_for_and_with_no_other() -> None:
    """Without parameters: id, text, edit history, and the rules that it met."""
    async with asking(None, None, "kafka", "zebra", "from:person_7") as (x, client):
        fields = {
            "tweet.fields": "created_at,author_id",
            "expansions": "author_id",
            "user.fields": "public_metrics",
        }
        for query, names, includes in (
            ({}, {"id", "text", "edit_history_tweet_ids"}, set()),
            (fields, {"id", "text", "edit_history_tweet_ids", "created_at", "author_id"}, {"users"}),
        ):
            async with client.get(STREAM_PATH, params=query) as answer:
                await x.wait_for_connections(1)
                x.post("nothing about it", author=3)
                x.post("Kafka \u2028 in two\nlines 🐱", author=7)
                message = await heard(answer)
            assert message["data"].keys() == names
            assert message["data"]["text"] == "Kafka \u2028 in two\nlines 🐱"
            assert message.get("includes", {}).keys() == includes
            assert len(message["matching_rules"]) == 2
            await x.wait_for_no_connection()
        status, body = await asked(client, STREAM_PATH, **{"tweet.fields": "author"})
        assert (status, body["errors"][0]["parameters"]) == (400, {"tweet.fields": ["author"]})
        status, body = await asked(client, STREAM_PATH, since_id="1")
        assert (status, body["title"]) == (400, "Invalid Request")


async def test_strangers_are_refused_and_a_token_is_had_for_the_encoded_secret_only() -> None:
    """401 for a wrong bearer; the token's request encodes key and secret as in a URL before base64."""
    async with asking() as (x, client):
        for path in (STREAM_PATH, RULES_PATH, SEARCH_PATH):
            async with client.get(path, headers={"Authorization": "Bearer guess"}) as answer:
                assert (answer.status, (await answer.json(content_type=None))["title"]) == (401, "Unauthorized")
        form = {"grant_type": "client_credentials"}
        plain = aiohttp.encode_basic_auth(x.settings.consumer_key, x.settings.consumer_secret)
        encoded = aiohttp.encode_basic_auth("simulated+consumer%2Fkey", "simulated%2Bsecret%25")
        for header, data in ((plain, form), (encoded, {})):
            async with client.post(TOKEN_PATH, data=data, headers={"Authorization": header}) as answer:
                assert answer.status == 403
        async with client.post(TOKEN_PATH, data=form, headers={"Authorization": encoded}) as answer:
            assert await answer.json() == {"token_type": "bearer", "access_token": x.settings.bearer_token}


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("", "empty"),
        ("x" * 1025, "1025 characters"),
        ("cats and dogs", "Ambiguous use of and"),
        ("coca-cola", "no viable alternative at character '-'"),
        ("what?", "no viable alternative at character '?'"),
        ("has:images", "at least one positive"),
        ("-kafka", "at least one positive"),
        ("kafka OR lang:en", "at least one positive"),
        ("kafka -(a b)", "Negating a group"),
        ("(kafka", "missing ')'"),
        ("kafka)", "extraneous input"),
        ('"kafka', "no viable alternative at character '\"'"),
        ("kafka OR", "missing clause"),
        ("kafka is:nullcast", "must be negated"),
        ("kafka is:cat", "Invalid value"),
        ("kafka sample:101", "1 to 100"),
        ("price:3", "invalid operator 'price'"),
    ],
)
def test_rules_that_x_would_refuse_are_refused(rule: str, said: str) -> None:
    """With its reason."""
    with pytest.raises(RuleRefused) as refused:
        parse_rule(rule, characters_max=1024)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "is_met"),
    [
        ("san JOSE", True),
        ('"jose san"', False),
        ('"san jose"', True),
        ('"jose games"~2', True),
        ("san jos", False),
        ("#Kafka", True),
        ("#kaf", False),
        ("@apache", True),
        ("from:person_2 -is:retweet has:links", True),
        ("from:9876543212", True),
        ("from:person_3 OR (games lang:en)", True),
        ("games -kafka", False),
        ("games -is:nullcast", True),
        ('games "kafka"', True),
        ("games -has:media", True),
        ("place_country:US", False),
    ],
)
def test_a_rule_meets_what_it_says(rule: str, is_met: bool) -> None:  # noqa: FBT001 - a table
    """Words in any order, phrases in theirs; AND before OR."""
    x = XSimulator(clock=FakeClock())
    text = "The games of San Jose by @apache #kafka https://example.com/a"
    post = x.make.post(text, FakeClock().now(), author=2)
    assert parse_rule(rule, characters_max=1024).meets(post.seen(with_quoted=True)) is is_met


async def test_rules_are_added_refused_listed_and_deleted_one_by_one() -> None:
    """What is wrong with one does not hinder the others; the same value twice is a duplicate."""
    async with asking(XSettings(rules_max=3), None, "foreign") as (x, client):
        status, body = await change(
            client, {"add": [{"value": "cat", "tag": "a"}, {"value": "is:reply"}, {"value": "foreign", "tag": "b"}]}
        )
        assert (status, body["meta"]["summary"]) == (201, {"created": 1, "not_created": 2, "valid": 2, "invalid": 1})
        assert [error["type"].rpartition("/")[2] for error in body["errors"]] == ["invalid-rules", "duplicate-rules"]
        assert body["data"][0]["tag"] == "a"
        status, body = await change(client, {"add": [{"value": "d"}, {"value": "e"}]}, dry_run="true")
        assert (status, body["errors"][0]["type"].rpartition("/")[2]) == (201, "rule-cap")
        assert x.rules.values == {"foreign": None, "cat": "a"}
        status, body = await asked(client, RULES_PATH, max_results="1")
        first = body["data"][0]
        assert (first["value"], len(body["meta"]["next_token"])) == ("foreign", 16)
        status, body = await asked(client, RULES_PATH, pagination_token=body["meta"]["next_token"])
        assert [rule["value"] for rule in body["data"]] == ["cat"]
        status, body = await change(client, {"delete": {"ids": [first["id"], "1"]}})
        assert body["meta"]["summary"] == {"deleted": 1, "not_deleted": 1}
        assert (await change(client, {"delete": {"values": ["cat"]}}))[1]["meta"]["summary"]["deleted"] == 1
        assert "data" not in (await asked(client, RULES_PATH))[1]
        assert (await change(client, {"add": [], "delete": {}}))[0] == 400
        status, body = await asked(client, STREAM_PATH)
        assert (status, body["connection_issue"]) == (409, "RuleConfigurationIssue")


async def test_a_second_connection_is_refused_or_takes_the_place_of_the_first() -> None:
    """As the account's kind has it."""
    async with asking() as (x, client), client.get(STREAM_PATH) as first:
        await x.wait_for_connections(1)
        status, body = await asked(client, STREAM_PATH)
        assert (status, body["connection_issue"]) == (429, "TooManyConnections")
        x.post("kafka")
        assert (await heard(first))["data"]["text"] == "kafka"
    evicting = XSettings(second_connection=SecondConnection.EVICTS)
    async with asking(evicting) as (x, client), client.get(STREAM_PATH) as first, client.get(STREAM_PATH) as second:
        assert await first.content.read() == b""
        x.post("kafka")
        assert (await heard(second))["data"]["text"] == "kafka"


async def test_limits_count_every_request_and_end_with_their_window() -> None:
    """Also those that are refused for their credentials; the header says when the window ends."""
    clock = FakeClock()
    limits = Limits(stream=2)
    async with asking(XSettings(limits=limits), clock) as (_, client):
        wrong = {"Authorization": "Bearer guess"}
        for expected, remaining in ((401, "1"), (401, "0"), (429, "0")):
            async with client.get(STREAM_PATH, headers=wrong) as answer:
                assert (answer.status, answer.headers["x-rate-limit-remaining"]) == (expected, remaining)
                assert 900 <= int(answer.headers["x-rate-limit-reset"]) - clock.now().timestamp() <= 901
        clock.jump(901)
        assert (await asked(client, STREAM_PATH, backfill_minutes="1"))[0] == 400


async def test_backfill_tells_again_what_was_told_and_is_not_for_everyone() -> None:
    """Older posts first; doubles are counted. By times the stream ends by itself."""
    clock = FakeClock()
    async with asking(ENTERPRISE, clock) as (x, client):
        async with client.get(STREAM_PATH) as answer:
            await x.wait_for_connections(1)
            x.post("kafka 1")
            await heard(answer)
        await x.wait_for_no_connection()
        clock.jump(30)
        x.post("kafka 2")
        async with client.get(STREAM_PATH, params={"backfill_minutes": "1"}) as answer:
            assert [(await heard(answer))["data"]["text"] for _ in range(2)] == ["kafka 1", "kafka 2"]
        await x.wait_for_no_connection()
        assert (x.truth().doubles, len(x.truth().told), x.truth().never_told) == (1, 2, frozenset())
        times = {"start_time": "2024-01-01T00:00:10Z", "end_time": "2024-01-01T00:10:00Z"}
        async with client.get(STREAM_PATH, params=times) as answer:
            assert json.loads(await answer.content.read())["data"]["text"] == "kafka 2"
    async with asking() as (_, client):
        assert (await asked(client, STREAM_PATH, backfill_minutes="2"))[0] == 400


async def test_the_stream_ends_in_every_way_it_can() -> None:
    """Told and closed, told and left open, cut in the middle of a post, cut for a slow reader."""
    async with asking() as (x, client):
        async with client.get(STREAM_PATH) as answer:
            await x.wait_for_connections(1)
            x.disconnect()
            assert (await heard(answer))["errors"][0]["title"] == "operational-disconnect"
            assert await answer.content.read() == b""
        async with client.get(STREAM_PATH) as answer:
            await x.wait_for_connections(2)
            x.disconnect(is_closed=False)
            await heard(answer)
            x.post("kafka 1")
            assert (await heard(answer))["data"]["text"] == "kafka 1"
            x.cut_in_mid_post(x.make.post("kafka in half", FakeClock().now()))
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.content.read()
        await x.wait_for_no_connection()
        assert len(x.truth().never_told) == 1
    async with asking(XSettings(buffer_bytes_max=100)) as (x, client), client.get(STREAM_PATH) as answer:
        await x.wait_for_connections(1)
        x.post("kafka " + "x" * 100)
        with pytest.raises((aiohttp.ClientPayloadError, ConnectionError)):
            await answer.content.read()


async def test_keep_alives_come_until_the_stream_falls_silent() -> None:
    """Blank lines; then nothing, with the socket open."""
    async with asking(XSettings(keep_alive_seconds=0.01)) as (x, client), client.get(STREAM_PATH) as answer:
        assert await answer.content.readexactly(4) == b"\r\n\r\n"
        x.hush()
        x.post("kafka")
        x.end(Ending.CLEAN)
        assert (await answer.content.read()).strip() == b""
        assert len(x.truth().never_told) == 1


async def test_scripted_faults_come_once_and_compliance_is_said_in_the_stream() -> None:
    """A 503, then the stream with a delete, a limit and a partial error."""
    async with asking() as (x, client):
        x.faults.append(Fault(path=STREAM_PATH, status=503))
        assert (await asked(client, STREAM_PATH))[0] == 503
        async with client.get(STREAM_PATH) as answer:
            await x.wait_for_connections(1)
            x.withhold(1)
            held = x.post("kafka, held back")
            x.delete("17")
            x.tell_limit()
            x.post("kafka", errors=[{"resource_type": "user", "title": "Not Found Error"}])
            assert (await heard(answer))["delete"]["status"]["id_str"] == "17"
            assert await heard(answer) == {"limit": {"track": 1}}
            assert (await heard(answer)).keys() == {"data", "errors", "matching_rules"}
            x.end(Ending.CLEAN)
        assert x.truth().never_told == {held.id}
        assert x.truth().deleted == {"17"}


async def test_searches_are_newest_first_in_pages_and_know_no_operators_of_the_stream() -> None:
    """``since_id`` gives what came after it; the last seconds and deleted posts are not found."""
    clock = FakeClock()
    async with asking(None, clock) as (x, client):
        posts = [x.post(f"kafka {number}") for number in range(25)]
        x.delete(posts[3].id)
        query = {"query": "kafka", "since_id": posts[0].id, "max_results": "10"}
        texts: list[str] = []
        token: dict[str, str] = {}
        while True:
            status, body = await asked(client, SEARCH_PATH, **query, **token)
            assert status == 200
            texts += [post["text"] for post in body["data"]]
            if "next_token" not in body["meta"]:
                break
            token = {"next_token": body["meta"]["next_token"]}
        assert texts == [f"kafka {number}" for number in range(24, 0, -1) if number != 3]
        assert (await asked(client, SEARCH_PATH, query="kafka"))[1]["meta"]["result_count"] == 0
        for wrong in ({"query": "kafka sample:10"}, {"query": "kafka", "end_time": "2024-01-01T00:00:00Z"}, {}):
            assert (await asked(client, SEARCH_PATH, **wrong))[0] == 400


async def test_an_edit_is_a_new_post_with_the_ids_of_all_versions() -> None:
    """The oldest first."""
    async with asking() as (x, client), client.get(STREAM_PATH) as answer:
        await x.wait_for_connections(1)
        first = x.post("kafka, frist")
        second = x.post("kafka, first", earlier=first)
        await heard(answer)
        assert (await heard(answer))["data"]["edit_history_tweet_ids"] == [first.id, second.id]
