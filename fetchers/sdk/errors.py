"""Errors by recovery: the class of an error says what the worker does about it.

::

    FetchError
    ├── Retriable          wait, then fetch again from the last page that was handed over
    │   ├── RateLimited    the same, and it is the source that asked for the wait
    │   └── Disconnected   no connection, or it broke: nobody has refused anything
    └── Fatal              the task becomes FAILED and stays so: a person must act

Anything else that leaves a fetcher is a bug and fails the task with its trace. What is wrong with a single
record is no error of the fetch: it is a ``Rejection`` of the page, or the conversion's verdict.
"""

from __future__ import annotations

from collections.abc import Collection


class FetchError(Exception):
    """Root of what a fetcher raises on purpose. The message reaches status and log: no secret in it."""


class Retriable(FetchError):
    """Something that may pass: a time-out, a reset, a 503, an incomplete body."""

    def __init__(self, message: str, *, wait_seconds: float | None = None, rows: Collection[int] | None = None) -> None:
        """``wait_seconds``: what the other side asked for; the back-off decides when it is None.

        ``rows``: raised by a sink's ``put``, which rows of its batch are to come again; the others are done. None: all.
        """
        super().__init__(message)
        self.wait_seconds = wait_seconds
        self.rows = rows


class RateLimited(Retriable):
    """The source refused for a while (429, or a budget of our own)."""


class Disconnected(Retriable):
    """A connection could not be made, broke, fell silent, or the source has ended it."""


class SocketClosed(Disconnected):
    """The other side has closed a WebSocket, with a code (RFC 6455 §7.4)."""

    def __init__(self, message: str, code: int) -> None:
        """``code``: such as 1001, or one of the service's own from 4000 on."""
        super().__init__(message)
        self.code = code


class Fatal(FetchError):
    """Nothing that waiting mends: wrong credentials, a wrong parameter, a missing permission."""
