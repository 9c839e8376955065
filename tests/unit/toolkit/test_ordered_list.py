"""A list in the order of a field is read without loss or repeat, whatever moves in it, and what cannot be is told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import Fatal, FetchContext, FetcherConfig, HttpDoor, Offset, Page, SourceConnector
from fetchers.sdk.testing import FakeContext, collect
from fetchers.toolkit.ordered_list import OrderedList
from fetchers.toolkit.pagination import CursorInBody, PageNumber
from fetchers.toolkit.records import RecordSlices

PAGE = 5


@dataclass
class FakeList:
    """A source that sorts by ``at``, gives ``PAGE`` records from a value on, and may change before each answer."""

    items: list[tuple[int, int]]
    """Time and id of each record, in the order in which they are given."""
    changes: list[int] = field(default_factory=list)
    """Places of records that are changed, the first before the first answer: they go to the end of the list."""
    knows_since: bool = True
    asked: list[str | None] = field(default_factory=list)
    is_skipped: bool = False
    body: bytes = b""
    url: str = "http://x/"
    links: tuple[str, ...] = ()
    is_next_named: bool = False
    """Whether answers name their next page, by the last record of the page."""

    def for_task(self, _asker: object) -> Self:
        """See ``HttpDoor``."""
        return self

    async def request(self, _method: str, _url: str, *, query: dict[str, str], **_options: Any) -> Self:
        """Change a record, then answer."""
        if self.changes and self.items:
            _, key = self.items.pop(self.changes.pop(0) % len(self.items))
            # Every second change has the time of the one before.
            self.items.append((1_000 + len(self.asked) // 2, key))
        self.asked.append(query.get("since"))
        since = int(query.get("since", "0")) if self.knows_since else 0
        found = [item for item in self.items if item[0] >= since]
        if "cursor" in query:  # which stays good when its record moves: an order by time and id
            at, key = map(int, query["cursor"].split("."))
            found = [item for item in sorted(found) if item > (at, key)]
        page = found[:PAGE]
        items = [{"at": at, "id": key} for at, key in page]
        self.body = json.dumps(items).encode()
        if self.is_next_named:
            following = f"{page[-1][0]}.{page[-1][1]}" if len(found) > PAGE else None
            self.body = json.dumps({"items": items, "next": following}).encode()
        return self

    def records(self, path: str) -> RecordSlices:
        """See ``HttpResponse``."""
        return RecordSlices.of_json(self.body, path)


class Config(FetcherConfig):
    """Nothing of its own."""


class Listed(SourceConnector[Config]):
    """The list, as a fetcher."""

    begin: str | None = None
    options: ClassVar[dict[str, Any]] = {"page_records": PAGE, "key": "id"}

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """See ``SourceConnector``."""
        listed = OrderedList(url="http://x/", sorted_by="at", begin_at="since", begin=self.begin, **self.options)
        async for page in listed.pages(context):
            yield page


class Paged(Listed):
    """The same where answers name their next page."""

    options: ClassVar[dict[str, Any]] = {"records": "items", "next_pages": CursorInBody("next")}


def connector(kind: type[Listed] = Listed) -> Listed:
    """An instance for one run."""
    config = Config.parse({"topic": "t"}).config
    assert config is not None
    return kind(config)


async def read(source: FakeList, *, rounds: int = 1, after: Sequence[Page] = ()) -> list[Page]:
    """Pages of so many rounds, from the offset of the last page on."""
    context = FakeContext(http=cast("HttpDoor", source), offset=after[-1].offset if after else None)
    return await collect(connector(Paged if source.is_next_named else Listed), context, rounds=rounds)


def delivered(pages: Sequence[Page]) -> list[tuple[int, int]]:
    """Time and id of each record that was handed over."""
    records = [json.loads(payload or b"") for page in pages for payload in page.values()]
    return [(record["at"], record["id"]) for record in records]


def numbered(count: int, *, alike: int = 1) -> list[tuple[int, int]]:
    """So many records, of which so many at a time share a value."""
    return [(number // alike, number) for number in range(count)]


@given(
    count=st.integers(0, 40),
    alike=st.integers(1, PAGE - 1),
    changes=st.lists(st.integers(0, 50), max_size=30),
    cut=st.integers(0, 12),
)
def test_nothing_is_lost_or_repeated(*, count: int, alike: int, changes: list[int], cut: int) -> None:
    """Records change while they are paged, and the task dies after any page: each last state arrives, none twice."""
    source = FakeList(numbered(count, alike=alike), list(changes))

    async def run() -> list[Page]:
        before = (await read(source))[:cut]
        return [*before, *await read(source, rounds=2, after=before)]

    pages = asyncio.run(run())
    source.changes.clear()
    found = delivered([*pages, *asyncio.run(read(source, rounds=2, after=pages))])
    assert set(source.items) <= set(found)
    assert max(Counter(found).values(), default=1) == 1


@given(
    count=st.integers(0, 40),
    alike=st.integers(1, 4 * PAGE),
    changes=st.lists(st.integers(0, 50), max_size=30),
    cut=st.integers(0, 12),
)
def test_nothing_is_lost_or_repeated_of_more_ties_than_a_page_holds(
    *, count: int, alike: int, changes: list[int], cut: int
) -> None:
    """The next page is followed through the records of one value, while others change, and after a restart too."""
    source = FakeList(numbered(count, alike=alike), list(changes), is_next_named=True)

    async def run() -> list[Page]:
        before = (await read(source))[:cut]
        return [*before, *await read(source, rounds=2, after=before)]

    pages = asyncio.run(run())
    source.changes.clear()
    source.items.sort()
    found = delivered([*pages, *asyncio.run(read(source, rounds=2, after=pages))])
    assert set(source.items) <= set(found)
    assert max(Counter(found).values(), default=1) == 1


async def test_next_pages_are_followed_within_one_value_only() -> None:
    """Else each page begins anew at the mark, which no record that moves can pass by."""
    source = FakeList(numbered(12, alike=8), is_next_named=True)
    pages = await read(source)
    assert delivered(pages) == numbered(12, alike=8)
    # Five ties; the same; by the cursor the other three and two beyond them; the rest; nothing new any more.
    assert source.asked == [None, "0", "0", "1", "1"]
    assert [page.offset["read"] for page in pages] == [0, 1, 1]


async def test_next_pages_that_lead_nowhere_are_told() -> None:
    """In a circle, or through a list that does not begin at the mark; ways that count are no cursors."""
    with pytest.raises(Fatal, match="the pages go in a circle"):
        await collect(connector(Paged), answered('{"items": [{"at":1,"id":7}], "next":"c1"}'))
    with pytest.raises(Fatal, match="does not know the parameter 'since', or only goes by a coarser value"):
        await read(FakeList(numbered(30), knows_since=False, is_next_named=True))
    with pytest.raises(ValueError, match="PageNumber counts"):
        OrderedList(url="x", sorted_by="at", begin_at="since", next_pages=PageNumber())
    with pytest.raises(ValueError, match="page_records says how many"):
        OrderedList(url="x", sorted_by="at", begin_at="since")


def answered(text: str, offset: Offset | None = None) -> FakeContext:
    """A source that gives this answer to every request."""
    source = FakeList([], body=text.encode())
    source.request = lambda *_, **__: asyncio.sleep(0, source)  # type: ignore[method-assign]
    return FakeContext(http=cast("HttpDoor", source), offset=offset)


async def test_without_a_key_a_record_that_changes_within_its_second_comes_again() -> None:
    """All bytes tell records apart; by a field alone only the first state would come."""

    class Whole(Listed):
        options: ClassVar[dict[str, Any]] = {"page_records": PAGE}

    first, then = '[{"at":1,"id":7,"state":"new"}]', '[{"at":1,"id":7,"state":"paid"}]'
    for kind, expected in ((Whole, [first, then]), (Listed, [first])):
        offset: Offset | None = None
        states = []
        for text in (first, then, then):
            for page in await collect(connector(kind), answered(text, offset)):
                offset = page.offset
                states += [f"[{(payload or b'').decode()}]" for payload in page.values()]
        assert states == expected


async def test_each_answer_is_asked_for_from_the_mark_on() -> None:
    """The first one without, or from where the config says; a restart goes on in the middle."""
    source = FakeList(numbered(7))
    first, second = await read(source)
    assert source.asked == [None, "4", "6"]
    assert (first.offset["read"], second.offset["read"]) == (4, 6)
    assert delivered(await read(source, after=[first])) == [(5, 5), (6, 6)]
    context = FakeContext(http=cast("HttpDoor", FakeList(numbered(7))))
    late = connector()
    late.begin = "5"
    assert delivered(await collect(late, context)) == [(5, 5), (6, 6)]


async def test_a_late_record_with_the_same_value_still_comes() -> None:
    """Which ones of a value were handed over is remembered, over a restart too."""
    source = FakeList(numbered(3, alike=3))
    pages = await read(source)
    source.items.append((0, 9))
    assert delivered(await read(source, after=pages)) == [(0, 9)]


async def test_more_alike_than_an_answer_holds_is_told() -> None:
    """Going on would lose what is behind them, and asking again would never end."""
    with pytest.raises(Fatal, match="a full answer of 5 records brings nothing new from at=0 on: either more records"):
        await read(FakeList(numbered(6, alike=6)))


async def test_a_source_that_does_not_know_the_parameter_is_told() -> None:
    """It gives its first answer again and again."""
    with pytest.raises(Fatal, match="the source does not know the parameter 'since'"):
        await read(FakeList(numbered(12), knows_since=False))


async def test_another_order_is_told() -> None:
    """Newest first: the mark would pass over all that is older."""
    with pytest.raises(Fatal, match="not in ascending order of 'at'; ask the source for that order"):
        await read(FakeList(numbered(4)[::-1]))


async def test_a_foreign_offset_is_told() -> None:
    """What another connector has stored is not taken for a mark."""
    context = FakeContext(http=cast("HttpDoor", FakeList(numbered(4))), offset={"read": 3, "read.keys": 7})
    with pytest.raises(Fatal, match="none of an ordered list"):
        await collect(connector(), context)


async def test_an_empty_list_and_a_skipped_answer_are_rounds_without_news() -> None:
    """204, or an empty array: asked again after the interval."""
    assert await read(FakeList([]), rounds=3) == []
    source = FakeList(numbered(3), is_skipped=True)
    assert await read(source, rounds=3) == []
    assert len(source.asked) == 3
