"""``HttpSource`` over lists that move while they are paged: nothing is lost, and what happened is told.

A list in order of its stamps moves whenever a record is updated: it gets a new stamp and goes to the end (or, newest
first, to the front), and all between its old place and its new one are shifted over the page borders.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fetchers.catalog import shared_http
from fetchers.http import answers, asking, fetcher
from fetchers.http.answers import CutAnswer
from fetchers.http.fetcher import HttpSource
from fetchers.sdk import Page, Retriable
from fetchers.sdk.testing import FakeContext, collect
from fetchers.toolkit import marks
from fetchers.toolkit.http import SharedHttp
from metrics.events import PagesMoved
from tests.apis.http.paged import WAYS, Moving, Table, ids, items, resume, source
from tests.contracts.loopback import serve

POSITIONAL = [way for way in WAYS if way != "cursor"]
"""Ways by places that are counted, or may be: a URL that the source names often holds a page number."""


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


def versions(pages: list[Page]) -> list[tuple[int, int]]:
    """Id and stamp of every record that was handed over."""
    return [(item["id"], item["t"]) for page in pages for item in map(json.loads, filter(None, page.values()))]


def moves(context: FakeContext) -> list[bool]:
    """What was told of moves: whether records come twice for it."""
    return [event.is_repeating for event in context.events if isinstance(event, PagesMoved)]


async def collect_in_spite(made: HttpSource, context: FakeContext) -> list[Page]:
    """A round, or what there is of it when the list moves too fast: then the worker would wait."""
    pages: list[Page] = []
    with suppress(Retriable):
        await collect(made, context, on_page=pages.append)
    return pages


def keys(way: str, **more: str) -> dict[str, str]:
    """The keys of a source by this way."""
    return {"http_records_path": "items", "http_offset_field": "t", "http_offset_key": "id", **WAYS[way], **more}


@pytest.mark.parametrize("way", POSITIONAL)
@pytest.mark.parametrize("size", [2, 3])
async def test_a_record_that_leaves_a_page_that_was_read_hides_no_other(http: SharedHttp, way: str, size: int) -> None:
    """Its neighbour crosses the border of the pages backwards, and is read all the same, once; the move is told."""
    table = Moving(items(*range(1, 9)), size=size)
    table.after = {2: lambda: table.touch(0), 4: lambda: table.touch(1), 5: lambda: table.touch(2)}
    async with serve(table.moving_answer) as url:
        made = source(f"{url}/list", **keys(way, http_pagination_limit=str(size)))
        context = resume(made, http, [])
        pages = await collect(made, context, rounds=2)
    assert table.versions <= set(versions(pages))
    assert len(versions(pages)) == len(set(versions(pages)))
    assert moves(context)
    assert not any(moves(context))


@pytest.mark.parametrize("way", POSITIONAL)
@pytest.mark.parametrize("touched", [1, 2, 5])
async def test_what_moves_while_the_task_is_down_hides_no_other(http: SharedHttp, way: str, touched: int) -> None:
    """Between two pages the task is killed, and so many records move before it is there again."""
    table = Moving(items(*range(1, 13)))
    async with serve(table.answer) as url:
        made = source(f"{url}/list", **keys(way))
        for cut in range(1, 6):
            pages = await collect(made, resume(made, http, []), pages=cut)
            for number in range(touched):
                table.touch(number)
            context = resume(made, http, pages)
            rest = await collect(made, context, rounds=2)
            assert table.versions <= set(versions([*pages, *rest]))
            assert len(versions([*pages, *rest])) == len(set(versions([*pages, *rest])))
            assert moves(context) == [False]
            table.reset()


@pytest.mark.parametrize("way", POSITIONAL)
async def test_newest_first_repeats_nothing_after_a_kill(http: SharedHttp, way: str) -> None:
    """What came in at the front meanwhile has pushed records on to pages that are yet to be read."""
    table = Moving(items(*range(1, 13)), is_newest_first=True)
    async with serve(table.answer) as url:
        made = source(f"{url}/list", **keys(way))
        pages = await collect(made, resume(made, http, []), pages=2)
        for number in range(20, 25):
            table.add(number)
        context = resume(made, http, pages)
        rest = await collect(made, context, rounds=2)
    assert sorted(ids([*pages, *rest])) == [*range(12), *range(20, 25)]
    assert moves(context) == [False]


@pytest.mark.parametrize("way", POSITIONAL)
@pytest.mark.parametrize("added", [1, 2, 3])
async def test_newest_first_a_page_of_this_rounds_records_is_not_the_end_of_what_is_new(
    http: SharedHttp, way: str, added: int
) -> None:
    """``stops.at.known`` is about records of the rounds before: others come again where a list has moved."""
    table = Moving(items(*range(1, 9)), is_newest_first=True)

    def add() -> None:
        for number in range(20, 20 + added):
            table.add(number)

    table.after = {2: add}
    async with serve(table.moving_answer) as url:
        made = source(f"{url}/list", **keys(way, http_pagination_stops_at_known="true"))
        context = resume(made, http, [])
        pages = await collect(made, context, rounds=2)
    assert sorted(ids(pages)) == [*range(8), *range(20, 20 + added)]
    assert moves(context)


@pytest.mark.parametrize("way", POSITIONAL)
async def test_newest_first_a_record_without_a_value_is_not_left_to_the_next_round(http: SharedHttp, way: str) -> None:
    """It is read for the first time where the list has moved, and the next round takes it for known."""
    table = Moving(items(*range(1, 9)), is_newest_first=True)
    del table.items[2]["t"]
    table.after = {1: lambda: table.add(20)}
    async with serve(table.moving_answer) as url:
        made = source(f"{url}/list", **keys(way))
        pages = await collect(made, resume(made, http, []), rounds=2)
    assert sum(len(page.rejections) for page in pages) == 1
    assert sorted(ids(pages)) == [*range(8), 20]


@pytest.mark.parametrize("way", POSITIONAL)
async def test_a_list_in_no_order_is_read_again_from_the_mark(http: SharedHttp, way: str) -> None:
    """Nothing tells what was handed over before the kill: all of the round comes again, and that is told."""
    table = Moving([{"id": number, "t": (number * 5) % 12 + 1} for number in range(12)])
    async with serve(table.answer) as url:
        made = source(f"{url}/list", **keys(way))
        pages = await collect(made, resume(made, http, []), pages=3)
        for number in range(3, 6):
            table.drop(number)
        context = resume(made, http, pages)
        rest = await collect(made, context, rounds=2)
    assert {item["id"] for item in table.items} <= set(ids([*pages, *rest]))
    assert moves(context) == [True]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 14),
    size=st.integers(2, 4),
    way=st.sampled_from(POSITIONAL),
    is_newest_first=st.booleans(),
    touches=st.lists(st.lists(st.integers(0, 13), max_size=3), min_size=1, max_size=30),
    kills=st.lists(st.integers(0, 9), max_size=3),
)
async def test_whatever_moves_and_whenever_the_task_dies_each_version_comes_once(
    *, count: int, size: int, way: str, is_newest_first: bool, touches: list[list[int]], kills: list[int]
) -> None:
    """Random updates after random answers, and a kill after any page: what stands in the list at the end has come.

    None comes twice but where that was told.
    """
    table = Moving(items(*range(1, count + 1)), size=size, is_newest_first=is_newest_first)

    def touch(numbers: list[int]) -> None:
        for number in numbers:
            table.touch(number % count)

    table.after = {at: partial(touch, numbers) for at, numbers in enumerate(touches, start=1)}
    delivered: list[Page] = []
    is_repeating = False
    async with shared_http() as http, serve(table.moving_answer) as url:
        made = source(f"{url}/list", **keys(way, http_pagination_limit=str(size)))
        for kept in kills:
            context = resume(made, http, delivered[-1:])
            delivered += (await collect_in_spite(made, context))[:kept]
            is_repeating |= any(moves(context))
        table.after = {}
        delivered += await collect(made, resume(made, http, delivered[-1:]), rounds=2)
    found = versions(delivered)
    assert table.versions <= set(found)
    assert is_repeating or len(found) == len(set(found))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stamps=st.permutations(range(1, 13)),
    size=st.integers(1, 4),
    way=st.sampled_from(POSITIONAL),
    drops=st.lists(st.lists(st.integers(0, 11), max_size=2), min_size=1, max_size=10),
)
@example(
    stamps=[1, 7, 5, 2, 11, 3, 9, 8, 6, 12, 4, 10],
    size=1,
    way="page_number",
    drops=[[7, 8], [8, 4], [2, 0], [1, 11], [10]],
)
@example(
    stamps=[3, 2, 11, 4, 6, 7, 8, 1, 9, 5, 10, 12],
    size=1,
    way="page_number",
    drops=[[], [], [], [0, 3], [6, 10], [1, 5], [2], [4], [8]],
)
async def test_in_any_order_what_is_not_taken_away_comes(
    stamps: list[int], size: int, way: str, drops: list[list[int]]
) -> None:
    """Records go from a list that is not in order of its stamps while it is paged: what stays in it has come."""
    table = Moving([{"id": number, "t": stamp} for number, stamp in enumerate(stamps)], size=size)

    def drop(numbers: list[int]) -> None:
        for number in numbers:
            table.drop(number)

    table.after = {at: partial(drop, numbers) for at, numbers in enumerate(drops, start=1)}
    async with shared_http() as http, serve(table.moving_answer) as url:
        made = source(f"{url}/list", **keys(way, http_pagination_limit=str(size)))
        delivered = await collect(made, resume(made, http, []), rounds=2)
    assert table.versions <= set(versions(delivered))


@pytest.mark.parametrize("way", POSITIONAL)
@pytest.mark.parametrize("stamps", [[9, 8, *[1] * 7], [9, 8, *[5] * 7, 1], [7, 9, *[1] * 7, 8]])
async def test_more_old_records_of_one_value_than_can_be_remembered_come_once(
    http: SharedHttp, monkeypatch: pytest.MonkeyPatch, way: str, stamps: list[int]
) -> None:
    """A bulk import behind newer records: the mark that is stored does not stand at its value."""
    monkeypatch.setattr(marks, "KEYS_MAX", 4)
    table = Table(items(*stamps), size=3)
    async with serve(table.answer) as url:
        made = source(f"{url}/list", **keys(way, http_pagination_limit="3"))
        pages = await collect(made, resume(made, http, []))
        assert ids(pages) == [*range(len(stamps))]
        table.items.insert(0, {"id": 99, "t": 10})
        assert ids(await collect(made, resume(made, http, pages))) == [99]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(1, 8),
    old=st.integers(3, 9),
    size=st.integers(2, 4),
    way=st.sampled_from(POSITIONAL),
    touches=st.lists(st.lists(st.integers(0, 16), max_size=3), min_size=1, max_size=30),
    kills=st.lists(st.integers(0, 9), max_size=3),
)
async def test_behind_newer_records_many_of_one_value_move_as_others_do(
    *, count: int, old: int, size: int, way: str, touches: list[list[int]], kills: list[int]
) -> None:
    """Newest first, with more records of the oldest value than can be remembered: each version comes.

    None comes twice but where that was told.
    """
    stamped = [{"id": number, "t": max(0, number - old + 1)} for number in range(old + count)]
    table = Moving(stamped, size=size, is_newest_first=True)

    def touch(numbers: list[int]) -> None:
        for number in numbers:
            table.touch(number % (old + count))

    table.after = {at: partial(touch, numbers) for at, numbers in enumerate(touches, start=1)}
    delivered: list[Page] = []
    is_repeating = False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marks, "KEYS_MAX", 2)
        async with shared_http() as http, serve(table.moving_answer) as url:
            made = source(f"{url}/list", **keys(way, http_pagination_limit=str(size)))
            for kept in kills:
                context = resume(made, http, delivered[-1:])
                delivered += (await collect_in_spite(made, context))[:kept]
                is_repeating |= any(moves(context))
            table.after = {}
            context = resume(made, http, delivered[-1:])
            delivered += await collect(made, context, rounds=2)
            is_repeating |= any(moves(context))
    found = versions(delivered)
    assert table.versions <= set(found)
    assert is_repeating or len(found) == len(set(found))


async def test_large_pages_are_judged_in_a_thread_and_their_records_hashed_once(
    http: SharedHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that takes time by the record happens on the event loop, whether the pages stay or move."""
    threads: set[int] = set()
    hashed: list[bytes] = []

    def watched(function: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*arguments: Any, **more: Any) -> Any:
            threads.add(threading.get_ident())
            return function(*arguments, **more)

        return watching

    def key_hash(identity: bytes) -> str:
        hashed.append(identity)
        return marks.key_hash(identity)

    for name in ("identities", "news", "raise_mark"):
        monkeypatch.setattr(CutAnswer, name, watched(getattr(CutAnswer, name)))
    monkeypatch.setattr(answers, "key_hash", watched(key_hash))
    monkeypatch.setattr(asking, "BODY_BYTES_ON_LOOP_MAX", 10)
    monkeypatch.setattr(fetcher, "RECORDS_ON_LOOP_MAX", -1)
    table = Moving(items(*range(1, 13)), size=4)
    table.after = {2: lambda: table.touch(0)}
    async with serve(table.moving_answer) as url:
        made = source(f"{url}/list", **keys("page_number"))
        await collect(made, resume(made, http, []))
    assert threads
    assert threading.get_ident() not in threads
    identities = [identity for identity in hashed if not identity.startswith(b"int:")]  # else a key
    assert len(identities) == sum(len(page) for page in table.served)


async def test_a_page_that_stays_costs_one_request_more_only_where_news_are(http: SharedHttp) -> None:
    """A border between two pages without news cannot hide any: it is not looked at again."""
    table = Table(items(*range(1, 21)))
    async with serve(table.answer) as url:
        made = source(f"{url}/list", **keys("page_number"))
        pages = await collect(made, resume(made, http, []))
        table.asked.clear()
        table.items += [{"id": 20, "t": 21}]
        assert ids(await collect(made, resume(made, http, pages))) == [20]
    assert len(table.asked) == 11 + 1 + 2


@pytest.mark.parametrize("way", POSITIONAL)
async def test_what_was_left_to_the_next_round_is_not_passed_by_where_the_order_ends(
    http: SharedHttp, way: str
) -> None:
    """A newer record came in at the front; then one with a higher value stands in the middle: both are read again."""
    table = Moving(items(*range(10)), is_newest_first=True)

    def disorder() -> None:
        table.items[-1]["t"] = 1000

    table.after = {1: lambda: table.add(10), 3: disorder}
    async with serve(table.moving_answer) as url:
        made = source(f"{url}/list", **keys(way))
        context = resume(made, http, [])
        pages = await collect(made, context, rounds=3)
    assert table.versions <= set(versions(pages))
