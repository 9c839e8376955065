"""Ways through pages: they go on, they end, they never go in circles or astray."""

from __future__ import annotations

import pytest

from fetchers.sdk import Fatal
from fetchers.toolkit.next_urls import LinkHeader, NextUrl, next_link
from fetchers.toolkit.pagination import (
    CursorInBody,
    OffsetLimit,
    PageAnswer,
    PageGuard,
    PageNumber,
    PageRequest,
    Pagination,
    Place,
    SinglePage,
)

BASE = PageRequest("https://host/list?a=1", {"b": "2"})


def answer(*, body: bytes = b"{}", links: tuple[str, ...] = (), records: int = 1) -> PageAnswer:
    """An answer of the base URL."""
    return PageAnswer("https://host/list?a=1&b=2", body, links, records)


@pytest.mark.parametrize(
    ("way", "place", "query"),
    [
        (SinglePage(), None, {"b": "2"}),
        (PageNumber("p", 0), 0, {"b": "2", "p": "0"}),
        (PageNumber(), None, {"b": "2", "page": "1"}),
        (OffsetLimit(50), 100, {"b": "2", "offset": "100", "limit": "50"}),
        (CursorInBody("c"), None, {"b": "2"}),
        (CursorInBody("c"), "x+/=", {"b": "2", "cursor": "x+/="}),
    ],
)
def test_asks_by_query(way: Pagination, place: Place, query: dict[str, str]) -> None:
    """The place of a page goes into the query, besides what is configured."""
    assert way.request(place, BASE) == PageRequest(BASE.url, query)


@pytest.mark.parametrize(
    ("way", "place", "seen", "following"),
    [
        (SinglePage(), None, answer(), None),
        (PageNumber(), 3, answer(records=1), 4),
        (PageNumber(), 3, answer(records=0), None),
        (OffsetLimit(100), 100, answer(records=37), 137),
        (OffsetLimit(100), 137, answer(records=0), None),
        (CursorInBody("meta.next"), None, answer(body=b'{"meta": {"next": "abc"}}'), "abc"),
        (CursorInBody("n"), 5, answer(body=b'{"n": 6}'), 6),
        (CursorInBody("n"), 5, answer(body=b'{"n": 1700000000.75}'), "1700000000.75"),
        (CursorInBody("n"), 5, answer(body=b'{"n": 0.10000000000000000000000001 }'), "0.10000000000000000000000001"),
        (CursorInBody("n"), 5, answer(body=b'{"n": 1E3}'), "1E3"),
        (CursorInBody("n"), 5, answer(body=b'{"n": 9223372036854775807}'), 2**63 - 1),
        (CursorInBody("n"), 5, answer(body=b'{"n": 9223372036854775808}'), "9223372036854775808"),
        (CursorInBody("n"), 5, answer(body=b'{"n": %d}' % 10**40), str(10**40)),
        (CursorInBody("m.n"), 5, answer(body=b'{"items": [NaN], "m": {"n": 1.50}}'), "1.50"),
        (CursorInBody("n"), 5, answer(body=b'\xef\xbb\xbf{"n": 6}'), 6),
        (CursorInBody("n"), 5, answer(body=b'\xef\xbb\xbf {"items": [NaN], "n": "y"}\n'), "y"),
        (CursorInBody("n"), "x", answer(body=b'{"n": null}'), None),
        (CursorInBody("n"), "x", answer(body=b'{"n": ""}'), None),
        (CursorInBody("n"), "x", answer(body=b'{"n": false}'), None),
        (CursorInBody("n"), "x", answer(body=b'{"n": [ ]}'), None),
        (CursorInBody("n"), "x", answer(body=b"{}"), None),
        (CursorInBody("m.n"), "x", answer(body=b'{"m": null}'), None),
        (CursorInBody("n"), "x", answer(body=b'{"items": [NaN], "n": "y"}'), "y"),
        (NextUrl(path="next"), None, answer(body=b'{"next": "/list?p=2"}'), "https://host/list?p=2"),
        (NextUrl(path="next"), None, answer(body=b'{"next": null}'), None),
        (LinkHeader(), None, answer(links=('<?p=2>; rel="next"',)), "https://host/list?p=2"),
        (LinkHeader(), None, answer(links=('<?p=2>; rel="last"',)), None),
    ],
)
def test_goes_on_and_ends(way: Pagination, place: Place, seen: PageAnswer, following: Place) -> None:
    """The place after an answer, or that there is none. A short page is no end: servers may give less."""
    assert way.following(place, seen) == following


@pytest.mark.parametrize("way", [NextUrl(path="next"), CursorInBody("next")])
@pytest.mark.parametrize("value", ["true", '{"href": "/list?p=2"}', "[2]", '"\\ud800"', "NaN"])
def test_what_names_no_page_is_not_taken_for_the_end(way: Pagination, value: str) -> None:
    """An object where a text is expected is a wrong path; to end there would lose all the other pages silently."""
    with pytest.raises(Fatal, match="'next' by something"):
        way.following(None, answer(body=f'{{"next": {value}}}'.encode()))


@pytest.mark.parametrize("way", [NextUrl(path="next"), LinkHeader()])
@pytest.mark.parametrize(
    "target", ["https://evil/list", "http://host/list", "https://host:8443/list", "file:///etc/passwd", "//evil/x"]
)
def test_does_not_go_astray(way: Pagination, target: str) -> None:
    """A next page on another host, port or scheme is refused: credentials would go there."""
    seen = answer(body=b'{"next": "%s"}' % target.encode(), links=(f"<{target}>; rel=next",))
    with pytest.raises(Fatal, match="another host"):
        way.following(None, seen)
    with pytest.raises(Fatal, match="another host"):
        way.request(target if target[0] != "/" else f"https:{target}", BASE)


def test_a_named_host_is_not_followed_without_encryption() -> None:
    """Credentials go with the pages: from https they go to https alone."""
    with pytest.raises(Fatal, match="another host"):
        NextUrl(hosts=("cdn",)).following(None, answer(body=b'{"next": "http://cdn/2"}'))


def test_allowed_hosts() -> None:
    """A host that is allowed may be followed to."""
    way = NextUrl(("cdn", "files:8443"), path="next")
    for target in ("https://cdn/x", "https://files:8443/x"):
        assert way.following(None, answer(body=b'{"next": "%s"}' % target.encode())) == target


def test_secrets_do_not_get_into_offsets() -> None:
    """A key that the source repeats in its next URL is left out of the place, and sent again from the config."""
    way = NextUrl(secrets=("k3y-value",), path="next")
    place = way.following(None, answer(body=b'{"next": "https://host/list?key=k3y-value&p=2"}'))
    assert place == "https://host/list?p=2"
    asked = way.request(place, PageRequest("https://host/list", {"key": "k3y-value", "p": "1"}))
    assert asked == PageRequest("https://host/list?p=2", {"key": "k3y-value"})


@pytest.mark.parametrize(
    ("values", "target"),
    [
        (['<https://h/?a=1,2;x>; rel="prev", <https://h/2>; title="a, b; c"; rel="last next"'], "https://h/2"),
        (["<a>; rel=prev", "<b>;rel=NEXT"], "b"),
        (["<a>; nextish=1"], None),
        (["rubbish"], None),
        ([], None),
    ],
)
def test_link_headers(values: list[str], target: str | None) -> None:
    """Link fields are read as RFC 8288 has them: several to a field, several relations to a link, any case."""
    assert next_link(values) == target


def test_circles_are_found() -> None:
    """A source that names a page for the second time is stopped, as is one without end."""
    guard = PageGuard(is_counted=False, pages_max=3)
    for place in (None, "a", "b"):
        guard.pass_by(place)
    with pytest.raises(Fatal, match="circle"):
        guard.pass_by("a")
    with pytest.raises(Fatal, match="more than 3 pages"):
        guard.pass_by("c")


def test_a_count_that_leads_nowhere_is_found() -> None:
    """One page twice in a row is a source that does not read the count; once more later, or empty, it may be."""
    guard = PageGuard(is_counted=True)
    for place, records in enumerate(([b"1"], [b"2"], [b"1"], [], [])):
        guard.go_on_from(place, records)
    guard.go_on_from(5, [b"1", b"2"])
    with pytest.raises(Fatal, match="do not go on: at 6"):
        guard.go_on_from(6, [b"1", b"2"])


def test_a_source_that_names_its_places_may_repeat_a_page() -> None:
    """It is asked for what it has named itself, so equal pages are equal records."""
    guard = PageGuard(is_counted=False)
    for place in ("a", "b"):
        guard.go_on_from(place, [b"1"])


def test_a_stored_place_of_another_way_is_said() -> None:
    """After a change of the pagination an old place is not silently taken for page 1."""
    with pytest.raises(Fatal, match="pagination changed"):
        PageNumber().following("abc", answer())
