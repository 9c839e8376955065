"""``TwitterSource``: the filtered stream under the config and the schemas of the Twitter connector of 2016.

Facts: ``jcustenborder/kafka-connect-twitter`` (``TwitterSourceConnectorConfig``, ``TwitterSourceTask``). The stream
itself, its rules and recovery are those of ``XStreamSource``.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from fetchers.sdk import (
    Boolean,
    FetchContext,
    Finding,
    Importance,
    Key,
    NameList,
    Offset,
    Page,
    Partition,
    PayloadKind,
    Rejection,
    Secret,
    SourceConnector,
    TopicsConfig,
)
from fetchers.toolkit.access import odd_value
from fetchers.toolkit.fields import UNDECODABLE
from fetchers.toolkit.listener import address_finding
from fetchers.x.api import XApi
from fetchers.x.bookmark import Bookmark
from fetchers.x.config import XKeys
from fetchers.x.connection import PostStream, StreamSettings
from fetchers.x.fetcher import CONNECTION_OF_THE_APP
from fetchers.x.messages import Kind, Message
from fetchers.x.rules import Rule, Rules, wanted_rules
from fetchers.x.twitter_post import QUERY, decode_message
from fetchers.x.twitter_rows import status_row
from fetchers.x.twitter_schema import ARTICLE_NAMESPACE, RELEASED_NAMESPACE, TwitterSchemas
from metrics.events import MessagesPassedOver

_NAMESPACE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\Z", re.ASCII)
_OAUTH = Key(importance=Importance.HIGH, group="Authentication", example="from-x")
_FILTER = Key(importance=Importance.HIGH, group="Rules", example="olympics,san jose,kafka")
_TOPIC = Key(importance=Importance.HIGH, group="Topics", example="twitter")
_OLD = Key(importance=Importance.LOW, group="Accepted")


class TwitterConfig(TopicsConfig, XKeys):
    """Posts of X as the Twitter connector of 2016 wrote them."""

    twitter_oauth_consumer_key: Annotated[Secret, Field(alias="twitter.oauth.consumerKey"), _OAUTH]
    """API key of the app (OAuth consumer key): a bearer token is asked for with it, unless x.bearer.token is given."""
    twitter_oauth_consumer_secret: Annotated[Secret, Field(alias="twitter.oauth.consumerSecret"), _OAUTH]
    """API key secret of the app (OAuth consumer secret)."""
    twitter_oauth_access_token: Annotated[Secret, Field(alias="twitter.oauth.accessToken"), _OAUTH]
    """OAuth access token. Required as ever; the stream of today's API asks in the name of the app and has no use for
    it."""
    twitter_oauth_access_token_secret: Annotated[Secret, Field(alias="twitter.oauth.accessTokenSecret"), _OAUTH]
    """OAuth access token secret. Required as ever, and not used either."""
    filter_keywords: Annotated[NameList, _FILTER]
    """Posts with these words: one rule for each, its words in any order, a phrase in quotation marks."""
    filter_user_ids: Annotated[NameList, Field(alias="filter.userIds"), Key(group="Rules")] = ()
    """Posts by these users, named by their numbers."""
    kafka_status_topic: Annotated[str, Field(min_length=1), _TOPIC]
    """Topic that posts go to."""
    kafka_delete_topic: Annotated[str | None, Key(importance=Importance.HIGH, group="Topics")] = None
    """Topic that deletions go to, as tombstones under the keys of their posts; kafka.status.topic where not given."""
    process_deletes: Annotated[Boolean, Key(importance=Importance.HIGH, group="Topics", example="false")]
    """Whether deletions are written. If not, they still keep posts out that come after them."""
    twitter_schema_namespace: Annotated[str, Key(importance=Importance.LOW, group="Topics")] = ARTICLE_NAMESPACE
    """Namespace of StatusKey, Status and the structs in it. The released connector wrote under
    com.github.jcustenborder.kafka.connect.twitter."""
    twitter_debug: Annotated[Boolean, _OLD] = False
    """Accepted and without effect."""
    queue_empty_ms: Annotated[int, Field(ge=10), _OLD] = 100
    """Accepted and without effect."""
    queue_batch_size: Annotated[int, Field(ge=1), _OLD] = 100
    """Accepted and without effect: pages are closed by count, bytes and age."""

    @property
    def delete_topic(self) -> str:
        """Topic that deletions go to."""
        return self.kafka_delete_topic or self.kafka_status_topic

    def findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        yield from address_finding("x.base.url", self.x_base_url)
        if not any((*self.filter_keywords, *self.filter_user_ids)):
            yield Finding("filter.keywords", None, "Missing: without keywords or filter.userIds X sends nothing.")
        for user_id in self.filter_user_ids:
            if not (user_id.isascii() and user_id.isdigit()):
                yield odd_value("filter.userIds", user_id, "Expected the number of a user, not a name.")
        if not _NAMESPACE.match(self.twitter_schema_namespace):
            expected = f"Expected a namespace such as {RELEASED_NAMESPACE}."
            yield odd_value("twitter.schema.namespace", self.twitter_schema_namespace, expected)


class TwitterSource(SourceConnector[TwitterConfig]):
    """Listens to the filtered stream of X; one task, whatever ``tasks.max`` says."""

    payload_kind = PayloadKind.ROWS
    default_dedupe_fields = ("Id",)
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
        config, api = self.config, self._api(context)
        settings = StreamSettings(
            recovery=config.x_recovery,
            parameters=QUERY,
            message_bytes_max=config.x_message_bytes_max,
        )
        rows = StatusPages(config, context)
        self._stream = PostStream(
            context,
            api=api,
            rules=self._rules(context, api),
            settings=settings,
            make_pages=rows.pages,
            make_rejected=rows.rejected,
        )
        return self._stream.pages()

    def takes_over(self, keys: Collection[str]) -> bool:
        """Rules change at X, and the connection stays."""
        return {"filter.keywords", "filter.userIds"}.issuperset(keys)

    async def apply_config(self, config: TwitterConfig) -> None:
        """Bring the rules at X in line with it."""
        await super().apply_config(config)
        if self._stream is not None:
            await self._stream.follow(self._wanted())

    def _api(self, context: FetchContext) -> XApi:
        config = self.config
        account = config.account(config.twitter_oauth_consumer_key, config.twitter_oauth_consumer_secret)
        return XApi(account, clock=context.clock)

    def _rules(self, context: FetchContext, api: XApi) -> Rules:
        return Rules(api, context.connector, self._wanted())

    def _wanted(self) -> Sequence[Rule]:
        keywords = tuple(text for text in self.config.filter_keywords if text)
        return wanted_rules(
            keywords=("filter.keywords", keywords), user_ids=("filter.userIds", self.config.filter_user_ids)
        )


@dataclass(frozen=True, slots=True)
class _Read:
    """A message, and what becomes of it."""

    kind: Kind
    message: Message
    row: dict[str, Any] | None = None
    reason: str = ""
    why: str = ""


class StatusPages:
    """Pages of rows, tombstones and rejected messages."""

    def __init__(self, config: TwitterConfig, context: FetchContext) -> None:
        self._config = config
        self._context = context
        self._schemas = TwitterSchemas.under(config.twitter_schema_namespace)

    def pages(self, messages: Sequence[Message]) -> Sequence[Page]:
        """One page for each run of messages of one kind, in the order of the source."""
        notices = sum(message.kind is Kind.NOTICE for message in messages)
        if notices:
            context = self._context
            context.emit(MessagesPassedOver(context.connector, context.task, reason="notice", messages=notices))
        read = [_read(message) for message in messages if message.kind is not Kind.NOTICE]
        if not self._config.process_deletes:
            read = [each for each in read if each.kind is not Kind.DELETE]
        return [self._page(kind, tuple(run)) for kind, run in groupby(read, key=lambda each: each.kind)]

    def rejected(self, raw: bytes, rejection: Rejection) -> Page:
        """A page of one message that cannot be read."""
        return self._rejected([raw], (rejection,))

    def _rejected(self, raws: Sequence[bytes], rejections: tuple[Rejection, ...]) -> Page:
        """Rows that hold the messages as their Text: a dead letter of rows is a row."""
        rows = [
            {"Text": raw.decode(errors="backslashreplace"), "Contributors": [], "WithheldInCountries": []}
            for raw in raws
        ]
        column = pa.array(rows, self._schemas.status_type)
        topic = self._config.kafka_status_topic
        return Page(column, {}, topic=topic, schema=self._schemas.status, rejections=rejections)

    def _page(self, kind: Kind, run: Sequence[_Read]) -> Page:
        config, schemas = self._config, self._schemas
        if kind is Kind.UNREADABLE:
            rejections = tuple(Rejection(at, each.reason, each.why) for at, each in enumerate(run))
            return self._rejected([each.message.raw for each in run], rejections)
        return Page(
            pa.array([each.row for each in run], schemas.status_type),
            {},
            topic=config.delete_topic if kind is Kind.DELETE else config.kafka_status_topic,
            schema=schemas.status,
            keys=pa.array([{"Id": int(each.message.id or 0)} for each in run], schemas.key_type),
            key_schema=schemas.key,
        )


def _read(message: Message) -> _Read:
    if message.kind is not Kind.POST:
        return _Read(message.kind, message, reason="malformed_json", why="not a JSON text")
    try:
        return _Read(Kind.POST, message, status_row(decode_message(message.raw)))
    except (*UNDECODABLE, ValueError) as error:
        why = f"not a post of API v2: {error}"
        return _Read(Kind.UNREADABLE, message, reason="wrong_type", why=why)
