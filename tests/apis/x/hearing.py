"""Runs ``XStreamSource`` against the simulated X, and keeps what it hands over."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fetchers.catalog import shared_http
from fetchers.sdk import Inbox, InboxLimits, Offset, Page
from fetchers.sdk.testing import FakeClock, FakeContext
from fetchers.x.config import XStreamConfig
from fetchers.x.fetcher import XStreamSource
from metrics.events import MessagesPassedOver, SourceGap
from service.simulators.x import XSimulator
from service.simulators.x_settings import XSettings

SECONDS_MAX = 90.0
NARROW = InboxLimits(records_max=50, bytes_max=1_000_000)
PARTITION = {"stream": "filtered"}


class Narrow(FakeContext):
    """A worker with little room in its inboxes."""

    def inbox(self, limits: InboxLimits | None = None) -> Inbox:
        """Of ``NARROW``, whatever is asked for."""
        del limits
        return super().inbox(NARROW)


class Hearing:
    """One task of the connector."""

    def __init__(self, context: FakeContext, connector: XStreamSource) -> None:
        self.context = context
        self.connector = connector
        self.pages: list[Page] = []
        self.error: Exception | None = None
        self._news = asyncio.Event()
        self._may_take = asyncio.Event()
        self._may_take.set()

    async def run(self) -> None:
        """Take pages until cancelled; what is raised is kept."""
        try:
            async for page in self.connector.fetch(self.context):
                self.pages.append(page)
                self.context.commit(page, default=PARTITION)
                self._news.set()
                await self._may_take.wait()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
            self._news.set()

    def pause(self) -> None:
        """Take no page after the next one."""
        self._may_take.clear()

    def go_on(self) -> None:
        """Take pages again."""
        self._may_take.set()

    async def breathe(self) -> None:
        """Let server and client do what they can at this moment."""
        for _ in range(5):
            await asyncio.sleep(0)

    async def wait(self, condition: Callable[[], bool], *, seconds_max: float = SECONDS_MAX) -> None:
        """Until it holds; looked at whenever a page comes and, for what brings no page, a few times a second."""
        async with asyncio.timeout(seconds_max):
            while not condition():
                if self.error is not None:
                    raise self.error
                self._news.clear()
                try:
                    async with asyncio.timeout(0.02):
                        await self._news.wait()
                except TimeoutError:
                    pass

    async def wait_for(self, records: int) -> None:
        """Until so many records have come, doubles and tombstones included."""
        await self.wait(lambda: sum(map(len, self.pages)) >= records)

    async def failure(self) -> Exception:
        """What it ends with."""
        async with asyncio.timeout(SECONDS_MAX):
            while self.error is None:
                self._news.clear()
                await self._news.wait()
        return self.error

    @property
    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and payloads, doubles included."""
        found: list[tuple[bytes | None, bytes | None]] = []
        for page in self.pages:
            found += zip(_keys(page), page.values(), strict=True)
        return found

    @property
    def ids(self) -> set[bytes]:
        """Of everything that has come under a key."""
        return {key for page in self.pages if page.keys is not None for key in _keys(page) if key is not None}

    @property
    def texts(self) -> list[str]:
        """Of the posts, as the worker would deliver them."""
        return delivered(self.pages)

    @property
    def told(self) -> list[dict[str, Any]]:
        """Messages of posts, doubles included."""
        return [json.loads(value) for _, value in self.records if value is not None]

    @property
    def gaps(self) -> list[SourceGap]:
        """Those that were told."""
        return [event for event in self.context.events if isinstance(event, SourceGap)]

    @property
    def passed_over(self) -> dict[str, int]:
        """Messages by the reason for which they were left out."""
        found: dict[str, int] = {}
        for event in self.context.events:
            if isinstance(event, MessagesPassedOver):
                found[event.reason] = found.get(event.reason, 0) + event.messages
        return found

    @property
    def offset(self) -> Offset:
        """What is committed."""
        return self.context.offset

    @property
    def waits(self) -> list[float]:
        """Seconds between a failure and the next try, in order."""
        return [seconds for _, seconds in self.context.retries]


def delivered(pages: Iterable[Page]) -> list[str]:
    """Texts of the posts of committed pages: one that is known in an open window is dropped."""
    windows: dict[str, set[str]] = {}
    found = []
    for page in pages:
        scope = page.dedupe
        for value in page.values():
            if value is None:
                continue
            data = json.loads(value)["data"]
            assert scope is not None
            if any(data["id"] in ids for ids in windows.values()):
                continue
            windows.setdefault(scope.window, set()).add(data["id"])
            found.append(data["text"])
        if scope is not None:
            windows = {label: ids for label, ids in windows.items() if label >= scope.oldest_open}
    return found


def _keys(page: Page) -> list[bytes | None]:
    keys: Any = page.keys
    return [None] * len(page) if keys is None else list(keys.to_pylist())


def connector_for(x: XSimulator, more: Mapping[str, str] | None = None, **properties: str) -> XStreamSource:
    """With the app's bearer token and the keyword kafka, unless told otherwise; ``_`` stands for ``.`` in keys."""
    texts: Mapping[str, str] = {
        "topic": "posts",
        "x.base.url": x.url,
        "x.bearer.token": x.settings.bearer_token,
        "x.keywords": "kafka",
        **{key.replace("_", "."): text for key, text in properties.items()},
        **(more or {}),
    }
    parsed = XStreamConfig.parse({key: text for key, text in texts.items() if text})
    assert parsed.config is not None, parsed.findings
    connector = XStreamSource(parsed.config)
    assert list(connector.findings()) == []
    return connector


@asynccontextmanager
async def hearing(
    x: XSimulator,
    clock: FakeClock,
    *,
    offset: Offset | None = None,
    is_narrow: bool = False,
    name: str = "cats",
    more: Mapping[str, str] | None = None,
    **properties: str,
) -> AsyncIterator[Hearing]:
    """A task that runs while the block does."""
    async with shared_http() as http:
        kind = Narrow if is_narrow else FakeContext
        context = kind(http=http, clock=clock, partition=PARTITION, offset=offset, connector=name)
        heard = Hearing(context, connector_for(x, more, **properties))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(heard.run())
            try:
                yield heard
            finally:
                task.cancel()


@asynccontextmanager
async def simulated(clock: FakeClock | None = None, **settings: Any) -> AsyncIterator[tuple[XSimulator, FakeClock]]:
    """An X in virtual time, whose keep-alives come often in real time."""
    clock = clock or FakeClock()
    async with XSimulator(XSettings(**({"keep_alive_seconds": 0.05} | settings)), clock=clock) as x:
        yield x, clock
