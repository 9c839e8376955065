"""Blocking calls on one connection, or on files: one at a time, and released when the last of them has ended.

A task that is stopped does not wait for the driver's call that runs in a thread (``FetchContext.run_blocking``). So
whoever stops cannot release the connection then: the call still uses it, and one that connects has none to be released
yet. It is released by the call when that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock

from fetchers.sdk import Disconnected


class ExclusiveCalls:
    """Calls from any thread on what one owner opens, uses and releases."""

    def __init__(
        self, release: Callable[[], None], *, interrupt: Callable[[], None] | None = None, closed: Event | None = None
    ) -> None:
        """``release`` is called when nothing else runs, at least once after ``close``; it may find nothing to release.

        ``interrupt``: asks the call that runs to end early, from another thread. ``closed``: an event that is set by
        ``close``, for calls that look at it themselves.
        """
        self._release = release
        self._interrupt = interrupt
        self._closed = closed or Event()
        self._in_use = Lock()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around each use, in its thread; waits for the one before it. Raises ``Disconnected`` after ``close``."""
        try:
            with self._in_use:
                if self._closed.is_set():
                    raise Disconnected("closed while it was to be used")
                yield
        finally:
            # Behind the lock: one who closes while it is still held leaves the rest to this line.
            self.release_if_last()

    def close(self) -> None:
        """Allow no more calls, and release: now, or when the call that runs has ended. Never waits."""
        self._closed.set()
        if not self.release_if_last() and self._interrupt is not None:
            self._interrupt()

    def release_if_last(self) -> bool:
        """Release what is open, once it is closed; False while a call runs that will do so, or before ``close``."""
        if not self._closed.is_set() or not self._in_use.acquire(blocking=False):
            return False
        try:
            self._release()
        finally:
            self._in_use.release()
        return True
