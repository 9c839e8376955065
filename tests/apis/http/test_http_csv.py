"""``HttpSource`` and CSV with bad rows: each row once, the good ones as records, the bad ones with their reason."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchers.catalog import shared_http
from fetchers.sdk import Page
from fetchers.sdk.testing import collect
from tests.apis.http.paged import resume, source
from tests.contracts.loopback import serve

WAYS = {
    "none": {},
    "page_number": {"http_pagination_type": "page_number"},
    "offset": {"http_pagination_type": "offset", "http_pagination_limit": "2"},
    "link": {"http_pagination_type": "link"},
}


class Rows:
    """A table that grows, in pages of two rows or as a whole."""

    def __init__(self, *rows: bytes) -> None:
        self.rows = list(rows)
        self.size = 2

    async def answer(self, request: web.Request) -> web.Response:
        """A page, or everything where none is asked for."""
        if request.path == "/whole":
            return web.Response(body=b"\n".join([b"id,t", *self.rows]))
        query = request.query
        start = (int(query["page"]) - 1) * self.size if "page" in query else int(query.get("offset", "0"))
        end = start + self.size
        links = {"Link": f'<{request.path}?offset={end}>; rel="next"'} if end < len(self.rows) else {}
        return web.Response(body=b"\n".join([b"id,t", *self.rows[start:end]]), headers=links)


def handed_over(pages: Sequence[Page]) -> tuple[list[str], list[bytes]]:
    """Ids of the good rows, bytes of the bad ones."""
    good, bad = [], []
    for page in pages:
        rejected = {rejection.index for rejection in page.rejections}
        for index, payload in enumerate(page.values()):
            assert payload is not None
            if index in rejected:
                bad.append(payload)
            else:
                good.append(json.loads(payload)["id"])
    return good, bad


@pytest.mark.parametrize("way", WAYS)
async def test_bad_rows_do_not_stop_the_others(way: str) -> None:
    """Good and bad rows come once each: in this round, after a stop at any page, and in no later round."""
    table = Rows(b"0,1", b"ragged", b"2,2", b"3,\xff", b"4,2", b"5,2")
    async with shared_http() as http, serve(table.answer) as url:
        keys = {"http_format": "csv", "http_offset_field": "t", **WAYS[way]}
        made = source(f"{url}/{'whole' if way == 'none' else 'pages'}", **keys)
        pages = await collect(made, resume(made, http, []), rounds=3)
        assert handed_over(pages) == (["0", "2", "4", "5"], [b"ragged", b"3,\xff"])
        assert [rejection.reason for page in pages for rejection in page.rejections] == [
            "malformed_json",
            "invalid_utf8",
        ]
        for cut in range(len(pages)):
            rest = await collect(made, resume(made, http, pages[:cut]), rounds=3)
            assert handed_over([*pages[:cut], *rest]) == handed_over(pages)
        table.rows += [b"6,3,", b"7,3"]
        assert handed_over(await collect(made, resume(made, http, pages), rounds=3)) == (["7"], [b"6,3,"])


async def test_a_bad_row_moves_no_watermark() -> None:
    """Bad rows alone leave the mark where it is, and good rows that join them later are new."""
    table = Rows(b"oops", b"oops again")
    async with shared_http() as http, serve(table.answer) as url:
        made = source(f"{url}/whole", http_format="csv", http_offset_field="t", http_offset_key="id")
        pages = await collect(made, resume(made, http, []), rounds=2)
        assert handed_over(pages) == ([], [b"oops", b"oops again"])
        assert pages[-1].offset["t"] is None
        assert pages[-1].told_offset == {"t": None}
        table.rows += [b"1,1"]
        pages += await collect(made, resume(made, http, pages), rounds=2)
        assert handed_over(pages) == (["1"], [b"oops", b"oops again"])
        assert pages[-1].offset["t"] == "1"


async def test_without_an_offset_field_the_bad_rows_come_with_the_others() -> None:
    """A snapshot is read again each time, its bad rows too."""
    table = Rows(b"1,1", b"oops")
    async with shared_http() as http, serve(table.answer) as url:
        made = source(f"{url}/whole", http_format="csv")
        pages = await collect(made, resume(made, http, []), rounds=2)
    assert handed_over(pages) == (["1", "1"], [b"oops", b"oops"])


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.lists(st.sampled_from(["same", "later", "ragged", "bytes"]), max_size=6), min_size=1, max_size=4),
    st.sampled_from([*WAYS]),
    st.data(),
)
async def test_every_row_once(arrivals: list[list[str]], way: str, data: st.DataObject) -> None:
    """A table that grows by good and bad rows, read with a kill after any page: each row exactly once."""
    table = Rows()
    stamp = 0
    delivered: list[Page] = []
    async with shared_http() as http, serve(table.answer) as url:
        keys = {"http_format": "csv", "http_offset_field": "t", **WAYS[way]}
        made = source(f"{url}/{'whole' if way == 'none' else 'pages'}", **keys)
        for kinds in arrivals:
            for kind in kinds:
                number = len(table.rows)
                stamp += kind == "later"
                bad = {"ragged": b"%d,x,y" % number, "bytes": b"%d,\xff" % number}
                table.rows.append(bad.get(kind, b"%d,%d" % (number, stamp)))
            pages = await collect(made, resume(made, http, delivered[-1:]))
            delivered += pages[: data.draw(st.integers(0, len(pages)))]
        delivered += await collect(made, resume(made, http, delivered[-1:]), rounds=2)
    good, bad_rows = handed_over(delivered)
    numbers = [int(text) for text in good] + [int(row.split(b",")[0]) for row in bad_rows]
    assert sorted(numbers) == list(range(len(table.rows)))
