"""The contract suite: what every fetcher must do, whatever it reads.

Make a subclass in a test file and pytest runs it (``asyncio_mode = auto``)::

    class TestQuakes(FetcherContract):
        case = QuakesCase()
        open_http = staticmethod(shared_http)
"""

# ruff: noqa: S101 - this is test code that ships: assert is how it speaks

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import SkipTest

from fetchers.sdk.config import ConfigKey
from fetchers.sdk.connector import SourceConnector
from fetchers.sdk.errors import Fatal, RateLimited
from fetchers.sdk.http import HttpDoor
from fetchers.sdk.page import Page
from fetchers.sdk.rows import RowSchema
from fetchers.sdk.testing.case import FetcherCase, ScriptedSource
from fetchers.sdk.testing.collect import SECONDS_MAX, collect, running
from fetchers.sdk.testing.context import FakeContext
from fetchers.sdk.testing.tasks import watched_family

if TYPE_CHECKING:
    import pytest

BEAT_SECONDS = 0.05
STOP_BEATS_MAX = 100
"""How long a stop may take. Counted in beats: a machine that keeps this process waiting takes one of them, no more."""
BLOCKED_SECONDS_MAX = 120.0
LIMIT_SECONDS = 77
"""Of a source's limit, in virtual time."""
QUIET_SECONDS = 0.3
"""How long a full queue is simulated, in real time: enough for a source on the loopback to send megabytes."""


class FetcherContract:
    """Tests of one fetcher; ``case`` and, for fetchers that use http, ``open_http`` are set by the subclass."""

    case: ClassVar[FetcherCase]
    open_http: ClassVar[Callable[[], AbstractAsyncContextManager[HttpDoor]] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """What the source of the case has no script for is no test of it."""
        super().__init_subclass__(**kwargs)
        if "case" in vars(cls) and not cls.case.can_limit:
            cls.test_waits_as_a_rate_limit_asks = None  # type: ignore[assignment, method-assign]

    async def test_opens_twice(self, tmp_path: Path) -> None:
        """Two instances, one after the other and side by side, read the same from the same place."""
        async with self._open(tmp_path) as bench:
            first = await bench.collect(bench.context())
            second = await bench.collect(bench.context())
            async with asyncio.TaskGroup() as group:
                sides = [group.create_task(bench.collect(bench.context())) for _ in range(2)]
            for pages in (first, second, *(side.result() for side in sides)):
                self._assert_same(_payloads(pages), bench.source.expected)

    async def test_gives_more_than_one_page(self, tmp_path: Path) -> None:
        """The case has enough records to be worth the suite's while: several pages, several offsets."""
        async with self._open(tmp_path) as bench:
            pages = await bench.collect(bench.context())
            assert len([page for page in pages if len(page)]) > 1 or not self.case.is_paged

    async def test_resumes_from_any_committed_offset(self, tmp_path: Path) -> None:
        """From the offset of any page the rest comes, without gap or repeat, and so does what is new since."""
        async with self._open(tmp_path) as bench:
            whole = await bench.collect(bench.context())
            cuts = [whole[:count] for count in range(len(whole) + 1)]
            for before in cuts:
                context = bench.context(after=before)
                rest = await bench.collect(context, already=_count(before))
                self._assert_resumed(before, rest, bench.source.expected)
            await bench.source.add()
            for before in cuts:
                context = bench.context(after=before)
                rest = await bench.collect(context, already=_count(before))
                self._assert_resumed(before, rest, bench.source.expected)

    async def test_says_of_rows_where_they_go_and_which_they_are(self, tmp_path: Path) -> None:
        """Pages of rows have a topic, all keys of a topic have one schema, and every tombstone has a key."""
        async with self._open(tmp_path) as bench:
            schemas: dict[str, RowSchema | None] = {}
            for page in await bench.collect(bench.context()):
                if page.schema is None or not len(page):
                    continue
                topic = page.topic or bench.connector().config.topic
                assert topic, "a page of rows names no topic, and the config has none"
                assert schemas.setdefault(topic, page.key_schema) == page.key_schema, f"{topic} has keys of two schemas"
                originals = [page.original(at) for at in range(len(page))]
                assert all(key is not None for key, row in originals if row is None), "a tombstone has no key"

    async def test_goes_on_when_new_records_come(self, tmp_path: Path) -> None:
        """A running fetcher delivers what appears after its first round, once."""
        async with self._open(tmp_path) as bench:
            context = bench.context()
            pages: list[Page] = []
            has_added = False
            async with running(bench.connector(), context) as stream, asyncio.timeout(SECONDS_MAX):
                async for page in stream:
                    pages.append(page)
                    if not has_added and _count(pages) >= len(bench.source.expected):
                        await bench.source.add()
                        has_added = True
                    elif has_added and self._distinct(pages) >= len(bench.source.expected):
                        break
            self._assert_resumed(pages, [], bench.source.expected)

    async def test_waits_as_a_rate_limit_asks(self, tmp_path: Path) -> None:
        """A 429 between two pages: it is quiet for as long as ``Retry-After`` says, and nothing is lost or repeated."""
        async with self._open(tmp_path) as bench:
            connector, context = bench.connector(), bench.context()
            own, pages = connector.partition(), list[Page]()
            began = context.clock.monotonic()
            if not self.case.is_paged:
                await bench.source.limit(LIMIT_SECONDS)
            for _ in range(2):
                try:
                    async with running(connector, context, rounds=1) as stream:
                        async for page in stream:
                            pages.append(page)
                            context.commit(page, default=own)
                            if len(pages) == 1 and self.case.is_paged:
                                await bench.source.limit(LIMIT_SECONDS)
                    break
                except RateLimited as error:
                    # As the worker: it waits, and fetches again from the last page.
                    await context.clock.sleep(error.wait_seconds or 0)
            waited = context.clock.monotonic() - began
            assert waited >= LIMIT_SECONDS, f"asked again {waited:g} s after a 429 with Retry-After: {LIMIT_SECONDS}"
            self._assert_resumed(pages, [], bench.source.expected)

    async def test_stops_while_blocked_on_the_source(self, tmp_path: Path) -> None:
        """Cancelled while the source hangs, it ends at once and leaves no task behind."""
        async with self._open(tmp_path) as bench:
            await bench.source.hang()
            work = collect(bench.connector(), bench.context(), rounds=1_000_000)
            await assert_stops_after(bench.source.wait_until_asked(), work)

    async def test_stops_while_it_waits_for_the_next_round(self, tmp_path: Path) -> None:
        """Cancelled between two rounds, it ends at once and leaves no task behind."""
        async with self._open(tmp_path) as bench:
            context = bench.context()
            finished = asyncio.Event()
            await assert_stops_after(finished.wait(), _exhaust(bench.connector(), context, finished))

    async def test_obeys_a_full_queue(self, tmp_path: Path) -> None:
        """While nobody asks for the next page it takes no more than a bounded amount from the source."""
        async with self._open(tmp_path) as bench, running(bench.connector(), bench.context()) as stream:
            while not len(await anext(stream)):
                pass  # a page that only stores an offset
            await asyncio.sleep(QUIET_SECONDS)
            given = bench.source.records_given
            if given is None:
                message = (
                    "not tested, since the scripted source cannot tell how many records it has given: "
                    "define the property `records_given` in your ScriptedSource (HttpCase has it)"
                )
                raise SkipTest(message)
            assert 0 < given <= self.case.records_ahead_max

    async def test_refuses_bad_configs_with_all_findings(self, tmp_path: Path) -> None:
        """Every mistake of a config is named in one answer, and the good config has none."""
        async with self._open(tmp_path) as bench:
            good = dict(bench.source.properties)
            assert _error_keys(self.case.connector, good) == set()
            assert self.case.bad_configs, "the case has no bad config"
            for bad in self.case.bad_configs:
                changed = {**good, **bad.changes}
                texts = {key: value for key, value in changed.items() if value is not None}
                assert _error_keys(self.case.connector, texts) == set(bad.keys), f"findings for {bad.changes}"
            required = {key.name for key in _keys(self.case.connector) if key.is_required}
            assert required <= _error_keys(self.case.connector, {}), "a required key is not missed"

    async def test_takes_over_no_key_of_the_worker(self, tmp_path: Path) -> None:
        """And a config that is applied in the middle of a fetch neither ends it nor repeats anything."""
        async with self._open(tmp_path) as bench:
            connector, context, expected = bench.connector(), bench.context(), bench.source.expected
            for key in ("connector.class", "topic", "contract.schema", "value.converter", "batch.records.max"):
                assert not connector.takes_over({key}), f"{key} is not the connector's to take over"
            pages: list[Page] = []
            async with running(connector, context) as stream, asyncio.timeout(SECONDS_MAX):
                while self._distinct(pages) < len(expected):
                    pages.append(await anext(stream))
                    await connector.apply_config(connector.config)
            self._assert_resumed(pages, [], expected)

    async def test_says_why_a_person_must_act(self, tmp_path: Path) -> None:
        """What only a person can mend is raised as Fatal, with a message."""
        async with self._open(tmp_path) as bench:
            await bench.source.refuse()
            error = await _failure(bench.connector(), bench.context())
            assert isinstance(error, Fatal), f"raised {error!r}"
            assert str(error)

    async def test_leaks_no_secret(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """No secret shows in config texts, pages, offsets, events, errors or logs, whether things go well or not."""
        caplog.set_level(logging.DEBUG)
        async with self._open(tmp_path) as bench:
            connector = bench.connector()
            context = bench.context()
            pages = await bench.collect(context)
            await bench.source.refuse()
            failed = bench.context()
            error = await _failure(bench.connector(), failed)
            said = [
                repr(connector.config),
                str(connector.config),
                str(connector.config.texts()),
                *(str((dict(page.offset), page.partition, page.headers, page.rejections)) for page in pages),
                *(str(event) for event in (*context.events, *failed.events)),
                "".join(traceback.format_exception(error)),
                caplog.text,
            ]
            broken = {key: "" for key in bench.source.properties if key not in _secret_keys(self.case.connector)}
            said += [str(self.case.connector.config_class.parse({**bench.source.properties, **broken}).findings)]
            for secret in self.case.secrets:
                assert not [text for text in said if secret in text], "a secret is shown"
            used = set(bench.source.properties.values())
            assert all(any(secret in value for value in used) for secret in self.case.secrets), "unused secret"

    # --- how the tests look at things

    @asynccontextmanager
    async def _open(self, folder: Path) -> AsyncIterator[Bench]:
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(self.case.source(folder))
            opener = type(self).open_http
            http = await stack.enter_async_context(opener()) if opener is not None else None
            yield Bench(self.case, source, http)

    def _known_by(self, payload: bytes) -> Hashable:
        key = self.case.dedupe_key(payload)
        return payload if key is None else key

    def _distinct(self, pages: Sequence[Page]) -> int:
        payloads = _payloads(pages)
        if payloads and self.case.dedupe_key(payloads[0]) is None:
            return len(payloads)
        return len({self._known_by(payload) for payload in payloads})

    def _assert_same(self, found: Sequence[bytes], expected: Sequence[bytes]) -> None:
        if self.case.is_ordered:
            assert list(found) == list(expected)
        else:
            assert sorted(found) == sorted(expected)

    def _assert_resumed(self, before: Sequence[Page], rest: Sequence[Page], expected: Sequence[bytes]) -> None:
        """What the worker delivers in two runs, having dropped what it may drop, is what the source has."""
        seen: set[tuple[Hashable, str]] = set()
        delivered = []
        for page in (*before, *rest):
            for payload in _payloads([page]):
                if page.dedupe is not None and self.case.dedupe_key(payload) is not None:
                    known = (self._known_by(payload), page.dedupe.window)
                    if known in seen:
                        continue
                    seen.add(known)
                delivered.append(payload)
        self._assert_same(delivered, expected)


class Bench:
    """What a test works with: the source, and a maker of instances and contexts."""

    def __init__(self, case: FetcherCase, source: ScriptedSource, http: HttpDoor | None) -> None:
        self.case = case
        self.source = source
        self._http = http

    def connector(self) -> SourceConnector[Any]:
        """Make an instance for the first of the connector's tasks, as the worker does."""
        kind = self.case.connector
        parsed = kind.config_class.parse(self.source.properties)
        assert parsed.config is not None, parsed.findings
        parts = kind(parsed.config).task_configs(1)
        assert len(parts) == 1, "task_configs(1) gives one task"
        own = kind.config_class.parse({**self.source.properties, **parts[0]})
        assert own.config is not None, own.findings
        return kind(own.config)

    async def collect(self, context: FakeContext, *, already: int = 0) -> list[Page]:
        """Run a new instance for one round; a listener until it has given all but what it gave ``already``."""
        missing = len(self.source.expected) - already
        if self.case.listens and missing > 0:
            return await collect(self.connector(), context, records=missing)
        return await collect(self.connector(), context)

    def context(self, *, after: Sequence[Page] = ()) -> FakeContext:
        """Make a context that has the offsets of these pages committed."""
        own = self.connector().partition()
        context = FakeContext(partition=own, http=self._http)
        for page in after:
            context.commit(page, default=own)
        return context


def _payloads(pages: Sequence[Page]) -> list[bytes]:
    return [payload for page in pages for payload in page.values() if payload is not None]


def _count(pages: Sequence[Page]) -> int:
    return sum(len(page) for page in pages)


def _error_keys(kind: type[SourceConnector[Any]], properties: Mapping[str, str]) -> set[str]:
    parsed = kind.config_class.parse(properties)
    findings = list(parsed.findings)
    if parsed.config is not None:
        findings += kind(parsed.config).findings()
    return {finding.key for finding in findings if finding.is_error}


def _secret_keys(kind: type[SourceConnector[Any]]) -> set[str]:
    return {key.name for key in _keys(kind) if key.kind == "PASSWORD"}


def _keys(kind: type[SourceConnector[Any]]) -> tuple[ConfigKey, ...]:
    return kind.config_class.config_keys()


async def _exhaust(connector: SourceConnector[Any], context: FakeContext, finished: asyncio.Event) -> None:
    """Take pages for ever; ``finished`` is set with the first round, after which time stands still."""

    def on_round(_count: int) -> None:
        context.clock.is_automatic = False
        finished.set()

    stream = connector.fetch(context)
    context.on_round = on_round
    async for _page in stream:
        context.on_round = on_round
    finished.set()


async def assert_stops_after(moment: Awaitable[Any], work: Coroutine[Any, Any, Any]) -> None:
    """Begin the work, wait for the moment, cancel, and see that everything it has started is gone."""
    with watched_family() as family:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            family.found(task)
            async with asyncio.timeout(BLOCKED_SECONDS_MAX):
                await moment
            task.cancel()
            for _ in range(STOP_BEATS_MAX):
                await asyncio.wait({task}, timeout=BEAT_SECONDS)
                if task.done():
                    break
            assert task.done(), f"still running {STOP_BEATS_MAX * BEAT_SECONDS:g} s after it was cancelled"
    assert not family.alive, "the fetcher left tasks behind"


async def _failure(connector: SourceConnector[Any], context: FakeContext) -> BaseException:
    """Run until something is raised, and give it back."""
    with suppress(TimeoutError):
        try:
            await collect(connector, context, rounds=3, seconds_max=BLOCKED_SECONDS_MAX)
        except (Fatal, Exception) as error:  # noqa: BLE001 - whatever it is, the test looks at it
            return error
    message = "the fetcher raised nothing though its source refuses"
    raise AssertionError(message)
