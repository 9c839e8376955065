"""``XStreamSource``: posts of X that meet rules, as they are posted.

A post is a record as it came, under its id as the key; a deletion is a tombstone under the key of its post.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from fetchers.sdk import FetchContext, Finding, Offset, Page, Partition, SourceConnector
from fetchers.x.api import XApi
from fetchers.x.bookmark import Bookmark
from fetchers.x.config import XStreamConfig
from fetchers.x.connection import PostStream, StreamSettings
from fetchers.x.messages import Kind, Message
from fetchers.x.rules import Rule, Rules, wanted_rules

CONNECTION_OF_THE_APP = "the one connection that X allows an app, and posts that come over it"


class XStreamSource(SourceConnector[XStreamConfig]):
    """Listens to the filtered stream; one task, whatever ``tasks.max`` says, since X allows an app one connection."""

    default_dedupe_fields = ("data.id", "id_str")
    _stream: PostStream | None = None

    def partition(self) -> Partition:
        """The only one."""
        return {"stream": "filtered"}

    def findings(self) -> Sequence[Finding]:
        """What does not fit together."""
        return tuple(self.config.findings())

    def check_offsets(self, offsets: Sequence[tuple[Partition, Offset | None]]) -> None:
        """Times have to be times."""
        Bookmark.check(offsets)

    def taken_by_reading(self) -> str | None:
        """A second connection takes the first one's place."""
        return CONNECTION_OF_THE_APP

    async def check(self, context: FetchContext) -> Sequence[Finding]:
        """Ask X whether it lets us in and takes our rules, without a change to them."""
        return await self._rules(context, self._api(context)).findings(context.http)

    def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Posts until the task is stopped."""
        config = self.config
        api = self._api(context)
        settings = StreamSettings(
            recovery=config.x_recovery, parameters=config.x_query, message_bytes_max=config.x_message_bytes_max
        )
        rules = self._rules(context, api)
        self._stream = PostStream(context, api=api, rules=rules, settings=settings, make_pages=_pages)
        return self._stream.pages()

    def takes_over(self, keys: Collection[str]) -> bool:
        """Rules change at X, and the connection stays."""
        return all(key in {"x.keywords", "x.user.ids"} or key.startswith("x.rule.") for key in keys)

    async def apply_config(self, config: XStreamConfig) -> None:
        """Bring the rules at X in line with it."""
        await super().apply_config(config)
        if self._stream is not None:
            await self._stream.follow(self._wanted())

    def _api(self, context: FetchContext) -> XApi:
        config = self.config
        return XApi(config.account(config.x_consumer_key, config.x_consumer_secret), clock=context.clock)

    def _rules(self, context: FetchContext, api: XApi) -> Rules:
        return Rules(api, context.connector, self._wanted())

    def _wanted(self) -> Sequence[Rule]:
        config = self.config
        return wanted_rules(
            keywords=("x.keywords", config.x_keywords),
            user_ids=("x.user.ids", config.x_user_ids),
            rules=("x.rule", config.x_rule),
        )


def _pages(messages: Sequence[Message]) -> Sequence[Page]:
    """One page: posts and notices as they came, tombstones for deletions, each under the id of its post."""
    payloads = [None if message.kind is Kind.DELETE else message.raw for message in messages]
    keys = [None if message.id is None else message.id.encode() for message in messages]
    return (Page(payloads, {}, keys=keys),)
