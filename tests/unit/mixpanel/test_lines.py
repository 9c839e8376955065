"""Bodies cut into lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fetchers.mixpanel.lines import KEPT_BYTES, LINES_MAX, LineCutter, Lines, UnfinishedLineError
from fetchers.sdk import Retriable

LIMIT = 4096


def cut(chunks: Iterable[bytes], *, line_bytes_max: int = LIMIT, block_bytes: int = 64) -> list[Lines]:
    """Every record of a body that comes in these chunks and ends cleanly."""
    cutter = LineCutter(line_bytes_max, block_bytes=block_bytes)
    blocks = [lines for chunk in chunks for lines in cutter.feed(chunk)]
    return [*blocks, *cutter.finish()]


def records(blocks: Iterable[Lines]) -> list[tuple[int, bytes | None]]:
    """Number and bytes of each record."""
    return [
        (int(number), payload)
        for lines in blocks
        for number, payload in zip(lines.numbers, lines.payloads.to_pylist(), strict=True)
    ]


def pieces(body: bytes, sizes: list[int]) -> Iterator[bytes]:
    """A body in chunks of these sizes, over and over."""
    start = turn = 0
    while start < len(body):
        size = sizes[turn % len(sizes)]
        yield body[start : start + size]
        start += size
        turn += 1


LINE = st.one_of(
    st.sampled_from([b"", b"\r", b"{}", b'{"a":1}\r', "\u2028 \u2029 \u0085".encode(), b"terminated early", b"\xff"]),
    st.binary(max_size=90).map(lambda line: line.replace(b"\n", b"").replace(b"<", b"")),
)


@settings(deadline=None)  # a busy machine is no failure
@given(body_lines=st.lists(LINE, max_size=60), sizes=st.lists(st.integers(1, 200), min_size=1, max_size=6))
@example(body_lines=[b"{}", *[b""] * 50, b"{}"], sizes=[1])
@example(body_lines=[b"x" * 300, b"", b"y" * 300], sizes=[64])
def test_cutting_is_splitting_on_the_line_feed(body_lines: list[bytes], sizes: list[int]) -> None:
    """However a body is chunked, its records are what lies between line feeds, blank lines left out, numbered."""
    body = b"".join(line + b"\n" for line in [*body_lines, b'{"last":true}'])
    expected = [(number, line) for number, line in enumerate(body.split(b"\n"), 1) if line not in {b"", b"\r"}]
    assert records(cut(pieces(body, sizes))) == expected


@settings(deadline=None)  # a busy machine is no failure
@given(sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=5), size=st.integers(LIMIT - 2, 3 * LIMIT))
def test_a_line_beyond_the_limit_is_marked_however_it_is_chunked(sizes: list[int], size: int) -> None:
    """Its neighbours are whole, its number is right, and whether it is too large depends on its size alone."""
    body = b'{"a":1}\n' + b"x" * size + b'\n{"b":2}\n'
    blocks = cut(pieces(body, sizes))
    marked = [lines.payloads[rejection.index].as_py() for lines in blocks for rejection in lines.rejections]
    assert [number for number, _ in records(blocks)] == [1, 2, 3]
    assert records(blocks)[0][1] == b'{"a":1}'
    assert records(blocks)[2][1] == b'{"b":2}'
    assert marked == ([b"x" * LIMIT] if size > LIMIT else [])
    if marked:
        reasons = [rejection for lines in blocks for rejection in lines.rejections]
        assert reasons[0].reason == "too_large"
        assert f"{size} bytes" in reasons[0].message


def test_a_line_without_end_does_not_fill_the_memory() -> None:
    """Of gigabytes without a line feed only the kept head is held."""
    cutter = LineCutter(8 * KEPT_BYTES)
    chunk = b"x" * KEPT_BYTES
    held = []
    for _ in range(64):
        assert list(cutter.feed(chunk)) == []
        held.append(sum(map(len, cutter._parts)))
    assert max(held) <= 10 * KEPT_BYTES
    blocks = list(cutter.feed(b"end\n"))
    assert [len(lines.payloads[0].as_py()) for lines in blocks] == [KEPT_BYTES]
    assert f"{64 * KEPT_BYTES + 3} bytes" in blocks[0].rejections[0].message


def test_blank_lines_without_end_are_not_held() -> None:
    """A body of nothing but line feeds makes no record and holds no memory."""
    cutter = LineCutter(LIMIT)
    for _ in range(100):
        assert list(cutter.feed(b"\n" * 100_000)) == []
    assert list(cutter.finish()) == []


def test_a_flood_of_blank_lines_after_a_record_is_refused() -> None:
    """The record before it cannot be judged, and is not held for ever."""
    cutter = LineCutter(LIMIT, block_bytes=64)
    assert list(cutter.feed(b'{"a":1}\n')) == []
    with pytest.raises(Retriable, match="blank lines"):
        [list(cutter.feed(b"\n" * 1000)) for _ in range(100)]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n\n"])
@pytest.mark.parametrize("before", [b"", b'{"a":1}\n', b'{"a":1}\n' * 1000])
def test_terminated_early_is_no_record(before: bytes, end: bytes) -> None:
    """However the words end, they are a failure, and never handed over."""
    cutter = LineCutter(LIMIT, block_bytes=64)
    found = []
    for chunk in pieces(before + b"terminated early" + end, [50]):
        found += records(cutter.feed(chunk))
    with pytest.raises(Retriable, match="terminated early"):
        list(cutter.finish())
    assert all(payload == b'{"a":1}' for _, payload in found)


def test_half_a_line_at_the_end_is_no_record() -> None:
    """A last line without end that is no JSON may be half a record."""
    with pytest.raises(UnfinishedLineError, match="line 2"):
        cut([b'{"a":1}\n{"b":'])


def test_a_whole_line_without_end_is_a_record() -> None:
    """The export puts line feeds between lines, so the last one may have none."""
    assert records(cut([b'{"a":1}\n{"b":2}'])) == [(1, b'{"a":1}'), (2, b'{"b":2}')]


def test_a_bad_line_with_an_end_is_a_record() -> None:
    """It is whole as it is, and conversion judges it."""
    assert records(cut([b'{"a":1}\n{"b":\n'])) == [(1, b'{"a":1}'), (2, b'{"b":')]


@pytest.mark.parametrize("odd", [b'{"n":NaN}', b'{"s":"\xff\t"}', b'{"n":' + b"7" * 5000 + b"}", b'{"s":"\\ud800"}'])
def test_an_odd_line_without_end_is_a_record(odd: bytes) -> None:
    """It is whole, and conversion judges it; the day must not wait for ever."""
    assert records(cut([odd], line_bytes_max=9000)) == [(1, odd)]


def test_a_line_beyond_the_limit_without_end_is_no_record() -> None:
    """Nobody can tell whether it is whole, and what followed it would be lost."""
    with pytest.raises(UnfinishedLineError, match="line 2"):
        cut([b"{}\n", b'{"b":"', b"x" * 3 * LIMIT])


@pytest.mark.parametrize("sizes", [[1], [LIMIT], [9 * LIMIT]])
@pytest.mark.parametrize("end", [b"}}", b"} } \r"])
def test_a_whole_line_beyond_the_limit_without_end_is_rejected_by_itself(sizes: list[int], end: bytes) -> None:
    """Its brackets say that it is whole; the day must not wait for ever."""
    body = b'{}\n{"b":{"c":"' + b"x" * 3 * LIMIT + b'"' + end
    blocks = cut(pieces(body, sizes))
    assert [number for number, _ in records(blocks)] == [1, 2]
    assert [rejection.reason for lines in blocks for rejection in lines.rejections] == ["too_large"]


@pytest.mark.parametrize("end", [b"}", b'}}"', b"}}\nterminated early", b"}}terminated early", b'},"d":{}'])
def test_what_only_looks_whole_beyond_the_limit_is_no_record(end: bytes) -> None:
    """A brace within the record, or words after it, are no end of it."""
    with pytest.raises(Retriable, match=r"line 2|terminated early"):
        cut(pieces(b'{}\n{"b":{"c":"' + b"x" * 3 * LIMIT + b'"' + end, [64]))


@pytest.mark.parametrize("page", [b"<!DOCTYPE html>\n", b"\xef\xbb\xbf<html>", b"\r\n\n  <?xml version='1.0'?>\n"])
@pytest.mark.parametrize("sizes", [[1], [LIMIT]])
def test_a_web_page_is_no_record(page: bytes, sizes: list[int]) -> None:
    """What a login wall says in place of the export would pass for bad lines, and the day for read."""
    cutter = LineCutter(LIMIT, block_bytes=1)
    with pytest.raises(Retriable, match="web page"):
        assert not [list(cutter.feed(chunk)) for chunk in pieces(page, sizes)]


def test_blocks_have_a_limit_of_lines() -> None:
    """Tiny lines do not make enormous pages."""
    blocks = cut([b"{}\n" * (3 * LINES_MAX)], block_bytes=1024)
    assert max(map(len, blocks)) == LINES_MAX
    assert sum(map(len, blocks)) == 3 * LINES_MAX
