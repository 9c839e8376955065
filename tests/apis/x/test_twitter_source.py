"""``TwitterSource`` against the simulated X: the seed's config, its schemas, and deletions under the keys of posts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fetchers.catalog import find_plugin, shared_http
from fetchers.sdk import Fatal, Page
from fetchers.sdk.testing import FakeContext, collect
from fetchers.x.twitter import TwitterConfig, TwitterSource
from metrics.events import MessagesPassedOver
from service.config.files import read_properties
from service.simulators.x import XSimulator
from service.simulators.x_settings import STREAM_PATH, TOKEN_PATH, XSettings

SEED = Path(__file__).parents[3] / "docs/examples/seeds/twitter-source.properties"
AS_PRINTED = "<insert your value>"
"""The seed's text in the place of each secret; the simulated X knows an app whose secrets it is."""
SETTINGS = XSettings(consumer_key=AS_PRINTED, consumer_secret=AS_PRINTED, keep_alive_seconds=0.05)


def connector(x: XSimulator, **changes: str) -> TwitterSource:
    """The seed's config with the simulator's address; keys have ``_`` for their dots."""
    properties = read_properties(SEED) | {"x.base.url": x.url}
    properties |= {key.replace("_", "."): text for key, text in changes.items()}
    plugin = find_plugin(properties["connector.class"])
    assert plugin is not None
    assert plugin.load() is TwitterSource
    parsed = TwitterConfig.parse(properties)
    assert parsed.config is not None, parsed.findings
    made = TwitterSource(parsed.config)
    assert made.findings() == ()
    return made


@asynccontextmanager
async def simulated() -> AsyncIterator[tuple[XSimulator, FakeContext]]:
    """An X in virtual time, and the context of a task."""
    async with shared_http() as http:
        context = FakeContext(http=http, connector="TwitterSourceConnector", partition={"stream": "filtered"})
        async with XSimulator(SETTINGS, clock=context.clock) as x:
            yield x, context


async def fetched(context: FakeContext, made: TwitterSource, *, records: int) -> list[Page]:
    """Pages until so many records have come, as soon as somebody listens."""
    return [page for page in await collect(made, context, records=records) if len(page)]


def rows_of(page: Page) -> list[Any]:
    """The rows of a page; None for a tombstone."""
    return page.payload_column.to_pylist()


def keys_of(page: Page) -> list[Any]:
    """Its keys."""
    keys: Any = page.keys
    return list(keys.to_pylist())


async def test_the_seeds_config_as_printed_brings_posts_as_rows() -> None:
    """The token is had with its two keys, each keyword is a rule, and a post is a row of Status under its StatusKey."""
    async with simulated() as (x, context):
        made = connector(x)
        x.on_connect = lambda: [x.post("Kafka at the Olympics", author=7), x.post("nothing"), x.post("in Jose's San")]
        pages = await fetched(context, made, records=2)
        assert sorted(x.rules.values) == ["kafka", "olympics", "san jose"]
        assert x.ledger.statuses(TOKEN_PATH) == [200]
    assert {page.topic for page in pages} == {"twitter"}
    rows = [row for page in pages for row in rows_of(page)]
    assert [row["Text"] for row in rows] == ["Kafka at the Olympics", "in Jose's San"]
    assert rows[0]["User"]["ScreenName"] == "person_7"
    assert [key for page in pages for key in keys_of(page)] == [{"Id": row["Id"]} for row in rows]
    schema, key_schema = pages[0].schema, pages[0].key_schema
    assert schema is not None
    assert key_schema is not None
    assert schema.name == "io.confluent.examples.kafka.connect.twitter.Status"
    assert key_schema.name == "io.confluent.examples.kafka.connect.twitter.StatusKey"


@pytest.mark.parametrize("deletes", ["true", "false"])
async def test_deletions_are_tombstones_under_the_key_of_the_post(deletes: str) -> None:
    """On the topic that the config names, or nowhere; a post that comes after its deletion is left out."""
    async with simulated() as (x, context):
        made = connector(x, process_deletes=deletes)

        def talk() -> None:
            first, late = x.post("kafka, to be deleted"), x.make.post("kafka, deleted before it comes", x.now)
            x.delete(first.id, late.id)
            x.publish(late)
            x.say(b'{"scrub_geo":{"user_id":1,"user_id_str":"1","up_to_status_id":9,"up_to_status_id_str":"9"}}')
            x.post("kafka, kept")

        x.on_connect = talk
        pages = await fetched(context, made, records=4 if deletes == "true" else 2)
    found = [
        (page.topic, key["Id"], row and row["Text"])
        for page in pages
        for key, row in zip(keys_of(page), rows_of(page), strict=True)
    ]
    first, late, kept = (int(post.id) for _, post in x.history)
    tombstones = [("asdf", first, None), ("asdf", late, None)] if deletes == "true" else []
    assert found == [
        ("twitter", first, "kafka, to be deleted"),
        *tombstones,
        ("twitter", kept, "kafka, kept"),
    ]
    reasons = [event.reason for event in context.events if isinstance(event, MessagesPassedOver)]
    assert sorted(reasons) == ["deleted", "notice"]


async def test_what_is_no_post_of_v2_is_a_dead_letter_that_holds_it() -> None:
    """Half a JSON text, a count that is a text, a post of API v1.1."""
    async with simulated() as (x, context):
        made = connector(x)
        bad = (
            b'{"data":{"id":"1","text"',
            b'{"data":{"id":"1","text":"a","public_metrics":{"like_count":"many"}}}',
            b'{"id":5,"id_str":"5","text":"of old"}',
        )

        def talk() -> None:
            for message in bad:
                x.say(message)
            x.post("kafka")

        x.on_connect = talk
        pages = await fetched(context, made, records=4)
    rejected = [row["Text"] for page in pages if page.rejections for row in rows_of(page)]
    assert rejected == [message.decode() for message in bad]
    assert {page.topic for page in pages} == {"twitter"}
    assert [len(page.rejections) for page in pages if page.rejections] == [3]


async def test_a_wrong_secret_fails_the_task_after_one_request() -> None:
    """With X's own words, and without another request that could end in 429."""
    async with simulated() as (x, context):
        with pytest.raises(Fatal, match="verify your credentials"):
            await collect(connector(x, twitter_oauth_consumerSecret="guess"), context, records=1)
        assert [seen.path for seen in x.requests] == [TOKEN_PATH]


async def test_a_check_asks_for_the_rules_and_changes_none() -> None:
    """A keyword that X refuses is a finding of its key, with X's reason."""
    async with simulated() as (x, context):
        [finding] = await connector(x, filter_keywords='kafka,"' + "x" * 1100 + '"').check(context)
        assert finding.key == "filter.keywords"
        assert "1024" in finding.message
        assert x.rules.is_empty
        assert {STREAM_PATH} & {seen.path for seen in x.requests} == set()
        assert [seen.query.get("dry_run") for seen in x.requests if seen.method == "POST"] == [None, "true"]
