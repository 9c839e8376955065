"""The contract suite's view of ``TwitterSource``: the stream of ``x_case``, and rows of Status that come of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Hashable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from typing_extensions import override

from fetchers.sdk.rows import row_json
from fetchers.sdk.testing import BadConfig, ListenerCase
from fetchers.x.twitter import TwitterSource
from fetchers.x.twitter_post import decode_message
from fetchers.x.twitter_rows import status_row
from fetchers.x.twitter_schema import ARTICLE_NAMESPACE, TwitterSchemas
from tests.contracts.loopback import serve
from tests.contracts.talking import TOKEN
from tests.contracts.x_case import Stream

SCHEMAS = TwitterSchemas.under(ARTICLE_NAMESPACE)
SECRET = "consumer-secret-8fd1"


def as_row(item: bytes) -> bytes:
    """The text by which a page shows the row of a post."""
    column: Any = pa.array([status_row(decode_message(item))], SCHEMAS.status_type)
    text = row_json(column[0])
    assert text is not None
    return text


class StatusStream(Stream):
    """The same posts, as rows."""

    @property
    @override
    def properties(self) -> Mapping[str, str]:
        return {
            "x.base.url": self.url,
            "x.bearer.token": TOKEN,
            "x.recovery": "backfill",
            "twitter.oauth.consumerKey": "key",
            "twitter.oauth.consumerSecret": SECRET,
            "twitter.oauth.accessToken": "token",
            "twitter.oauth.accessTokenSecret": SECRET,
            "filter.keywords": "kafka",
            "kafka.status.topic": "twitter",
            "kafka.delete.topic": "asdf",
            "process.deletes": "true",
        }

    @property
    @override
    def expected(self) -> Sequence[bytes]:
        return tuple(as_row(item) for item in self.items)


class TwitterCase(ListenerCase):
    """``TwitterSource`` with backfill."""

    connector = TwitterSource
    secrets = (TOKEN, SECRET)
    bad_configs = (
        BadConfig(
            {"twitter.oauth.accessTokenSecret": None, "process.deletes": "perhaps", "x.base.url": "x.com"},
            frozenset({"twitter.oauth.accessTokenSecret", "process.deletes", "x.base.url"}),
        ),
        BadConfig(
            {"filter.keywords": "", "twitter.schema.namespace": "no-namespace"},
            frozenset({"filter.keywords", "twitter.schema.namespace"}),
        ),
        BadConfig({"filter.userIds": "12,jack"}, frozenset({"filter.userIds"})),
    )

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[Stream]:
        """A server on a free port."""
        del folder
        stream = StatusStream()
        async with serve(stream.answer) as address:
            stream.url = address
            yield stream

    @override
    def dedupe_key(self, payload: bytes) -> Hashable | None:
        """By the post's id."""
        return int(json.loads(payload)["Id"])


CASE = TwitterCase()
