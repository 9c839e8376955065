"""Blocking calls on one connection: one at a time, and the connection is released when the last of them has ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fetchers.sdk import Disconnected
from fetchers.toolkit.exclusive_calls import ExclusiveCalls


@pytest.fixture(name="threads")
def _threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


def within(calls: ExclusiveCalls, use: Callable[[], None]) -> None:
    """One use of the connection."""
    with calls.call():
        use()


class Connection:
    """One that is open from the end of ``connect`` on, which takes as long as the test wants."""

    def __init__(self) -> None:
        self.is_open = False
        self.interrupted = threading.Event()
        self.connecting, self.may_connect = threading.Event(), threading.Event()
        self.calls = ExclusiveCalls(self.release, interrupt=self.interrupted.set)

    def connect(self) -> None:
        """Block until the test lets it connect."""
        self.connecting.set()
        self.may_connect.wait()
        self.is_open = True

    def release(self) -> None:
        """As the driver closes it."""
        self.is_open = False


def test_a_connection_that_is_made_after_its_owner_has_gone_is_released(threads: ThreadPoolExecutor) -> None:
    """The owner stops while the driver still connects."""
    connection = Connection()
    call = threads.submit(within, connection.calls, connection.connect)
    connection.connecting.wait()
    connection.calls.close()
    assert connection.interrupted.is_set()
    connection.may_connect.set()
    call.result()
    assert not connection.is_open


def test_an_idle_connection_is_released_at_once() -> None:
    """Nothing is left to interrupt."""
    connection = Connection()
    connection.may_connect.set()
    within(connection.calls, connection.connect)
    assert connection.is_open
    connection.calls.close()
    assert (connection.is_open, connection.interrupted.is_set()) == (False, False)


def test_a_call_behind_the_end_is_refused() -> None:
    """One that was on its way to a thread when the task was stopped connects nothing."""
    connection = Connection()
    connection.calls.close()
    with pytest.raises(Disconnected):
        within(connection.calls, connection.connect)
    assert not connection.is_open


def test_who_closes_in_the_last_moment_of_a_call_leaves_nothing_open(threads: ThreadPoolExecutor) -> None:
    """The call has ended, but the thread still holds the lock: the owner cannot release, and the thread must."""
    released: list[str] = []
    calls = ExclusiveCalls(lambda: released.append("released"))
    lock = HeldOnce(calls._in_use)
    calls._in_use = lock  # type: ignore[assignment]
    lock.before_release = calls.close
    threads.submit(within, calls, lambda: None).result()
    assert released == ["released"]


class HeldOnce:
    """A lock that does something of the test's the first time it is about to be let go."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.before_release: Callable[[], None] | None = None

    def acquire(self, *, blocking: bool = True) -> bool:
        """As a lock."""
        return self._lock.acquire(blocking=blocking)

    def release(self) -> None:
        """After what the test wants done."""
        wanted, self.before_release = self.before_release, None
        if wanted is not None:
            wanted()
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


def test_an_error_of_a_call_releases_too(threads: ThreadPoolExecutor) -> None:
    """What failed halfway may have left something open."""
    connection = Connection()

    def fail() -> None:
        connection.connect()
        raise OSError("gone")

    call = threads.submit(within, connection.calls, fail)
    connection.connecting.wait()
    connection.calls.close()
    connection.may_connect.set()
    with pytest.raises(OSError, match="gone"):
        call.result()
    assert not connection.is_open
