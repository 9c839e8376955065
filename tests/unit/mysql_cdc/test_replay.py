"""XA transactions through the whole connector, on a server by script: what is read again, and where it begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

import asyncmy.errors
import pytest

from fetchers.mysql_cdc import events
from fetchers.mysql_cdc.config import MySqlCdcConfig
from fetchers.mysql_cdc.fetcher import MySqlCdcSource
from fetchers.mysql_cdc.replay import listed
from fetchers.sdk import Disconnected, Fatal, Offset, Page
from fetchers.sdk.testing.context import FakeContext
from fetchers.toolkit.mysql import MySqlConnection, told
from tests.binlog_server import FILE, NAMED, BinlogServer, WrittenLog, WrittenTable, mariadb_answers, named

ORDERS = WrittenTable("w", "orders", NAMED)
PARTITION = {"server": "test"}


@asynccontextmanager
async def serving(log: WrittenLog) -> AsyncIterator[BinlogServer]:
    """A server with this log, and no tables to read."""
    server = BinlogServer(log, mariadb_answers(log, {}))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def connector(server: BinlogServer, **keys: str) -> MySqlCdcSource:
    """Of the server's log alone."""
    parsed = MySqlCdcConfig.parse(
        {
            "database.hostname": "127.0.0.1",
            "database.port": str(server.port),
            "database.user": "headrace",
            "database.server.id": "4711",
            "topic.prefix": "test",
            "snapshot.mode": "no_data",
            "event.form": "row",
            **{key.replace("_", "."): value for key, value in keys.items()},
        }
    )
    assert parsed.config is not None, parsed.findings
    return MySqlCdcSource(parsed.config)


async def read(source: MySqlCdcSource, context: FakeContext, *, until: Callable[[list[Page]], bool]) -> list[Page]:
    """Pages, committed one by one, up to one behind which the condition holds."""
    pages: list[Page] = []
    async with asyncio.timeout(60), aclosing(source.fetch(context)) as stream:
        async for page in stream:
            pages.append(page)
            context.commit(page)
            if until(pages):
                break
    return pages


def ids(pages: list[Page]) -> list[int]:
    """Of all rows."""
    keys = [page.original(at)[0] or b"" for page in pages for at in range(len(page))]
    return [int(key.decode().removeprefix('{"id":').removesuffix("}")) for key in keys]


def has(number: int) -> Callable[[list[Page]], bool]:
    """Whether the last page has this row."""
    return lambda pages: number in ids(pages[-1:])


def rows(*numbers: int) -> tuple[WrittenTable, int, list[tuple[bytes | None, ...]]]:
    """Inserted."""
    return ORDERS, events.WRITE_V1, [named(number, "x" * 60) for number in numbers]


def stored(position: int, **more: str | int | bool) -> Offset:
    """A place of this server's log."""
    return {"file": FILE, "pos": position, "log_of": "1", **more}


@pytest.mark.parametrize("bytes_max", ["1000", "4000000"])
async def test_small_and_large_ones_come_at_their_commit(bytes_max: str) -> None:
    """Those that are larger than the limit are read again from their place, as all are behind a restart."""
    log = WrittenLog()
    start = log.position
    log.prepared(b"large", *(rows(number) for number in range(100, 140)))
    log.prepared(b"lost", rows(2))
    log.transaction(rows(3))
    log.ended(b"lost", "ROLLBACK")
    log.ended(b"large", "COMMIT")
    log.transaction(rows(9))
    async with serving(log) as server:
        context = FakeContext(offset=stored(start), partition=PARTITION)
        pages = await read(connector(server, **{"max.batch.bytes": bytes_max}), context, until=has(9))
        assert ids(pages) == [3, *range(100, 140), 9]
        assert "prepared" not in pages[-1].offset
        for cut in range(len(pages) - 1):
            again = FakeContext(offset=stored(start), partition=PARTITION)
            for page in pages[: cut + 1]:
                again.commit(page)
            rest = await read(connector(server, **{"max.batch.bytes": bytes_max}), again, until=has(9))
            assert ids([*pages[: cut + 1], *rest]) == ids(pages), pages[cut].offset


async def test_each_row_comes_once_however_often_reading_begins_anew() -> None:
    """Behind any page, and behind any page from there: of tables with a commit among their rows, prepared before."""
    log = WrittenLog()
    start = log.position
    tables = [WrittenTable("w", name, NAMED, number=at) for at, name in enumerate("abc", 1)]

    def of(at: int, number: int, length: int = 1) -> tuple[WrittenTable, int, list[tuple[bytes | None, ...]]]:
        return tables[at], events.WRITE_V1, [named(number, "x" * length)]

    log.prepared(b"x", of(2, 5), of(0, 6))
    log.transaction(*[of(0, 1, 50)] * 30)  # more than a segment holds
    log.transaction(of(0, 3), of(1, 4), of(2, 10))
    log.ended(b"x", "COMMIT")
    log.transaction(of(0, 7), of(1, 8), of(2, 9))

    def by_table(pages: list[Page]) -> dict[str, list[int]]:
        return {name: ids([one for one in pages if one.topic == name]) for name in ("test.w.a", "test.w.b", "test.w.c")}

    def all_read(before: list[Page]) -> Callable[[list[Page]], bool]:
        return lambda pages: ids([one for one in (*before, *pages) if one.topic == "test.w.c"])[-1:] == [9]

    async with serving(log) as server:

        async def go_on(before: list[Page]) -> list[Page]:
            context = FakeContext(offset=stored(start), partition=PARTITION)
            for page in before:
                context.commit(page)
            return await read(connector(server, **{"max.batch.bytes": "3000"}), context, until=all_read(before))

        pages = await go_on([])
        told = {"test.w.a": [*[1] * 30, 3, 6, 7], "test.w.b": [4, 8], "test.w.c": [10, 5, 9]}
        assert by_table(pages) == told
        for cut in range(len(pages) - 1):
            rest = await go_on(pages[: cut + 1])
            assert by_table([*pages[: cut + 1], *rest]) == told, pages[cut].offset
            for again in range(len(rest) - 1):
                before = [*pages[: cut + 1], *rest[: again + 1]]
                assert by_table([*before, *await go_on(before)]) == told, rest[again].offset


async def test_another_transaction_at_the_place_is_told() -> None:
    """As after RESET MASTER of a server without GTIDs; and a place that is no more in the log."""
    log = WrittenLog()
    start = log.position
    log.transaction(rows(1))
    begin = log.position
    log.ended(b"a", "COMMIT")
    for place, message in ((start, "the log has another one at"), (begin, "another one|ended the log")):
        told = f'{{"X\'61\',X\'\',1":{{"file":"{FILE}","pos":{place}}}}}'
        context = FakeContext(offset=stored(begin, prepared=told), partition=PARTITION)
        async with serving(log) as server:
            with pytest.raises(Exception, match=message):
                await read(connector(server), context, until=lambda _: False)


async def test_what_is_prepared_while_the_log_is_begun_is_found_in_it() -> None:
    """Between the first look at the log's end and the place where it is begun."""
    log = WrittenLog()
    start = log.position
    log.prepared(b"early", rows(1))
    log.prepared(b"ended", rows(2))
    log.ended(b"ended", "COMMIT")
    begun = log.position
    log.ended(b"early", "COMMIT")
    log.transaction(rows(9))
    places = iter([start, begun, begun, log.position, log.position])
    async with serving(log) as server:
        server.answers["SHOW MASTER STATUS"] = lambda _: [{"file": FILE, "position": next(places, log.position)}]
        assert ids(await read(connector(server), FakeContext(), until=has(9))) == [1, 9]


async def test_the_log_is_not_begun_while_an_older_one_stays_prepared() -> None:
    """It is named, with the statements that end it."""
    log = WrittenLog()
    async with serving(log) as server:
        server.answers["XA RECOVER"] = [{"formatID": 1, "gtrid_length": 1, "bqual_length": 0, "data": "a"}]
        with pytest.raises(Fatal, match=r"XA COMMIT or XA ROLLBACK X'61',X'',1"):
            await read(connector(server), FakeContext(), until=lambda _: False)


@pytest.mark.parametrize(("gtids", "is_same"), [("0-1-5,1-1-7", True), ("", True), ("0-1-2", False)])
async def test_a_log_that_was_begun_anew_is_told(gtids: str, *, is_same: bool) -> None:
    """A MariaDB after RESET MASTER may have a transaction at the very place."""
    log = WrittenLog()
    log.transaction(rows(1))
    place = log.position
    log.transaction(rows(9))
    async with serving(log) as server:
        server.answers["SELECT binlog_gtid_pos"] = [{"gtids": gtids}]
        context = FakeContext(offset=stored(place, gtids="0-1-5"), partition=PARTITION)
        if is_same:
            assert ids(await read(connector(server), context, until=has(9))) == [9]
        else:
            with pytest.raises(Fatal, match="RESET MASTER"):
                await read(connector(server), context, until=lambda _: False)


class AnsweringConnection(MySqlConnection):
    """A MySQL that gives one answer, or one error."""

    def __init__(self, answer: list[dict[str, Any]] | asyncmy.errors.Error) -> None:
        """``answer``: to every question."""
        super().__init__("db")
        self.version = "8.0.15"
        self._answer = answer

    async def rows(self, sql: str) -> list[dict[str, Any]]:
        """The answer."""
        del sql
        async with told("db", 5.0):
            if isinstance(self._answer, asyncmy.errors.Error):
                raise self._answer
        return self._answer


async def test_what_is_prepared_is_listed_where_the_user_may_know() -> None:
    """The right is missed by its error alone: others are raised."""
    row = {"formatid": "7", "gtrid_length": "1", "bqual_length": "1", "data": "0x61FF"}
    assert await listed(AnsweringConnection([row])) == frozenset({"X'61',X'ff',7"})
    for code in (1227, 1401):
        assert await listed(AnsweringConnection(asyncmy.errors.OperationalError(code, "no"))) is None
    with pytest.raises(Disconnected):
        await listed(AnsweringConnection(asyncmy.errors.OperationalError(2013, "lost")))
