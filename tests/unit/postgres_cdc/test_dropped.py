"""Tables that a server says were dropped: what another server has of them, after a failover, is another matter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, ClassVar, Self

import pytest

from fetchers.postgres_cdc import backlog, captured, fetcher, stretches
from fetchers.postgres_cdc.columns import Type
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.fetcher import FORGETTING_SECONDS, PostgresCdcSource
from fetchers.postgres_cdc.log import Batch, Framing
from fetchers.postgres_cdc.pgoutput import LogRelation, RelationColumn
from fetchers.postgres_cdc.place import Origin, Place
from fetchers.sdk import Disconnected
from fetchers.sdk.context import partition_key
from fetchers.sdk.testing import FakeClock, FakeContext
from fetchers.toolkit.table_reading import Progress
from tests.unit.postgres_cdc.test_framing import stream

TRANSACTIONS = [[1], [1], [1]]


class Server:
    """The catalogue of one table, which is there or not."""

    def __init__(self, config: PostgresCdcConfig) -> None:
        self.gone: frozenset[int] = frozenset()
        self._config = config

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """A session ends."""

    def publish_tables(self, but: Collection[str]) -> None:
        """All are in it."""

    def backlog(self) -> int:
        """Nothing is held back."""
        return 0

    def rows(self, _sql: str, _values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Every offset is behind the log's end, nothing is held back, and the table is always the same."""
        return [{"position": 0, "size": 0, "name": "public.t1", "made": "1"}]

    def next_transaction(self) -> int:
        """The first one."""
        return 1

    def dropped(self, oids: Collection[int]) -> tuple[frozenset[int], int]:
        """Behind the second transaction of the log."""
        return self.gone & set(oids), commits()[1]

    def tables(self) -> list[tuple[str, str]]:
        """The table."""
        return [("public", "t1")]

    def keyed_tables(self) -> set[tuple[str, str]]:
        """It has a key."""
        return set(self.tables())

    def types(self, columns: Sequence[RelationColumn]) -> Mapping[str, Type]:
        """All texts."""
        return {column.name: Type("text") for column in columns}

    def keys(self, _relation: LogRelation) -> tuple[str, ...]:
        """The only column."""
        return ("id",)


class Stream:
    """A connection that nobody has to wait for."""

    origin = Origin()

    def telling(self, _confirmed: Callable[[], int]) -> AbstractContextManager[None]:
        """Nobody listens."""
        return nullcontext()


def commits() -> list[int]:
    """Where each transaction ends."""
    return [position for message, position in stream(TRANSACTIONS) if message[:1] == b"C"]


class ScriptedLog:
    """Gives a transaction at a time, and loses its connection behind so many of them."""

    count = 0
    origins: ClassVar[list[Origin]] = []
    """That each one was given."""

    def __init__(self, _config: PostgresCdcConfig, framing: Framing, origin: Origin) -> None:
        self.origins.append(origin)
        self._framing = framing
        self._messages = iter(list(stream(TRANSACTIONS)))
        self._left = self.count

    def open(self) -> Stream:
        """A new session."""
        return Stream()

    def close(self) -> None:
        """It ends."""

    def drain(self, _confirmed: int) -> Batch:
        """The next transaction."""
        if not self._left:
            raise Disconnected("the server is gone")
        self._left -= 1
        for message, position in self._messages:
            self._framing.add(message, position)
            if message[:1] == b"C":
                break
        return self._framing.take()


async def test_another_server_may_have_what_the_last_one_had_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that took over has not heard of the last DROP: its log does not describe the table a second time."""
    keys = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "srv"}
    found = PostgresCdcConfig.parse(keys)
    assert found.config is not None
    source, server, clock = PostgresCdcSource(found.config), Server(found.config), FakeClock()
    for module in (backlog, captured, fetcher, stretches):
        monkeypatch.setattr(module, "catalogue", lambda _: server)
    monkeypatch.setattr(fetcher, "Log", ScriptedLog)
    monkeypatch.setattr(fetcher, "replication_session", nullcontext)
    monkeypatch.setattr(fetcher, "demand_log", lambda *_: Stream)  # has all of it, and is not the one that is read
    monkeypatch.setattr(ScriptedLog, "origins", [])
    progress = Progress(frozenset({"public.t1"}), made={"public.t1": "1"})
    stored = {
        partition_key(source.partition()): Origin("7", 2, 5).of(Place(1).offset()),
        partition_key({**source.partition(), "snapshot": "tables"}): progress.offset(),
    }
    context = FakeContext(offsets=stored, clock=clock)

    async def read(transactions: int) -> list[Any]:
        ScriptedLog.count, pages = transactions, []
        with suppress(Disconnected):
            async for page in source.fetch(context):
                context.commit(page)
                pages.append(page)
                await clock.advance(FORGETTING_SECONDS)
        return pages

    server.gone = frozenset({1})
    assert [len(page) for page in await read(1)] == [1]
    assert ScriptedLog.origins == [Origin("7", 2, 5)]
    server.gone = frozenset()
    assert [len(page) for page in await read(3) if len(page)] == [1, 1]
