"""What the contract suite must know of a fetcher: its class, its config, and a source that follows a script.

Write one case for each fetcher, in ``tests/contracts/<folder of the fetcher>_case.py``, as ``CASE = MyCase()``. The
source is as real as can be: an aiohttp server on the loopback, temporary files; never a mock of the fetcher's parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fetchers.sdk.connector import SourceConnector


@dataclass(frozen=True, slots=True)
class BadConfig:
    """A config that must be refused."""

    changes: Mapping[str, str | None]
    """What is changed in the good config; None takes the key away."""
    keys: frozenset[str]
    """Keys that must each have a finding with severity error, all in one answer, and no others."""


class ScriptedSource(ABC):
    """A small source under the test's control, open for the length of one test."""

    @property
    @abstractmethod
    def properties(self) -> Mapping[str, str]:
        """A config, complete and valid, that reads this source; secrets in it are those of ``FetcherCase.secrets``."""

    @property
    @abstractmethod
    def expected(self) -> Sequence[bytes]:
        """Every payload that the source has so far, in the order in which a fetcher that starts now delivers them."""

    @abstractmethod
    async def add(self) -> None:
        """Bring about a few new records (at least one); ``expected`` then ends with them."""

    @abstractmethod
    async def hang(self) -> None:
        """From now on answer nothing and close nothing; a file has only to stay as it is."""

    @abstractmethod
    async def wait_until_asked(self) -> None:
        """Wait until the fetcher is blocked on the source that hangs, as well as the source can tell."""

    @abstractmethod
    async def refuse(self) -> None:
        """From now on fail in a way that only a person can mend: 401, a directory in place of the file."""

    async def limit(self, seconds: int) -> None:
        """Answer the next request with 429 and ``Retry-After: seconds``; for cases that say ``can_limit``."""
        raise NotImplementedError

    @property
    def records_given(self) -> int | None:
        """How many records have left the source up to now; None where the source cannot tell."""
        return None


class TalkingSource(ScriptedSource):
    """A small source that talks by itself; every connection is given what has come since the offset it names.

    A source that cannot be resumed gives a connection everything it has so far, as if it had waited with it.
    """

    @abstractmethod
    async def add_flood(self) -> None:
        """Bring about much more than any buffer on the way holds: 6,000 records of 8 kB will do."""

    @abstractmethod
    async def be_away(self) -> None:
        """Cut what is connected, and from now on refuse connections in a way that may pass."""

    @abstractmethod
    async def cut(self) -> None:
        """Break every connection there is; new ones are welcome."""


class FetcherCase(ABC):
    """One fetcher, as the contract suite sees it."""

    connector: type[SourceConnector[Any]]
    """The class under test."""
    secrets: tuple[str, ...] = ()
    """Secret values of the good config; they must show up nowhere. Make them long and odd."""
    bad_configs: tuple[BadConfig, ...] = ()
    """Configs to refuse; one of them at least with two findings at once."""
    records_ahead_max: int = 10_000
    """How many records may have left the source when one page was taken and nobody asks for the next."""
    is_paged: bool = True
    """Whether the scripted source is large enough for several pages in one round; only few sources have one page."""
    is_ordered: bool = True
    """Whether records come in the order of the source. If not, only their set is compared."""

    can_limit: bool = False
    """Whether the scripted source has a ``limit`` of requests."""

    @abstractmethod
    def source(self, folder: Path) -> AbstractAsyncContextManager[ScriptedSource]:
        """A fresh source with several pages of records; ``folder`` is empty and is its own."""

    @property
    def listens(self) -> bool:
        """Whether it is a listener, whose first round is over before anything has come."""
        return False

    def dedupe_key(self, payload: bytes) -> Hashable | None:
        """For fetchers that may hand over a record again and leave it to the worker to drop it: what it is known by.

        None, the default, says that each record must be handed over once. A repeated one is only forgiven in a page
        with a ``DedupeScope`` of the same window.
        """
        del payload
        return None


class ListenerCase(FetcherCase):
    """One listener, as the contract suite sees it; its ``source`` is a ``TalkingSource``."""

    is_resumable: bool = True
    """Whether a connection goes on where the last one ended. If not, each new one must tell a gap."""
    is_paged = False
    records_ahead_max = 5_500
    """Of a flood of 6,000 records of 8 kB: what an inbox holds, and the buffers of both sides of a connection."""

    @property
    def listens(self) -> bool:
        """Always."""
        return True
