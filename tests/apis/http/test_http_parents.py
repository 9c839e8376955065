"""``HttpSource`` over a list for each record of another: bounded, resumed list by list, never stuck in the middle."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.http.fetcher import HttpSource
from fetchers.sdk import Fatal, Retriable
from fetchers.sdk.testing import FakeContext, collect
from fetchers.toolkit.http import SharedHttp
from tests.apis.http.paged import ids, source
from tests.contracts.loopback import serve


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


class Boards:
    """Boards, and the cards of each."""

    def __init__(self) -> None:
        self.boards: list[dict[str, Any]] = [{"id": name, "changed": 1} for name in ("a", "b/c", "d")]
        self.cards = {"a": [1, 2], "b/c": [3], "d": [4, 5]}
        self.asked: list[str] = []
        self.refusing: str | None = None
        """Board whose cards are refused."""

    async def answer(self, request: web.Request) -> web.Response:
        """The boards, or the cards of one."""
        if request.path == "/boards":
            return web.json_response(self.boards)
        board = request.query["board"]
        self.asked.append(board)
        if board == self.refusing:
            return web.Response(status=503)
        return web.json_response([{"id": number, "t": number} for number in self.cards.get(board, [])])


def cards_of(url: str, **more: str) -> HttpSource:
    """A source of cards."""
    keys = {
        "http_parent_url": f"{url}/boards",
        "http_query_board": "{parent}",
        "http_offset_field": "t",
        **more,
    }
    return source(f"{url}/cards", **keys)


async def test_each_list_has_an_offset_of_its_own(http: SharedHttp) -> None:
    """An old record of one list is news though another list is further on."""
    boards = Boards()
    async with serve(boards.answer) as url:
        made = cards_of(url)
        context = FakeContext(partition=made.partition(), http=http)
        pages = await collect(made, context, on_page=context.commit)
        assert ids(pages) == [1, 2, 3, 4, 5]
        assert [page.partition for page in pages] == [{"url": f"{url}/cards", "parent": name} for name in boards.cards]
        boards.cards["a"].append(3)
        boards.boards.append({"id": "e"})
        boards.cards["e"] = [1]
        again = cards_of(url)
        rest = await collect(again, FakeContext(offsets=context.offsets, http=http), rounds=2)
    assert [(page.partition or {})["parent"] for page in rest] == ["a", "e"]
    assert ids(rest) == [3, 1]


async def test_a_list_that_is_refused_does_not_keep_others_from_being_read_again(http: SharedHttp) -> None:
    """A retry goes on with the list that was refused, not with the first."""
    boards = Boards()
    boards.refusing = "b/c"
    async with serve(boards.answer) as url:
        made = cards_of(url)
        context = FakeContext(partition=made.partition(), http=http)
        for _ in range(2):
            with pytest.raises(Retriable):
                await collect(made, context, on_page=context.commit)
        assert boards.asked == ["a", "b/c", "b/c"]
        boards.refusing = None
        assert ids(await collect(made, context)) == [3, 4, 5]
        boards.asked.clear()
        await collect(made, context)
        assert boards.asked == ["a", "b/c", "d"]


async def test_a_list_that_changed_within_the_value_of_its_parent_is_read_once_more(http: SharedHttp) -> None:
    """A card comes in after the list was read, and the board says the same as before: it is not passed over."""
    boards = Boards()
    async with serve(boards.answer) as url:
        made = cards_of(url, http_parent_changed_field="changed")
        context = FakeContext(partition=made.partition(), http=http)
        await collect(made, context, on_page=context.commit)
        boards.cards["a"].append(9)
        again = cards_of(url, http_parent_changed_field="changed")
        context = FakeContext(offsets=context.offsets, http=http)
        assert ids(await collect(again, context, rounds=3, on_page=context.commit)) == [9]
        assert boards.asked == ["a", "b/c", "d"] * 2
        boards.boards[1]["changed"] = 2
        boards.asked.clear()
        await collect(again, context, rounds=3)
    assert boards.asked == ["b/c", "b/c"]


@pytest.mark.parametrize(
    ("boards", "words"),
    [([{"id": number} for number in range(4)], r"http\.parent\.count\.max=3"), ([{"name": 1}], "'id'")],
)
async def test_too_many_parents_and_parents_without_an_id_are_told(
    http: SharedHttp, boards: list[dict[str, Any]], words: str
) -> None:
    """Nothing of them is read in part."""
    made_of = Boards()
    made_of.boards = boards
    async with serve(made_of.answer) as url:
        made = cards_of(url, http_parent_count_max="3")
        with pytest.raises(Fatal, match=words):
            await collect(made, FakeContext(partition=made.partition(), http=http))
    assert made_of.asked == []
