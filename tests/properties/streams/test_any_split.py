"""However a body is divided into chunks, the same messages come out of it."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fetchers.sse.events import EventParser, ServerEvent
from fetchers.toolkit.framing import Framing, LengthFraming, LineFraming

cuts = st.lists(st.integers(0, 400), max_size=12)
sse_pieces = st.lists(
    st.sampled_from(
        [
            b"data:",
            b"data: ",
            b"data",
            b"event: a",
            b"id: 1",
            b"id: \x00",
            b"id",
            b": c",
            b"\n",
            b"\r",
            b"\r\n",
            b"x",
            b"retry: 5",
            b"\xef\xbb\xbf",
            b"\xe2\x80\xa8",
            b"\n\n",
            b"y" * 30,
        ]
    ),
    max_size=40,
).map(b"".join)
line_pieces = st.lists(
    st.sampled_from([b"{}", b'{"a":1}', b"\n", b"\r\n", b"\r", b" ", b"\xe2\x80\xa8", b"z" * 15, b"\n\n"]), max_size=40
).map(b"".join)
messages = st.lists(st.binary(max_size=30).map(lambda each: each.rstrip(b"\r\n")), max_size=12)


def divided(body: bytes, at: list[int]) -> list[bytes]:
    """The body in chunks, some of them empty."""
    places = sorted({0, len(body), *(min(place, len(body)) for place in at)})
    return [body[start:end] for start, end in pairwise(places)]


def events_of(chunks: list[bytes]) -> tuple[list[ServerEvent], bytes, int | None, bytes]:
    """Everything that the parser says."""
    parser = EventParser(event_bytes_max=20)
    found = [event for chunk in chunks for event in parser.feed(chunk)]
    return found, parser.last_id, parser.retry_ms, parser.unfinished[:20]


@given(sse_pieces, cuts)
def test_events_are_the_same_however_they_come(body: bytes, at: list[int]) -> None:
    """Line ends, marks and characters may be divided, and the limit falls on the same bytes."""
    assert events_of(divided(body, at)) == events_of([body])


def frames_of(framing: Framing, chunks: list[bytes]) -> tuple[list[tuple[bytes, str]], bytes]:
    """Payloads with the reason of their rejection, and what is left."""
    found: list[tuple[bytes, str]] = []
    for chunk in chunks:
        frames = framing.feed(chunk)
        if frames is not None:
            reasons = {rejection.index: rejection.message for rejection in frames.rejections}
            values = enumerate(frames.payloads.to_pylist())
            found += [(value or b"", reasons.get(index, "")) for index, value in values]
    return found, framing.finish()


@given(line_pieces, cuts)
def test_lines_are_the_same_however_they_come(body: bytes, at: list[int]) -> None:
    r"""And they are those of a split by ``\n``: U+2028 and a lone carriage return are no line ends."""
    found, rest = frames_of(LineFraming(20), divided(body, at))
    lines = [line.removesuffix(b"\r") for line in body.split(b"\n")[:-1]]
    expected = [line for line in lines if line]
    assert [payload for payload, _ in found] == [line[:20] for line in expected]
    assert [bool(reason) for _, reason in found] == [len(line) > 20 for line in expected]
    assert body.rpartition(b"\n")[2].rstrip(b"\r\n").startswith(rest)


@given(messages, cuts, st.integers(0, 3))
def test_messages_with_lengths_are_the_same_however_they_come(
    contents: list[bytes], at: list[int], missing: int
) -> None:
    """Keep-alives between them, and the last one cut."""
    whole = b"".join(b"\r\n%d\r\n%b\r\n" % (len(content) + 2, content) for content in contents)
    body = whole[: len(whole) - missing] if missing else whole
    found, rest = frames_of(LengthFraming(20), divided(body, at))
    at_once, rest_at_once = frames_of(LengthFraming(20), [body])
    assert (found, rest[:20]) == (at_once, rest_at_once[:20])
    complete = contents[:-1] if missing and contents else contents
    assert [payload for payload, _ in found] == [content[:20].rstrip(b"\r\n") for content in complete]
