"""The examples of ``docs/reference/sdk.md``: ``service.docs.sdk`` shows them, ``test_sdk_examples`` runs them.

The name before ``__`` is the section of the page. An example is the body of its function, so it brings its own imports.
"""

# ruff: noqa: PLC0415 - a reader copies an example with its imports

from __future__ import annotations


async def connector__counter() -> None:
    """A whole fetcher, run as a test runs it."""
    from collections.abc import AsyncIterator, Mapping, Sequence

    from fetchers.sdk import FetchContext, FetcherConfig, Page, PayloadKind, SourceConnector
    from fetchers.sdk.testing import FakeContext, collect

    class CounterConfig(FetcherConfig):
        last: int = 3
        """Number to count to."""

    class Counter(SourceConnector[CounterConfig]):
        payload_kind = PayloadKind.TEXT

        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            number = int(context.offset.get("number") or 0)
            while number < self.config.last:
                number += 1
                yield Page([str(number).encode()], offset={"number": number})
            context.finish_round()

        def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
            return ({},) if tasks_max else ()  # one task, whatever is allowed

    config = CounterConfig.parse({"topic": "numbers"}).config
    assert config is not None
    pages = await collect(Counter(config), FakeContext(offset={"number": 1}))
    assert [list(page.values()) for page in pages] == [[b"2"], [b"3"]]
    assert pages[-1].offset == {"number": 3}


def connector__settings() -> None:
    """A class that does not say its config is a mistake of its author, found at its import."""
    import pytest

    from fetchers.sdk import ConnectorSettingsError, SourceConnector

    with pytest.raises(ConnectorSettingsError, match="must be declared as"):
        type("Nameless", (SourceConnector,), {})


async def connector__work() -> None:
    """A source of several folders, which sees new ones while it runs: its work is then split anew."""
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from fetchers.sdk import FetchContext, FetcherConfig, Page, SourceConnector, WorkContext
    from fetchers.sdk.testing import FakeContext

    class FoldersConfig(FetcherConfig):
        under: str
        """Folder of the folders to read."""
        folder: str = ""
        """That of this task."""

    class Folders(SourceConnector[FoldersConfig]):
        def task_configs(self, tasks_max: int) -> Sequence[Mapping[str, str]]:
            self.seen = self._look()  # runs in a thread, and may block
            return [{"folder": name} for name in self.seen[:tasks_max]]

        async def work_changed(self, context: WorkContext) -> None:
            while await context.run_blocking(self._look) == self.seen:
                await context.clock.sleep(10)

        def _look(self) -> list[str]:
            return sorted(path.name for path in Path(self.config.under).iterdir())

        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            yield Page([self.config.folder.encode()], offset={"at": context.offset.get("at")})

    config = FoldersConfig.parse({"topic": "files", "under": "docs"}).config
    assert config is not None
    folders = Folders(config)
    assert {"folder": "guides"} in folders.task_configs(100)
    folders.seen.remove("guides")
    await folders.work_changed(FakeContext())


async def context__blocking() -> None:
    """Blocking calls go into threads of the worker; a source partition has a key that can be hashed."""
    from fetchers.sdk import partition_key
    from fetchers.sdk.testing import FakeContext

    context = FakeContext(offset={"id": 7}, partition={"table": "orders"})
    assert context.offset_of({"table": "orders"}) == {"id": 7}
    assert context.offsets == {partition_key({"table": "orders"}): {"id": 7}}
    assert await context.run_blocking(lambda: sum(range(4)), subject="database", seconds_max=10) == 6
    context.report_lag(12.5)  # seconds behind the source
    assert context.lags == [12.5]


def page__columns() -> None:
    """Payloads are held as one Arrow column; keys, time stamps and positions stand beside them."""
    from fetchers.sdk import DedupeScope, Offset, Page, Partition, Rejection, Scalar

    line: Scalar = 3
    offset: Offset = {"line": line}
    partition: Partition = {"file": "a.csv"}
    page = Page(
        [b'{"id": 1}', b"broken", None],  # None is a tombstone
        offset,
        partition=partition,
        keys=[b"1", b"2", b"3"],
        timestamps_ms=[1_700_000_000_000, None, None],
        positions=[1, 2, 3],
        position_name="line",
        rejections=(Rejection(1, "malformed", "the line is no JSON"),),
        dedupe=DedupeScope(window="2026-01-02", oldest_open="2026-01-01"),
    )
    assert (len(page), page.payload_bytes) == (3, 15)
    assert list(page.values()) == [b'{"id": 1}', b"broken", None]


async def page__rows() -> None:
    """Rows of a database: typed columns with a schema, a key of their own, a topic by page, and a tombstone."""
    from collections.abc import AsyncIterator

    import pyarrow as pa

    from fetchers.sdk import FetchContext, Page, PayloadKind, RowSchema, SourceConnector, TopicsConfig
    from fetchers.sdk.rows import INT64, STRING, optional
    from fetchers.sdk.testing import FakeContext, collect

    users = RowSchema.of("public.users", {"id": INT64, "name": optional(STRING)})
    key = RowSchema.of("public.users.Key", {"id": INT64})

    class Users(SourceConnector[TopicsConfig]):
        payload_kind = PayloadKind.ROWS

        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            ids, names = pa.array([1, 2]), pa.array(["Ada", None])
            is_deleted = pa.array([False, True])
            rows = pa.StructArray.from_arrays([ids, names], names=["id", "name"], mask=is_deleted)
            keys = pa.table({"id": ids})
            yield Page(rows, {"log": 7}, topic="public.users", schema=users, keys=keys, key_schema=key)
            context.finish_round()

    config = TopicsConfig.parse({}).config
    assert config is not None
    (page,) = await collect(Users(config), FakeContext())
    assert list(page.values()) == [b'{"id":1,"name":"Ada"}', None]
    assert page.original(1) == (b'{"id":2}', None)


def config__keys() -> None:
    """Fields are keys: dots for underscores, the docstring is the documentation, all findings come at once."""
    from typing import Annotated

    from pydantic import Field

    from fetchers.sdk import (
        Boolean,
        ConfigModel,
        FetcherConfig,
        HttpUrl,
        Importance,
        IsoDate,
        Key,
        NameList,
        ParsedConfig,
        Secret,
        SecretMap,
        Severity,
        TextMap,
    )

    class ShopConfig(FetcherConfig):
        shop_url: Annotated[HttpUrl, Key(importance=Importance.HIGH, example="https://shop.example")]
        """Where the shop is."""
        shop_token: Secret
        """Shown nowhere."""
        shop_from: IsoDate | None = None
        """First day."""
        shop_lists: NameList = ("orders",)
        """What to read."""
        shop_drafts: Boolean = False
        """Whether drafts are read too."""
        shop_query: Annotated[TextMap, Field(default_factory=dict)]
        """Fields of the query, such as ``shop.query.limit``."""
        shop_header: Annotated[SecretMap, Field(default_factory=dict)]
        """Header fields."""

    good: ParsedConfig[ShopConfig] = ShopConfig.parse(
        {"topic": "orders", "shop.url": "https://shop.example", "shop.token": "s3cret", "shop.query.limit": "5"}
    )
    assert good.config is not None
    assert good.config.shop_query == {"limit": "5"}
    assert good.config.texts()["shop.token"] == "[hidden]"
    bad = ShopConfig.parse({"topic": "orders", "shop.url": "nowhere", "shop.from": "2026-13-01"})
    assert [finding.key for finding in bad.findings] == ["shop.url", "shop.token", "shop.from"]
    assert all(finding.severity is Severity.ERROR for finding in bad.findings)
    assert issubclass(ShopConfig, ConfigModel)


def config__findings() -> None:
    """Values that must fit together are looked at by ``SourceConnector.findings``; each key is known by its name."""
    from fetchers.sdk import ConfigKey, FetcherConfig, Finding, Severity

    topic: ConfigKey = next(key for key in FetcherConfig.config_keys() if key.name == "topic")
    assert (topic.kind, topic.is_required) == ("STRING", True)
    finding = Finding("shop.from", "2026-02-01", "shop.from is after shop.to", Severity.WARNING)
    assert not finding.is_error  # it is told, and the config is taken all the same


def errors__recovery() -> None:
    """The class of an error says what the worker does; a wait that the source asks for goes with it."""
    from fetchers.sdk import Disconnected, Fatal, FetchError, RateLimited, Retriable

    assert RateLimited("too many requests", wait_seconds=30).wait_seconds == 30
    assert Retriable("the answer was cut").wait_seconds is None  # the back-off decides
    assert issubclass(RateLimited, Retriable)
    assert issubclass(Disconnected, Retriable)
    assert issubclass(Fatal, FetchError)
    assert not issubclass(Fatal, Retriable)


def retry__waits() -> None:
    """Back-off with jitter, in seconds, never less than the source asked for; listeners have a policy a failure."""
    from fetchers.sdk import BackOff, Disconnected, Linear, Reconnect

    policy = BackOff(first_seconds=1, cap_seconds=60, jitter_seconds=0)
    assert [policy.wait_seconds(attempt) for attempt in (1, 2, 3, 10)] == [1, 2, 4, 60]
    assert policy.wait_seconds(1, asked_seconds=30) == 30
    again = Reconnect(disconnected=Linear(step_seconds=0.5))
    assert [again.waits_after(Disconnected("cut")).wait_seconds(attempt) for attempt in (1, 2, 3)] == [0, 0.5, 1]


async def clock__virtual() -> None:
    """A fetcher waits by ``context.clock``: the machine's in a worker, a virtual one in tests."""
    from fetchers.sdk import Clock, SystemClock
    from fetchers.sdk.testing import FakeClock

    clocks: list[Clock] = [SystemClock(), FakeClock()]
    assert all(clock.now().tzinfo is not None for clock in clocks)
    virtual = FakeClock()
    await virtual.sleep(3600)  # returns at once: nobody else has anything to do
    assert (virtual.monotonic(), virtual.slept) == (3600, [3600])


async def http__request() -> None:
    """One request with its whole answer, and what its statuses mean; ``testing.HttpCase`` has a web server."""
    import pytest
    from aiohttp import web

    from fetchers.catalog import shared_http
    from fetchers.sdk import (
        AnswerRule,
        Fatal,
        HttpAccess,
        HttpDoor,
        HttpLimits,
        HttpResponse,
        HttpStream,
        Records,
        RequestOptions,
        StatusTable,
        StatusVerdict,
        TlsSettings,
    )
    from fetchers.sdk.testing import FakeContext
    from tests.contracts.loopback import serve

    async def answer(request: web.Request) -> web.Response:
        if request.query.get("page") == "2":
            return web.json_response({"error": "closed"}, status=403)
        return web.json_response({"items": [{"id": 1, "at": 10}, {"id": 2, "at": 20}]})

    busy = AnswerRule(StatusVerdict.RETRY, frozenset({403}), path="error", text="busy")
    options: RequestOptions = {
        "query": {"page": "1"},
        "statuses": StatusTable(rules=[busy]).with_verdict(StatusVerdict.SKIP, [404]),
        "limits": HttpLimits(total_seconds=30, response_bytes_max=1024 * 1024),
        "tls": TlsSettings(is_verified=True),
    }
    async with shared_http() as door, serve(answer) as url:
        lent: HttpDoor = door
        http: HttpAccess = FakeContext(http=lent).http
        response: HttpResponse = await http.request("GET", url, **options)
        records: Records = response.records("items", newer_than=("at", 10))
        assert (list(records), records.highest) == ([b'{"id": 2, "at": 20}'], 20)
        stream: HttpStream
        async with http.stream("GET", url) as stream:
            assert b"".join([chunk async for chunk in stream.chunks()]) == response.body
        with pytest.raises(Fatal, match="403"):
            await http.request("GET", url, query={"page": "2"})


async def http__websocket() -> None:
    """A WebSocket is open as long as the block lasts; when the other side closes it, that is an error to be retried."""
    import pytest
    from aiohttp import web

    from fetchers.catalog import shared_http
    from fetchers.sdk import HttpWebSocket, SocketClosed, SocketMessage
    from fetchers.sdk.testing import FakeContext
    from tests.contracts.loopback import serve

    async def answer(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str(await socket.receive_str())
        await socket.close()
        return socket

    async with shared_http() as door, serve(answer) as url:
        socket: HttpWebSocket
        async with FakeContext(http=door).http.websocket(url, message_bytes_max=1024) as socket:
            await socket.send('{"id": 1}')
            message: SocketMessage = await socket.receive()
            assert (message.payload, message.is_text) == (b'{"id": 1}', True)
            with pytest.raises(SocketClosed):
                await socket.receive()


async def listening__talk() -> None:
    """A listener is one coroutine that connects, says so, and puts what comes; ``listen`` makes a fetcher of it."""
    from fetchers.sdk import Inbox, InboxLimits, SourceEnded, listen
    from fetchers.sdk.testing import FakeContext

    async def receive(inbox: Inbox) -> None:
        inbox.connected(is_resumed=True)
        await inbox.put([b"one", b"two"], offset={"id": 2})
        raise SourceEnded

    pages = [page async for page in listen(FakeContext(), receive, limits=InboxLimits(page_records_max=100))]
    assert [list(page.values()) for page in pages] == [[b"one", b"two"]]
    assert pages[0].offset == {"id": 2}


def testing__case() -> None:
    """A case is a class, its bad configs, and a scripted source; the suite is a base class of the test."""
    from collections.abc import Mapping, Sequence
    from typing import Any

    from aiohttp import web

    from fetchers.http.fetcher import HttpSource
    from fetchers.sdk.testing import (
        BadConfig,
        FetcherCase,
        FetcherContract,
        HttpCase,
        ListenerCase,
        ListenerContract,
        ScriptedSource,
        TalkingSource,
    )

    class ShopCase(HttpCase):
        connector = HttpSource
        properties = {"topic": "shop", "http.auth.token": "tok-77ad01"}  # noqa: RUF012 - a case is never changed
        url_key = "http.url"
        bad_configs = (BadConfig({"topic": None}, frozenset({"topic"})),)

        def record(self, number: int) -> Mapping[str, Any]:
            return {"id": number}

        def answer(self, request: web.Request, records: Sequence[Mapping[str, Any]]) -> Any:
            return records if request.method == "GET" else web.Response(status=405)

    class TestsOfShop(FetcherContract):
        case = ShopCase()

    assert ShopCase.secrets == ("tok-77ad01",)  # of the config's secret keys, unless it says others
    assert issubclass(HttpCase, FetcherCase)
    assert issubclass(ListenerContract, FetcherContract)  # for listeners, with a ListenerCase
    assert issubclass(ListenerCase, FetcherCase)
    assert issubclass(TalkingSource, ScriptedSource)


async def testing__collect() -> None:
    """``collect`` gives the pages of a round, ``running`` the stream of them; endless pages are an error."""
    from collections.abc import AsyncIterator

    from fetchers.sdk import FetchContext, FetcherConfig, Page, SourceConnector
    from fetchers.sdk.testing import FakeContext, ManyPagesError, collect, running

    class Ticks(SourceConnector[FetcherConfig]):
        async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
            while True:
                yield Page([b"{}"], offset={})
                context.finish_round()
                await context.clock.sleep(5)

    config = FetcherConfig.parse({"topic": "ticks"}).config
    assert config is not None
    assert len(await collect(Ticks(config), FakeContext(), rounds=3)) == 3
    async with running(Ticks(config), FakeContext()) as pages:
        assert len(await anext(pages)) == 1
    assert issubclass(ManyPagesError, AssertionError)
