"""What a listener has received and not yet handed over: bounded, and closed into pages by count, bytes and age.

A source that talks by itself is read by a task of its own, which puts what comes into the inbox; the pipeline takes
pages out at its own pace. When the inbox is full, putting waits, so the source is no longer read and has to hold back
what it has to say. Whatever else keeps the connection alive (pings, acknowledgements) is not held up by that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from fetchers.sdk.asker import Asker
from fetchers.sdk.page import Offset, Page, Rejection
from metrics.events import InboxChanged, InboxWaitBegan, InboxWaited, ListenerConnected, SourceGap

RECEIVED_AT = "received_at_ms"
"""In the offset of a source that cannot be resumed: when it was last heard, in milliseconds since the epoch."""
MARK_SECONDS = 30.0
"""How often that time is stored while the source sends no messages, though it is heard by keep-alives or connecting."""
HEALTHY_SECONDS = 60.0
"""A connection that has lasted for so long was a healthy one, also where only keep-alives came."""
MESSAGE_HEALTHY_SECONDS = 5.0
"""The same where a message came. A source that refuses us in a message and hangs up, or whose document is at its end,
would otherwise be asked again and again at once."""


@dataclass(frozen=True, slots=True)
class InboxLimits:
    """What an inbox holds at most, and when a page of it is complete. Bytes are those of payloads."""

    records_max: int = 20_000
    bytes_max: int = 16 * 1024 * 1024
    page_records_max: int = 5_000
    page_bytes_max: int = 1024 * 1024
    page_age_seconds_max: float = 0.1
    """Only while pages wait in the pipeline's queue; when it is empty, what is there is handed over at once."""


@dataclass(slots=True)
class _Held:
    """What one ``put`` has brought."""

    payloads: Sequence[bytes] | pa.Array[Any]
    offset: Offset
    size: int
    """Bytes of the payloads."""
    rejections: tuple[Rejection, ...] = ()
    page: Page | None = None
    """A page of its own, with keys or a topic, which is not joined with others."""
    since: float = 0.0

    @property
    def count(self) -> int:
        """Its records."""
        return len(self.payloads) if self.page is None else len(self.page)


@dataclass(slots=True)
class _Health:
    """Signs of life of the connection of the moment."""

    watch: asyncio.Timeout | None = None
    silence_seconds: float | None = None
    connected_at: float | None = None
    first_message_at: float | None = None
    is_long_lived: bool = False
    """Something came after ``HEALTHY_SECONDS``."""
    heard_at_ms: int | None = None
    """Wall clock, of anything that came."""

    def begin(self, watch: asyncio.Timeout, silence_seconds: float | None) -> None:
        """A connection is about to be made."""
        self.watch, self.silence_seconds = watch, silence_seconds
        self.connected_at, self.first_message_at, self.is_long_lived = None, None, False

    def end(self) -> bool:
        """The connection has ended; gives whether it was a healthy one."""
        self.watch = None
        if self.first_message_at is None:
            return self.is_long_lived
        since = self.first_message_at if self.connected_at is None else self.connected_at
        return asyncio.get_running_loop().time() - since >= MESSAGE_HEALTHY_SECONDS

    def rearm(self) -> None:
        """Something has come: the silence begins anew."""
        if self.watch is not None and self.silence_seconds is not None and not self.watch.expired():
            self.watch.reschedule(asyncio.get_running_loop().time() + self.silence_seconds)

    def disarm(self) -> None:
        """The source is not read for now, so that it is no silence of the source."""
        if self.watch is not None and not self.watch.expired():
            self.watch.reschedule(None)


class Inbox:
    """Made by ``context.inbox()`` (``listen`` does it); one receiver puts, one generator takes, on one event loop."""

    def __init__(
        self,
        asker: Asker,
        *,
        offset: Offset,
        is_starved: Callable[[], bool],
        limits: InboxLimits | None = None,
    ) -> None:
        """``offset``: where to resume; ``is_starved``: whether the pipeline has nothing of this task waiting."""
        self._asker = asker
        self._is_starved = is_starved
        self._limits = limits or InboxLimits()
        self.offset: Offset = dict(offset)
        """Where to resume after everything that was put in: for the next connection."""
        self.health = _Health(heard_at_ms=_as_number(offset.get(RECEIVED_AT)))
        self.records = 0
        self.bytes = 0
        self._held: deque[_Held] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._is_closed = False
        self._has_listened = False
        self._is_resumed = True

    # --- for whoever reads the source ---------------------------------------------------------------

    def connected(self, *, is_resumed: bool) -> None:
        """Say that the source has accepted the connection: a round of it is finished, and idleness begins.

        ``is_resumed``: it gives everything since ``offset``. Otherwise what it said since it was last heard is lost,
        and that is told as a gap; not for the very first connection of a connector, which has missed nothing.
        """
        self.health.connected_at = asyncio.get_running_loop().time()
        self.health.rearm()
        if not is_resumed and self.health.heard_at_ms is not None:
            seconds = max(0.0, (self._now_ms() - self.health.heard_at_ms) / 1000)
            self.gap("disconnected" if self._has_listened else "restarted", seconds=seconds)
        self._has_listened, self._is_resumed = True, is_resumed
        self.health.heard_at_ms = self._now_ms()
        asker = self._asker
        asker.emit(ListenerConnected(asker.connector, asker.task, is_resumed=is_resumed))
        self._asker.finish_round()

    def heard(self) -> None:
        """Say that something came, if only a keep-alive: the source is not silent."""
        health = self.health
        health.rearm()
        if health.connected_at is not None:
            health.heard_at_ms = self._now_ms()
            health.is_long_lived = asyncio.get_running_loop().time() - health.connected_at > HEALTHY_SECONDS

    def gap(
        self, reason: str, *, seconds: float | None = None, messages: int | None = None, message: str | None = None
    ) -> None:
        """Tell that something of the source is lost: an event, a metric and a line of the log.

        ``message``: what the source says of it, without a secret.
        """
        asker = self._asker
        asker.emit(
            SourceGap(asker.connector, asker.task, reason=reason, seconds=seconds, messages=messages, message=message)
        )

    async def put(
        self,
        payloads: Sequence[bytes] | pa.Array[Any],
        *,
        offset: Offset | None = None,
        rejections: tuple[Rejection, ...] = (),
    ) -> None:
        """Put in what came, in the order of the source; waits while the inbox is full.

        ``offset``: where to resume after it; None where the source cannot be resumed. ``rejections`` count from the
        first of these payloads. What is put in together is not divided. Without payloads only the offset moves, with
        the next page.
        """
        size = payloads.nbytes if isinstance(payloads, pa.Array) else sum(map(len, payloads))
        await self._put(_Held(payloads, self.stored(offset), size, rejections))

    async def put_page(self, page: Page) -> None:
        """Put in a page that has keys, a topic or a source partition of its own; waits while the inbox is full."""
        await self._put(_Held((), page.offset, page.bytes, page=page))

    async def _put(self, held: _Held) -> None:
        count, size = held.count, held.size
        self.heard()
        if not self._fits(count, size):
            await self._wait_for_room(count, size)
        self.offset = held.offset
        if count or held.page is not None:
            held.since = asyncio.get_running_loop().time()
            self._held.append(held)
            self.records += count
            self.bytes += size
            self._changed.set()
            if count and self.health.first_message_at is None:
                self.health.first_message_at = held.since
        elif self._held and self._held[-1].page is None:
            self._held[-1].offset = held.offset
        # A source that always has more would otherwise keep the loop until the inbox is full.
        await asyncio.sleep(0)

    def _fits(self, count: int, size: int) -> bool:
        """What is larger than the whole inbox is let in alone: no bound can deadlock."""
        limits = self._limits
        return not self._held or (self.records + count <= limits.records_max and self.bytes + size <= limits.bytes_max)

    async def _wait_for_room(self, count: int, size: int) -> None:
        asker, since = self._asker, asyncio.get_running_loop().time()
        asker.emit(InboxWaitBegan(asker.connector, asker.task))
        self.health.disarm()
        try:
            while not self._fits(count, size):
                self._room.clear()
                await self._room.wait()
        finally:
            seconds = asyncio.get_running_loop().time() - since
            asker.emit(InboxWaited(asker.connector, asker.task, seconds=seconds))
        self.health.rearm()

    def stored(self, offset: Offset | None) -> Offset:
        """The offset of what came now; where the source cannot be resumed, the time."""
        return {RECEIVED_AT: self._now_ms()} if offset is None else offset

    def _now_ms(self) -> int:
        return int(self._asker.clock.now().timestamp() * 1000)

    # --- for whoever hands over pages ----------------------------------------------------------------

    def nudge(self) -> None:
        """Look again whether a page may be handed over: the pipeline's queue has become empty."""
        self._changed.set()

    def close(self) -> None:
        """Nothing more will be put in; what is inside can still be taken."""
        self._is_closed = True
        self._changed.set()

    def abandon(self) -> None:
        """Tell what a stop leaves inside, if the source cannot give it again."""
        if self.records and RECEIVED_AT in self._held[0].offset:
            self.gap("stopped", messages=self.records)
        self._held.clear()
        self.records = self.bytes = 0

    async def take(self) -> Page | None:
        """The next page, as soon as there is one; None when the inbox is closed and empty."""
        while not self._held:
            if self._is_closed:
                return None
            try:
                async with asyncio.timeout(MARK_SECONDS):
                    await self._news()
            except TimeoutError:
                if (mark := self._mark()) is not None:
                    return mark
        while not (self._is_closed or self._is_starved() or self._is_page_complete()):
            due = self._held[0].since + self._limits.page_age_seconds_max
            try:
                async with asyncio.timeout_at(due):
                    await self._news()
            except TimeoutError:
                break
        page = self._cut()
        self._room.set()
        asker = self._asker
        asker.emit(InboxChanged(asker.connector, asker.task, records=self.records, bytes=self.bytes))
        return page

    async def _news(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _mark(self) -> Page | None:
        """A page without records that says until when the source was heard; the gap after a restart begins there.

        None where the source is resumed by an offset of its own, or was not heard since the last page.
        """
        heard_at_ms, stored = self.health.heard_at_ms, _as_number(self.offset.get(RECEIVED_AT))
        has_own_offset = self._is_resumed or (self.offset and stored is None)
        if heard_at_ms is None or has_own_offset or heard_at_ms <= (stored or 0):
            return None
        self.offset = {RECEIVED_AT: heard_at_ms}
        return Page(pa.array([], pa.binary()), self.offset)

    def _is_page_complete(self) -> bool:
        limits = self._limits
        is_large = self.records >= limits.page_records_max or self.bytes >= limits.page_bytes_max
        return is_large or self._held[0].page is not None

    def _cut(self) -> Page:
        """As much as one page holds, and one put at least."""
        parts = [self._held.popleft()]
        records, size = parts[0].count, parts[0].size
        limits = self._limits
        while self._held and parts[-1].page is None and self._held[0].page is None:
            following = self._held[0]
            if records + following.count > limits.page_records_max or size + following.size > limits.page_bytes_max:
                break
            records, size = records + following.count, size + following.size
            parts.append(self._held.popleft())
        self.records -= records
        self.bytes -= size
        page = parts[0].page  # one without records only moves the offset
        return _joined(parts) if page is None else page


def _joined(parts: Sequence[_Held]) -> Page:
    """One page of several puts: columns are copied once, single messages become a column here."""
    arrays: list[pa.Array[Any]] = []
    loose: list[bytes] = []
    rejections: list[Rejection] = []
    first = 0
    for part in parts:
        rejections += (replace(rejection, index=first + rejection.index) for rejection in part.rejections)
        first += len(part.payloads)
        if isinstance(part.payloads, pa.Array):
            if loose:
                arrays.append(pa.array(loose, pa.binary()))
                loose = []
            arrays.append(part.payloads)
        else:
            loose += part.payloads
    if loose:
        arrays.append(pa.array(loose, pa.binary()))
    payloads = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    return Page(payloads, parts[-1].offset, rejections=tuple(rejections))


def _as_number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
