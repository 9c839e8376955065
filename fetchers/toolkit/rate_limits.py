"""How often a source may be asked: budgets shared by all tasks of this process that use one credential."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakSet

from fetchers.sdk.asker import Asker
from fetchers.sdk.clock import Clock, SystemClock
from fetchers.sdk.retry import BackOff
from fetchers.toolkit.limit_headers import LimitHeaders
from metrics.events import RateLimitWaited

SLEEP_SECONDS_MIN = 0.001
"""A shorter sleep might not move a clock of floating point at all, and the wait would never end."""
BACK_OFF = BackOff(first_seconds=1.0)
"""For a refusal that does not say how long to wait."""
REFUSALS_REMEMBERED_SECONDS = 3600.0
"""How long after the end of its wait a refusal is one in a row, when nobody has asked meanwhile."""


@dataclass(frozen=True, slots=True)
class RateWindow:
    """At most ``count`` requests in any ``seconds`` on end."""

    count: int
    seconds: float


class RateBudget:
    """The windows of one asker over the requests to a source, which it shares with all who use its credential.

    Each request keeps to the windows of all of them: a limit is said of the credential, not of the one who names it.
    A request counts from the moment it is allowed until a window after the source has begun to answer it. Counting
    from its start only, four requests could meet within a second at the source though they left in more.
    Waiting is fair, visible, and ended at once by cancellation; time is the asker's monotonic clock.
    """

    def __init__(
        self,
        windows: Sequence[RateWindow],
        *,
        back_off: BackOff = BACK_OFF,
        headers: LimitHeaders | None = None,
        ledger: _Ledger | None = None,
    ) -> None:
        """``headers``: in which fields the source tells what is left.

        ``ledger``: that of the credential; one of its own when not given.
        """
        self.windows = tuple(windows)
        self._headers = headers
        self._back_off = back_off
        self._ledger = ledger or _Ledger()
        self._ledger.budgets.add(self)

    @asynccontextmanager
    async def admitted(self, asker: Asker) -> AsyncIterator[None]:
        """Wait until a request is allowed; the block lasts until the source has begun to answer."""
        request = await self._begin(asker)
        try:
            yield
        finally:
            request.ended = asker.clock.monotonic()
            self._ledger.changed.set()

    def refuse(self, clock: Clock, *, asked_seconds: float | None) -> float:
        """Let nobody ask for as long as the source asked, or for the back-off's time; gives the seconds to wait."""
        ledger, now = self._ledger, clock.monotonic()
        wait = ledger.held_until - now if asked_seconds is None else asked_seconds
        if wait <= 0:  # not one more of those that had left before the first of them was refused
            ledger.refusals += 1
            wait = self._back_off.wait_seconds(ledger.refusals)
        ledger.held_until = max(ledger.held_until, now + wait)
        return wait

    def accept(self, clock: Clock) -> None:
        """Begin the back-off anew, unless this answer is older than a refusal."""
        if self._ledger.held_until <= clock.monotonic():
            self._ledger.refusals = 0

    def hear(self, headers: Mapping[str, str], clock: Clock) -> float | None:
        """Let nobody ask while the source says in its header fields that nothing is left; gives the seconds."""
        wait = None if self._headers is None else self._headers.wait_seconds(headers, now=clock.now())
        if wait:
            self._ledger.held_until = max(self._ledger.held_until, clock.monotonic() + wait)
        return wait

    async def _begin(self, asker: Asker) -> _Request:
        clock, ledger = asker.clock, self._ledger
        if not ledger.queue.locked() and ledger.wait_seconds(clock.monotonic()) == 0:
            return ledger.granted()
        started = clock.monotonic()
        with asker.waiting_for_limit():
            try:
                async with ledger.queue:
                    await ledger.wait_for_room(clock)
                    return ledger.granted()
            finally:
                waited = clock.monotonic() - started
                asker.emit(RateLimitWaited(asker.connector, asker.task, seconds=waited))


@dataclass(slots=True)
class _Request:
    """One request: it reached the source at some moment before ``ended`` (monotonic seconds)."""

    counts_seconds: float
    """How long it counts after its end: the longest window of the time when it was allowed."""
    ended: float | None = None

    def counts(self, now: float, seconds: float) -> bool:
        """Whether it may have reached the source within the last ``seconds``."""
        return self.ended is None or self.ended + seconds > now


class _Ledger:
    """What is asked with one credential."""

    def __init__(self) -> None:
        self.budgets: WeakSet[RateBudget] = WeakSet()
        """Those of all who use the credential now; a limit ends with the task that has named it."""
        self.requests: list[_Request] = []
        self.held_until = 0.0
        self.refusals = 0
        """Refusals in a row that did not say how long to wait."""
        self.queue = asyncio.Lock()
        self.changed = asyncio.Event()

    def is_idle(self, now: float) -> bool:
        """Whether nobody uses it, and nothing that was asked counts any more (monotonic seconds)."""
        self._forget(now)
        remembered_until = self.held_until + (REFUSALS_REMEMBERED_SECONDS if self.refusals else 0.0)
        return not self.budgets and not self.requests and remembered_until <= now

    def granted(self) -> _Request:
        """A request that leaves now."""
        request = _Request(max((window.seconds for window in self._windows()), default=0.0))
        self.requests.append(request)
        return request

    async def wait_for_room(self, clock: Clock) -> None:
        """Wait until a request may leave."""
        while (wait := self.wait_seconds(clock.monotonic())) != 0:
            if wait is None:
                self.changed.clear()
                await self.changed.wait()
            else:
                await clock.sleep(max(wait, SLEEP_SECONDS_MIN))

    def wait_seconds(self, now: float) -> float | None:
        """Seconds until a request may leave; None when an unanswered one has to be waited for first."""
        self._forget(now)
        longest = max(0.0, self.held_until - now)
        for window in self._windows():
            counted = [request for request in self.requests if request.counts(now, window.seconds)]
            too_many = len(counted) - window.count + 1
            if too_many <= 0:
                continue
            ends = sorted(request.ended for request in counted if request.ended is not None)
            if len(ends) < too_many:
                return None
            longest = max(longest, ends[too_many - 1] + window.seconds - now)
        return longest

    def _windows(self) -> set[RateWindow]:
        return {window for budget in self.budgets for window in budget.windows}

    def _forget(self, now: float) -> None:
        self.requests = [request for request in self.requests if request.counts(now, request.counts_seconds)]


_ledgers: WeakKeyDictionary[Clock, dict[str, _Ledger]] = WeakKeyDictionary()
"""By clock, since times of one say nothing on another, and by hash of the credential."""
_MACHINE = SystemClock()
"""Stands for every clock of its kind: all of them tell the same time."""


def shared_budget(
    credential: str,
    windows: Sequence[RateWindow],
    *,
    clock: Clock,
    back_off: BackOff = BACK_OFF,
    headers: LimitHeaders | None = None,
) -> RateBudget:
    """A budget with these windows and header fields, shared with all in this process who use this credential.

    Only a hash of ``credential`` is kept. What was asked is remembered for as long as it counts, so that a task that
    is started again does not start with a fresh allowance.
    """
    now = clock.monotonic()
    ledgers = _ledgers.setdefault(_MACHINE if isinstance(clock, SystemClock) else clock, {})
    for known, ledger in list(ledgers.items()):
        if ledger.is_idle(now):
            del ledgers[known]
    ledger = ledgers.setdefault(hashlib.sha256(credential.encode()).hexdigest(), _Ledger())
    return RateBudget(windows, back_off=back_off, headers=headers, ledger=ledger)
