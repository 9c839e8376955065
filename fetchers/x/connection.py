"""The filtered stream of X as a listener: rules, one connection, what it says, and recovery of what was missed.

Whoever makes a connector of it says with ``make_pages`` what becomes of posts; everything that concerns X is here.

Facts: https://docs.x.com/x-api/posts/filtered-stream/integrate/consume-streaming-data,
https://docs.x.com/x-api/fundamentals/handling-disconnections.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from fetchers.sdk import (
    Disconnected,
    Fatal,
    FetchContext,
    HttpStream,
    Inbox,
    Page,
    RateLimited,
    Reconnect,
    Rejection,
    Retriable,
    StatusTable,
    StatusVerdict,
    listen,
)
from fetchers.sdk.inbox import RECEIVED_AT
from fetchers.sdk.retry import Failures
from fetchers.toolkit.framing import CUT_OFF, Frames, LineFraming
from fetchers.x.api import STREAM_PATH, XApi
from fetchers.x.bookmark import Bookmark, Missing, window_of
from fetchers.x.messages import Kind, Message, read
from fetchers.x.recovery import INDEXED_SECONDS, Plan, found, plan, queries
from fetchers.x.rules import Rule, Rules
from metrics.events import MessagesPassedOver

MakePages = Callable[[Sequence[Message]], Sequence[Page]]
"""Pages of some messages in the order of the source: posts, deletions, notices and what is no JSON.

The offset and the window of de-duplication of these pages are set by the stream; whatever they hold is replaced.
"""
MakeRejected = Callable[[bytes, Rejection], Page]
"""A page of one message that is cut off or too large to be read."""
DELETED_REMEMBERED = 10_000
"""Deleted posts whose late coming is noticed while a task runs; of these the last stand in the offset."""
# There are no rules: somebody has taken ours away. They are brought in line before the next try.
_STATUSES = StatusTable().with_verdict(StatusVerdict.RETRY, (409,))
_REVOKED = 6
_ASKED_TO_STAY_AWAY = frozenset({2, 9, 12})
"""Codes of v1.1: another connection of ours, too many messages, too much load."""
_LIMITED_WORDS = (b"TooManyConnections", b"usage-capped", b"rate-limit-exceeded")


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What a connector's config says of the stream."""

    recovery: str = "search"
    """As in ``x.recovery``: search, backfill or none."""
    parameters: Mapping[str, str] | None = None
    """Parameters of the stream and of searches, as X names them."""
    message_bytes_max: int = 1_048_576

    def query(self) -> dict[str, str]:
        """The parameters, with the time of each post among the fields that are asked for.

        So are those by which it can be told to which post of a search an expanded object belongs.
        """
        query = dict(self.parameters or {})
        fields = _names(query.get("tweet.fields", ""))
        needed = [name.partition(".")[0] for name in _names(query.get("expansions", ""))]
        return query | {"tweet.fields": ",".join(dict.fromkeys((*fields, *needed, "created_at")))}


class PostStream:
    """The stream of one task."""

    def __init__(
        self,
        context: FetchContext,
        *,
        api: XApi,
        rules: Rules,
        settings: StreamSettings,
        make_pages: MakePages,
        make_rejected: MakeRejected = lambda raw, rejection: Page([raw], {}, rejections=(rejection,)),
        reconnect: Reconnect | None = None,
    ) -> None:
        self._context = context
        self._api = api
        self._rules = rules
        self._settings = settings
        self._make_pages = make_pages
        self._make_rejected = make_rejected
        self._reconnect = reconnect
        self._bookmark = Bookmark()
        self._deleted: dict[str, None] = {}
        self._pending: set[str] = set()
        """Ways of recovery that have not ended: backfill, search."""
        self._withheld = 0
        """By the last limit message of this connection."""
        self._turn = asyncio.Lock()
        """Of the stream and of a search, which go on beside each other and move one offset."""

    def pages(self) -> AsyncIterator[Page]:
        """Pages until the task is stopped."""
        return listen(
            self._context, self._receive, reconnect=self._reconnect, silence_seconds=self._api.silence_seconds
        )

    async def follow(self, wanted: Sequence[Rule]) -> None:
        """Change the rules under the connection that stands; raises as ``Rules.sync``."""
        self._rules.wanted = wanted
        await self._rules.sync(self._context.http)

    @property
    def _now_ms(self) -> int:
        return int(self._context.clock.now().timestamp() * 1000)

    # --- one connection ---------------------------------------------------------------------------------

    async def _receive(self, inbox: Inbox) -> None:
        """One connection; as ``listen`` wants it."""
        inbox.health.disarm()  # rules and limits may take their time; a request has a limit of its own
        with self._api.only_connection(self._context.connector):
            await self._connect(inbox)

    async def _connect(self, inbox: Inbox) -> None:
        self._bookmark = Bookmark.of(inbox.offset)
        self._deleted |= dict.fromkeys(self._bookmark.deleted)
        self._withheld = 0
        http = self._context.http
        await self._rules.sync(http)
        planned = plan(self._bookmark, self._settings.recovery, now_ms=self._now_ms)
        query = self._settings.query()
        if planned.backfill_minutes is not None:
            query["backfill_minutes"] = str(planned.backfill_minutes)
        options = self._api.options("GET", STREAM_PATH, query, statuses=_STATUSES)
        async with http.stream("GET", self._api.url(STREAM_PATH), **options) as answer:
            if answer.is_skipped:
                raise Disconnected("X has nothing to say now")
            await self._begin(inbox, planned)
            try:
                async with asyncio.TaskGroup() as group:
                    name = f"{self._context.connector} search"
                    missed = (planned.search,) if planned.search is not None else ()
                    searches = [group.create_task(self._search(inbox, missing), name=name) for missing in missed]
                    try:
                        await self._read(inbox, answer)
                    finally:
                        for search in searches:
                            search.cancel()
            except BaseExceptionGroup as errors:  # what has failed first is what has happened
                raise errors.exceptions[0] from None

    async def _begin(self, inbox: Inbox, planned: Plan) -> None:
        """The connection stands: say so, tell what is lost for good, and remember what is still missing."""
        is_resumable = self._settings.recovery != "none"
        before = self._bookmark
        if not is_resumable and before.last_ms is not None and RECEIVED_AT not in inbox.offset:
            inbox.gap("restarted", seconds=max(0.0, (self._now_ms - before.last_ms) / 1000))
        inbox.connected(is_resumed=is_resumable)
        if planned.lost_seconds:
            inbox.gap("unrecovered", seconds=planned.lost_seconds)
        self._pending = set()
        if planned.missing is not None:
            self._pending = {"backfill"} if planned.backfill_minutes is not None else set()
            self._pending |= {"search"} if planned.search is not None else set()
        # A connector that has never heard a post must know after a crash since when it has listened.
        since_ms = self._now_ms if before.last_ms is None else before.last_ms
        self._bookmark = replace(before, last_ms=since_ms, missing=planned.missing)
        await self._put_offset(inbox)

    async def _read(self, inbox: Inbox, answer: HttpStream) -> None:
        framing = LineFraming(self._settings.message_bytes_max)
        try:
            async for chunk in answer.chunks():
                inbox.heard()
                frames = framing.feed(chunk)
                if frames is not None:
                    await self._take(inbox, frames)
        except Disconnected:
            await self._take_rest(inbox, framing.finish())
            raise
        await self._take_rest(inbox, framing.finish())

    async def _take_rest(self, inbox: Inbox, rest: bytes) -> None:
        """The message in whose middle the connection ended; recovery brings it whole, where there is one."""
        if not rest:
            return
        message = read(rest)
        if message.kind is not Kind.UNREADABLE:
            await self._sort(inbox, [message])
        elif self._settings.recovery == "none":
            await self._reject(inbox, rest, Rejection(0, CUT_OFF, "the connection ended in the middle of this message"))

    async def _reject(self, inbox: Inbox, raw: bytes, rejection: Rejection) -> None:
        async with self._turn:
            await self._put(inbox, [self._make_rejected(raw, rejection)], self._bookmark)

    async def _take(self, inbox: Inbox, frames: Frames) -> None:
        bad = {rejection.index: rejection for rejection in frames.rejections}
        messages: list[Message] = []
        for index, raw in enumerate(frames.payloads.to_pylist()):
            if index in bad:
                await self._sort(inbox, messages)
                messages = []
                await self._reject(inbox, raw or b"", replace(bad[index], index=0))
            else:
                messages.append(read(raw or b""))
        await self._sort(inbox, messages)

    # --- what is said -----------------------------------------------------------------------------------

    async def _sort(self, inbox: Inbox, messages: Sequence[Message]) -> None:
        """Hand over what is for topics, and act on what is about the connection, in the order of the source."""
        kept: list[Message] = []
        for message in messages:
            match message.kind:
                case Kind.LIMIT:
                    total = message.number or 0
                    inbox.gap("dropped", messages=max(0, total - self._withheld))
                    self._withheld = total
                case Kind.WARNING:
                    self._pass_over("warning", 1, message.words)
                case Kind.UNKNOWN:
                    self._pass_over("unknown", 1)
                case Kind.ENDING:
                    await self._deliver(inbox, kept)
                    raise _ending(message)
                case _:
                    kept.append(message)
        await self._deliver(inbox, kept)
        newest_ms = max((message.at_ms for message in kept if message.at_ms is not None), default=None)
        if newest_ms is not None:
            self._context.report_lag(max(0.0, (self._now_ms - newest_ms) / 1000))
            missing = self._bookmark.missing
            if missing is not None and newest_ms > missing.until_ms:
                await self._end_recovery(inbox, "backfill")

    async def _deliver(self, inbox: Inbox, messages: Sequence[Message]) -> None:
        """Put in posts and notices, those of one window of de-duplication together."""
        if not messages:
            return
        async with self._turn:
            now_ms = self._now_ms
            # A time to come would hide what is missed until then.
            timed = [
                (message, now_ms if message.at_ms is None else min(max(message.at_ms, 0), now_ms))
                for message in self._wanted(messages)
            ]
            for _, group in groupby(timed, key=lambda each: window_of(each[1])):
                run = list(group)
                bookmark = self._bookmark
                for message, at_ms in run:
                    if message.kind is Kind.POST and message.id is not None:
                        bookmark = bookmark.after_post(message.id, at_ms)
                deleted = [message.id for message, _ in run if message.kind is Kind.DELETE and message.id]
                bookmark = bookmark.with_deleted(deleted) if deleted else bookmark
                scope = bookmark.scope(run[0][1])
                pages = [replace(page, dedupe=scope) for page in self._make_pages([message for message, _ in run])]
                await self._put(inbox, pages, bookmark)

    def _wanted(self, messages: Sequence[Message]) -> Iterator[Message]:
        """Without posts that nobody here has asked for, and those that X has said to delete before they came."""
        foreign = deleted = 0
        for message in messages:
            if message.kind is Kind.DELETE and message.id is not None:
                self._deleted[message.id] = None
                if len(self._deleted) > DELETED_REMEMBERED:
                    del self._deleted[next(iter(self._deleted))]
            elif message.kind is Kind.POST and message.id in self._deleted:
                deleted += 1
                continue
            elif not self._rules.are_ours(message.met):
                foreign += 1
                continue
            yield message
        if foreign:
            self._pass_over("foreign", foreign)
        if deleted:
            self._pass_over("deleted", deleted)

    def _pass_over(self, reason: str, messages: int, words: str | None = None) -> None:
        context = self._context
        event = MessagesPassedOver(context.connector, context.task, reason=reason, messages=messages, message=words)
        context.emit(event)

    async def _put(self, inbox: Inbox, pages: Sequence[Page], bookmark: Bookmark) -> None:
        """Only the last of them moves the offset: after the others the source would be asked for all of them again."""
        before = inbox.offset
        for page in pages[:-1]:
            await inbox.put_page(replace(page, offset=before))
        self._bookmark = bookmark
        received_ms = self._now_ms if self._settings.recovery == "none" else None
        last = pages[-1] if pages else Page((), {})
        await inbox.put_page(replace(last, offset=bookmark.offset(received_ms=received_ms)))

    async def _put_offset(self, inbox: Inbox) -> None:
        await self._put(inbox, (), self._bookmark)

    # --- what was missed ----------------------------------------------------------------------------------

    async def _search(self, inbox: Inbox, missing: Missing) -> None:
        """Find what was posted while nobody listened. What X refuses to search for is told as a gap."""
        context = self._context
        with context.waiting_for_limit():  # until all of it is there the task is not idle
            searchable_at_ms = missing.until_ms + INDEXED_SECONDS * 1000
            await context.clock.sleep(max(0.0, (searchable_at_ms - self._now_ms) / 1000))
            for query in queries(self._rules.wanted):
                await self._search_for(inbox, query, missing)
        await self._end_recovery(inbox, "search")

    async def _search_for(self, inbox: Inbox, query: str, missing: Missing) -> None:
        """One search, again until it is answered; a post that is found twice is dropped as any other double."""
        context, failures = self._context, Failures(self._reconnect or Reconnect())
        parameters = self._settings.query()
        while True:
            try:
                async for messages in found(
                    self._api, context.http, query=query, missing=missing, parameters=parameters
                ):
                    await self._deliver(inbox, messages)
            except Fatal as error:
                inbox.gap("unrecovered", seconds=missing.seconds, message=str(error))
            except Retriable as error:
                wait_seconds, _ = failures.note(error)
                await context.wait_to_retry(error, attempt=failures.total, wait_seconds=wait_seconds)
                continue
            return

    async def _end_recovery(self, inbox: Inbox, way: str) -> None:
        """One of the ways has brought all it could; with the last of them nothing is missing any more."""
        if way not in self._pending:
            return
        self._pending.remove(way)
        if not self._pending:
            async with self._turn:
                self._bookmark = replace(self._bookmark, missing=None)
                await self._put_offset(inbox)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _ending(message: Message) -> Retriable | Fatal:
    """What is done when the stream says that it is over, in its own words."""
    words = f"X has ended the stream: {message.words}" if message.words else "X has ended the stream"
    if message.number == _REVOKED:
        return Fatal(words)
    if any(text in message.raw for text in _LIMITED_WORDS):
        return RateLimited(words)
    return Retriable(words) if message.number in _ASKED_TO_STAY_AWAY else Disconnected(words)
