"""How often a source may be asked: budgets shared by all tasks of this process that use one credential."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from fetchers.sdk.asker import Asker
from fetchers.sdk.clock import Clock
from metrics.events import RateLimitWaited

SLEEP_SECONDS_MIN = 0.001
"""A shorter sleep might not move a clock of floating point at all, and the wait would never end."""


@dataclass(frozen=True, slots=True)
class RateWindow:
    """At most ``count`` requests in any ``seconds`` on end."""

    count: int
    seconds: float


@dataclass(slots=True)
class _Turn:
    """One request: it reached the source at some moment before ``ended`` (monotonic seconds)."""

    ended: float | None = None


_known: WeakValueDictionary[tuple[str, tuple[RateWindow, ...]], RateBudget] = WeakValueDictionary()
"""Budgets that someone holds, by hash of the credential."""
_busy: dict[int, RateBudget] = {}
"""Budgets whose requests still count, so that they outlive the tasks that made them."""


class RateBudget:
    """Moving windows over the requests to one source, kept together.

    A request counts from the moment it is allowed until a window after the source has begun to answer it. Counting
    from its start only, four requests could meet within a second at the source though they left in more.
    Waiting is fair, visible, and ended at once by cancellation; time is the asker's monotonic clock.
    """

    def __init__(self, windows: Sequence[RateWindow]) -> None:
        self.windows = tuple(windows)
        self._turns: list[_Turn] = []
        self._held_until = 0.0
        self._queue = asyncio.Lock()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def turn(self, asker: Asker) -> AsyncIterator[None]:
        """Wait until a request is allowed; the block lasts until the source has begun to answer."""
        turn = await self._begin(asker)
        try:
            yield
        finally:
            turn.ended = asker.clock.monotonic()
            self._changed.set()

    def hold(self, seconds: float, clock: Clock) -> None:
        """Let nobody ask for this long: the source said so."""
        self._held_until = max(self._held_until, clock.monotonic() + seconds)

    def is_idle(self, now: float) -> bool:
        """Whether no request counts any more (monotonic seconds)."""
        self._forget(now)
        return not self._turns and self._held_until <= now

    async def _begin(self, asker: Asker) -> _Turn:
        clock = asker.clock
        if not self._queue.locked() and self._wait_seconds(clock.monotonic()) == 0:
            return self._granted()
        started = clock.monotonic()
        with asker.waiting_for_limit():
            try:
                async with self._queue:
                    await self._wait_for_room(clock)
                    return self._granted()
            finally:
                waited = clock.monotonic() - started
                asker.emit(RateLimitWaited(asker.connector, asker.task, seconds=waited))

    def _granted(self) -> _Turn:
        turn = _Turn()
        self._turns.append(turn)
        _busy[id(self)] = self
        return turn

    async def _wait_for_room(self, clock: Clock) -> None:
        while (wait := self._wait_seconds(clock.monotonic())) != 0:
            if wait is None:
                self._changed.clear()
                await self._changed.wait()
            else:
                await clock.sleep(max(wait, SLEEP_SECONDS_MIN))

    def _wait_seconds(self, now: float) -> float | None:
        """Seconds until a request may leave; None when an unanswered one has to be waited for first."""
        self._forget(now)
        longest = max(0.0, self._held_until - now)
        for window in self.windows:
            counted = [turn for turn in self._turns if turn.ended is None or turn.ended + window.seconds > now]
            too_many = len(counted) - window.count + 1
            if too_many <= 0:
                continue
            ends = sorted(turn.ended for turn in counted if turn.ended is not None)
            if len(ends) < too_many:
                return None
            longest = max(longest, ends[too_many - 1] + window.seconds - now)
        return longest

    def _forget(self, now: float) -> None:
        horizon = now - max((window.seconds for window in self.windows), default=0.0)
        self._turns = [turn for turn in self._turns if turn.ended is None or turn.ended > horizon]


def shared_budget(credential: str, windows: Sequence[RateWindow], *, clock: Clock) -> RateBudget:
    """The budget of everyone in this process who uses this credential (or project) with these windows.

    Only a hash of ``credential`` is kept. A budget outlives its tasks for as long as a request of theirs counts, so
    that a task that is started again does not start with a fresh allowance.
    """
    now = clock.monotonic()
    for number, budget in list(_busy.items()):
        if budget.is_idle(now):
            del _busy[number]
    key = (hashlib.sha256(credential.encode()).hexdigest(), tuple(windows))
    known = _known.get(key)
    if known is None:
        known = _known[key] = RateBudget(windows)
    _busy[id(known)] = known
    return known
