"""The contract suite itself: it passes a good fetcher, and each kind of bad one fails the test made for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typing_extensions import override

from fetchers.sdk import (
    Fatal,
    FetchContext,
    FetcherConfig,
    Offset,
    Page,
    PayloadKind,
    RateLimited,
    RowSchema,
    Secret,
    SourceConnector,
)
from fetchers.sdk.rows import INT64
from fetchers.sdk.testing import BadConfig, FetcherCase, FetcherContract, ScriptedSource, contract

SECRET = "pw-2b7e151628aed2a6"
SHELVES: dict[str, Shelf] = {}


class ShelfConfig(FetcherConfig):
    """Items of a shelf in memory."""

    shelf: str
    """Name of the shelf."""
    password: Secret
    """Opens it."""


class Shelf(ScriptedSource):
    """A source in memory."""

    def __init__(self) -> None:
        self.items = [b"%d" % number for number in range(10)]
        self.mood = "well"
        self.given = 0
        self.asked = asyncio.Event()
        self.limit_seconds: int | None = None

    @property
    @override
    def properties(self) -> Mapping[str, str]:
        return {"topic": "t", "shelf": "one", "password": SECRET}

    @property
    @override
    def expected(self) -> Sequence[bytes]:
        return tuple(self.items)

    @override
    async def add(self) -> None:
        self.items.append(b"%d" % len(self.items))

    @override
    async def hang(self) -> None:
        self.mood = "hangs"

    @override
    async def wait_until_asked(self) -> None:
        await self.asked.wait()

    @override
    async def refuse(self) -> None:
        self.mood = "refuses"

    @override
    async def limit(self, seconds: int) -> None:
        self.limit_seconds = seconds

    @property
    @override
    def records_given(self) -> int:
        return self.given

    async def take(self, start: int) -> bytes | None:
        """One item."""
        self.asked.set()
        if self.mood == "hangs":
            await asyncio.Event().wait()
        if self.mood == "refuses":
            raise Fatal("the shelf is locked")
        if self.limit_seconds is not None:
            seconds, self.limit_seconds = self.limit_seconds, None
            raise RateLimited("asked too often", wait_seconds=seconds)
        if start >= len(self.items):
            return None
        self.given += 1
        return self.items[start]


class Good(SourceConnector[ShelfConfig]):
    """Does everything right."""

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Items in pages of three."""
        start = int(context.offset.get("n") or 0)
        shelf = SHELVES[self.config.shelf]
        while True:
            page: list[bytes] = []
            while len(page) < 3 and (item := await shelf.take(start + len(page))) is not None:
                page.append(item)
            if page:
                start += len(page)
                yield Page(page, offset=self.offset(start))
            else:
                context.finish_round()
                await context.clock.sleep(1.0)

    def offset(self, start: int) -> Offset:
        """The offset after so many items."""
        return {"n": start}


NUMBERS = RowSchema.of("numbers", {"n": INT64})


class Rows(Good):
    """Gives typed rows, of which some are gone."""

    payload_kind = PayloadKind.ROWS

    @override
    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        async for page in super().fetch(context):
            numbers = pa.array([int(item or 0) for item in page.values()])
            rows = pa.StructArray.from_arrays(
                [numbers], names=["n"], mask=pa.array([each.as_py() == 4 for each in numbers])
            )
            yield Page(rows, page.offset, schema=NUMBERS, **self.keys(pa.table({"n": numbers})))

    def keys(self, columns: pa.Table) -> dict[str, Any]:
        """The same for each row."""
        return {"keys": columns, "key_schema": NUMBERS}


class Keyless(Rows):
    """Nobody can tell whose tombstones these are."""

    @override
    def keys(self, columns: pa.Table) -> dict[str, Any]:
        return {}


class Fickle(Rows):
    """Has another key for later rows."""

    @override
    def keys(self, columns: pa.Table) -> dict[str, Any]:
        is_late = columns["n"][0].as_py() > 4
        return {"keys": columns, "key_schema": RowSchema.of("late", {"n": INT64}) if is_late else NUMBERS}


class Forgetful(Good):
    """Begins anew each time."""

    @override
    def offset(self, start: int) -> Offset:
        return {"n": 0}


class Hasty(Good):
    """Says that it has read more than it has: a gap after a restart."""

    @override
    def offset(self, start: int) -> Offset:
        return {"n": start + 1}


class Stubborn(Good):
    """Does not hear that it is cancelled."""

    @override
    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        while True:
            try:
                async for page in super().fetch(context):
                    yield page
            except asyncio.CancelledError:
                await asyncio.Event().wait()  # until the suite has given it up
                raise


class Littering(Good):
    """Leaves a task behind."""

    tasks: list[asyncio.Task[None]] = []  # noqa: RUF012 - what is left behind, for the test to clear away

    @override
    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        self.tasks.append(asyncio.get_running_loop().create_task(asyncio.sleep(3600)))
        async for page in super().fetch(context):
            yield page


class Greedy(Good):
    """Takes everything before it hands over anything."""

    @override
    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        shelf = SHELVES[self.config.shelf]
        for number in range(10):
            await shelf.take(number)
        async for page in super().fetch(context):
            yield page


class Talkative(Good):
    """Writes its password into the log."""

    @override
    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        logging.getLogger("talkative").debug("opening with %s", self.config.password.get_secret_value())
        async for page in super().fetch(context):
            yield page


class Impatient(Good):
    """Does not wait as it is asked to."""

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Say nothing of the wait."""
        try:
            async for page in super().fetch(context):
                yield page
        except RateLimited as error:
            raise RateLimited(str(error)) from error


class Careless(Good):
    """Stores its password in the offset."""

    @override
    def offset(self, start: int) -> Offset:
        return {"n": start, "opened.with": self.config.password.get_secret_value()}


class Silent(Good):
    """Swallows what a person would have to know."""

    @override
    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        try:
            async for page in super().fetch(context):
                yield page
        except Fatal:
            return


class Complaisant(Good):
    """Says that it takes over whatever has been changed, also what the worker would have to."""

    @override
    def takes_over(self, keys: Collection[str]) -> bool:
        return True


class ShelfCase(FetcherCase):
    """The case of all these fetchers."""

    secrets = (SECRET,)
    records_ahead_max = 6
    can_limit = True
    bad_configs = (BadConfig({"shelf": None, "poll.interval.ms": "x"}, frozenset({"shelf", "poll.interval.ms"})),)

    def __init__(self, connector: type[SourceConnector[Any]]) -> None:
        self.connector = connector

    @asynccontextmanager
    async def source(self, folder: Path) -> AsyncIterator[Shelf]:
        """A fresh shelf."""
        del folder
        SHELVES["one"] = Shelf()
        yield SHELVES["one"]


def suite(connector: type[SourceConnector[Any]], case: type[ShelfCase] = ShelfCase) -> FetcherContract:
    """The suite for one fetcher."""

    class Suite(FetcherContract):
        """Of this fetcher."""

    Suite.case = case(connector)
    return Suite()


class TestGood(FetcherContract):
    """A fetcher that does everything right passes every test of the suite."""

    case = ShelfCase(Good)


BAD: Sequence[tuple[type[SourceConnector[Any]], str, str]] = (
    (Forgetful, "test_resumes_from_any_committed_offset", "assert"),
    (Hasty, "test_resumes_from_any_committed_offset", "assert"),
    (Stubborn, "test_stops_while_blocked_on_the_source", "still running"),
    (Stubborn, "test_stops_while_it_waits_for_the_next_round", "still running"),
    (Littering, "test_stops_while_blocked_on_the_source", "left tasks"),
    (Impatient, "test_waits_as_a_rate_limit_asks", "asked again 0 s after a 429 with Retry-After: 77"),
    (Greedy, "test_obeys_a_full_queue", "assert"),
    (Careless, "test_leaks_no_secret", "a secret is shown"),
    (Keyless, "test_says_of_rows_where_they_go_and_which_they_are", "a tombstone has no key"),
    (Fickle, "test_says_of_rows_where_they_go_and_which_they_are", "keys of two schemas"),
    (Complaisant, "test_takes_over_no_key_of_the_worker", "not the connector's to take over"),
    (Silent, "test_says_why_a_person_must_act", "raised nothing"),
)


@pytest.mark.parametrize(("connector", "test", "message"), BAD)
async def test_finds_the_bad_ones(
    *,
    connector: type[SourceConnector[Any]],
    test: str,
    message: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fetcher with this fault fails this test of the suite."""
    if connector is Stubborn:
        monkeypatch.setattr(contract, "STOP_BEATS_MAX", 2)
    extras = (caplog,) if test == "test_leaks_no_secret" else ()
    run: Callable[..., Awaitable[None]] = getattr(suite(connector), test)
    try:
        with pytest.raises(AssertionError) as caught:
            await _alone(run(tmp_path, *extras))
        assert message in str(caught.value) or message == "assert"
    finally:
        for task in Littering.tasks:
            task.cancel()
        Littering.tasks.clear()


async def _alone(work: Awaitable[None]) -> None:
    """Run, and give the assertion that a task group has wrapped."""
    try:
        await work
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


def test_a_source_without_a_limit_has_no_test_of_it() -> None:
    """A skip would say that something is missing from the case of a file."""

    class Boundless(ShelfCase):
        can_limit = False

    class Suite(FetcherContract):
        case = Boundless(Good)

    assert not callable(Suite.test_waits_as_a_rate_limit_asks)
    assert callable(TestGood.test_waits_as_a_rate_limit_asks)


async def test_passes_rows_with_keys(tmp_path: Path) -> None:
    """Each of them, and their tombstones."""
    await suite(Rows).test_says_of_rows_where_they_go_and_which_they_are(tmp_path)


async def test_finds_a_secret_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A fetcher that logs its password is found."""
    with pytest.raises(AssertionError, match="a secret is shown"):
        await suite(Talkative).test_leaks_no_secret(tmp_path, caplog)


async def test_finds_findings_that_do_not_come(tmp_path: Path) -> None:
    """A case that expects more findings than the config class has is not passed by."""

    class Wrong(ShelfCase):
        """Expects a finding for a good value."""

        bad_configs = (BadConfig({"shelf": "two"}, frozenset({"shelf"})),)

    with pytest.raises(AssertionError, match="findings for"):
        await suite(Good, Wrong).test_refuses_bad_configs_with_all_findings(tmp_path)
