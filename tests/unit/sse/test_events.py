"""Server-sent events, by the examples and rules of the WHATWG's HTML Standard §9.2."""

from __future__ import annotations

import pytest

from fetchers.sse.events import EventParser

LIMIT = 1000


def parsed(*chunks: bytes, limit: int = LIMIT) -> list[tuple[bytes, bytes, bytes]]:
    """Data, type and last id of each event."""
    parser = EventParser(event_bytes_max=limit)
    return [(event.data, event.type, event.last_id) for chunk in chunks for event in parser.feed(chunk)]


def test_several_data_lines_are_one_text() -> None:
    """The standard's first example."""
    assert parsed(b"data: YHOO\ndata: +2\ndata: 10\n\n") == [(b"YHOO\n+2\n10", b"", b"")]


def test_ids_last_until_another_is_given() -> None:
    """The standard's second example: comment, id, no id, a space kept, and a last event that is not finished."""
    stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n"
    assert parsed(stream) == [(b"first event", b"", b"1"), (b"second event", b"", b"")]


def test_empty_data_is_an_event_and_no_data_is_none() -> None:
    """The standard's third example: an empty text, a line feed, and what is not dispatched at the end."""
    assert [data for data, _, _ in parsed(b"data\n\ndata\ndata\n\ndata:")] == [b"", b"\n"]


def test_one_space_after_the_colon_is_dropped() -> None:
    """The standard's fourth example: both events are the same."""
    assert [data for data, _, _ in parsed(b"data:test\n\ndata: test\n\n")] == [b"test", b"test"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_is_one(end: bytes) -> None:
    """LF, CR and CRLF."""
    assert parsed(end.join([b"event: add", b"data: 1", b"id: 7", b"", b"data: 2", b"", b""])) == [
        (b"1", b"add", b"7"),
        (b"2", b"", b"7"),
    ]


def test_a_line_end_that_is_divided_is_one() -> None:
    """CR at the end of one chunk, LF at the beginning of the next; a lone LF after it is a line of its own."""
    assert parsed(b"data: 1\r", b"\ndata: 2\r", b"\n\r", b"\n") == [(b"1\n2", b"", b"")]
    assert parsed(b"data: 1\r", b"\n\n") == [(b"1", b"", b"")]


def test_a_byte_order_mark_is_skipped_once_and_only_at_the_beginning() -> None:
    """Also where it comes byte by byte."""
    mark = b"\xef\xbb\xbf"
    assert [data for data, _, _ in parsed(mark + b"data: 1\n\n" + mark + b"data: 2\n\n")] == [b"1"]
    assert [data for data, _, _ in parsed(b"\xef", b"\xbb", b"\xbf", b"data: 1\n\n")] == [b"1"]
    assert [data for data, _, _ in parsed(b"\xef\xbb", b"data: 1\n\ndata: 2\n\n")] == [b"2"]


def test_an_id_with_a_nul_is_ignored() -> None:
    """The one before it holds."""
    assert parsed(b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n") == [(b"a", b"", b"1"), (b"b", b"", b"1")]


def test_an_id_without_data_holds_for_what_follows() -> None:
    """Though it is no event."""
    parser = EventParser(event_bytes_max=LIMIT)
    assert parser.feed(b"id: 9\n\n") == []
    assert parser.last_id == b"9"
    (event,) = parser.feed(b"data: x\n\n")
    assert event.last_id == b"9"


def test_retry_is_digits_alone() -> None:
    """Anything else is ignored, and a number without end does no harm."""
    parser = EventParser(event_bytes_max=LIMIT)
    parser.feed(b"retry: 2500\nretry: 1.5\nretry: -1\nretry\nretry: \xd9\xa3\n")
    assert parser.retry_ms == 2500
    parser.feed(b"retry: " + b"9" * 900 + b"\n")
    assert parser.retry_ms == 999_999_999


def test_names_of_fields_are_exact() -> None:
    """Unknown ones, other cases and blanks before them are ignored; a type lasts for one event."""
    assert parsed(b" data: 0\nDATA: 1\nfoo: 2\ndatas: 3\nevent: t\ndata: 4\n\ndata: 5\n\n") == [
        (b"4", b"t", b""),
        (b"5", b"", b""),
    ]


def test_what_is_no_utf8_stays_as_it_is() -> None:
    """The conversion judges it; a replaced character would hide it."""
    assert parsed(b"data: \xff\xfe\n\n") == [(b"\xff\xfe", b"", b"")]


@pytest.mark.parametrize("chunk_bytes", [1, 7, 10_000])
def test_an_event_over_the_limit_keeps_its_first_bytes(chunk_bytes: int) -> None:
    """Whether in one line or in many, and however it comes; the next one is whole again."""
    stream = b"data: " + b"x" * 5000 + b"\n\n" + b"data: yyyy\n" * 100 + b"\ndata: z\n\n"
    parser = EventParser(event_bytes_max=20)
    events = []
    for start in range(0, len(stream), chunk_bytes):
        events += parser.feed(stream[start : start + chunk_bytes])
        assert sum(map(len, parser._parts)) <= 100 or chunk_bytes > 100
    assert [(event.data, event.size) for event in events] == [
        (b"x" * 20, 5000),
        (b"yyyy\nyyyy\nyyyy\nyyyy", 499),
        (b"z", 1),
    ]


def test_what_has_begun_is_known() -> None:
    """For a source that will not send it again."""
    parser = EventParser(event_bytes_max=LIMIT)
    parser.feed(b"data: 1\n\ndata: a\ndata: b")
    assert parser.unfinished == b"a\nb"
