"""A list behind ``HttpSource``, in pages of all the usual ways."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from fetchers.http.fetcher import HttpSource
from fetchers.sdk import Page
from fetchers.sdk.testing import FakeContext
from fetchers.toolkit.http import SharedHttp


def source(url: str, **more: str) -> HttpSource:
    """A source with these keys (``_`` for ``.``)."""
    keys = {name.replace("__", "\0").replace("_", ".").replace("\0", "_"): text for name, text in more.items()}
    parsed = HttpSource.config_class.parse({"topic": "t", "http.url": url, "poll.interval.ms": "1000", **keys})
    assert parsed.config is not None, parsed.findings
    made = HttpSource(parsed.config)  # type: ignore[arg-type]
    assert not [finding for finding in made.findings() if finding.is_error]
    return made


def ids(pages: Sequence[Page]) -> list[Any]:
    """The ``id`` of every record."""
    return [json.loads(payload or b"")["id"] for page in pages for payload in page.values()]


def resume(made: HttpSource, http: SharedHttp, pages: Sequence[Page]) -> FakeContext:
    """A context with the offsets of these pages stored."""
    context = FakeContext(partition=made.partition(), http=http)
    for page in pages:
        # As through the offset topic: nothing but JSON survives.
        offset = json.loads(json.dumps(dict(page.offset)))
        context.offsets[next(iter(context.offsets), tuple(sorted(made.partition().items())))] = offset
    return context


class Table:
    """A list of items with stamps, served in pages in any of the usual ways."""

    def __init__(self, items: list[dict[str, Any]], *, size: int = 2) -> None:
        self.items = items
        self.size = size
        self.asked: list[dict[str, str]] = []
        self.served: list[list[dict[str, Any]]] = []

    async def answer(self, request: web.Request) -> web.Response:
        """A page, with everything that tells the next one."""
        query = dict(request.query)
        self.asked.append(query)
        if "page" in query:
            start = (int(query["page"]) - 1) * self.size
        else:
            start = int(query.get("offset", query.get("cursor", "0")))
        end = start + self.size
        following = end if end < len(self.items) else None
        url = f"{request.path}?cursor={following}" if following else None
        links = {"Link": f'<{url}>; rel="next"'} if url else {}
        self.served.append(self.items[start:end])
        body = {"items": self.items[start:end], "cursor": following, "next": url}
        return web.json_response(body, headers=links)


def items(*stamps: int) -> list[dict[str, Any]]:
    """Items numbered from 0 with these stamps."""
    return [{"id": number, "t": stamp} for number, stamp in enumerate(stamps)]


WAYS: Mapping[str, Mapping[str, str]] = {
    "page_number": {"http_pagination_type": "page_number"},
    "offset": {"http_pagination_type": "offset", "http_pagination_limit": "2"},
    "cursor": {"http_pagination_type": "cursor", "http_pagination_cursor_path": "cursor"},
    "link": {"http_pagination_type": "link"},
    "next_url": {"http_pagination_type": "next_url"},
}


class Moving(Table):
    """A list that something is done to after some of the answers."""

    def __init__(self, items: list[dict[str, Any]], *, size: int = 2, is_newest_first: bool = False) -> None:
        super().__init__(items, size=size)
        self.is_newest_first = is_newest_first
        self.after: dict[int, Callable[[], None]] = {}
        self.stamp = max((item["t"] for item in items), default=0)
        if is_newest_first:
            self.items.reverse()

    def touch(self, number: int) -> None:
        """Update a record: it gets the newest stamp, and the place that goes with it."""
        self.stamp += 1
        (old,) = (item for item in self.items if item["id"] == number)
        self.items.remove(old)
        self._put({**old, "t": self.stamp})

    def add(self, number: int) -> None:
        """Another record."""
        self.stamp += 1
        self._put({"id": number, "t": self.stamp})

    def drop(self, number: int) -> None:
        """Take a record away."""
        self.items[:] = [item for item in self.items if item["id"] != number]

    def _put(self, item: dict[str, Any]) -> None:
        self.items.insert(0 if self.is_newest_first else len(self.items), item)

    def reset(self) -> None:
        """As it was in the beginning."""
        self.items = sorted(({**item, "t": item["id"] + 1} for item in self.items), key=lambda item: item["t"])

    async def moving_answer(self, request: web.Request) -> web.Response:
        """A page; then what was planned for this moment happens."""
        response = await self.answer(request)
        self.after.pop(len(self.asked), lambda: None)()
        return response

    @property
    def versions(self) -> set[tuple[int, int]]:
        """Every record as it is now."""
        return {(item["id"], item["t"]) for item in self.items}
