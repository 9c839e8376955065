"""Splitting bytes into lines, against the plain definition of a line."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.file.lines import LineAssembler, Lines, LineTooLongError, split_lines

CONTENT = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\r", b"\0", b"a", b"\xff", "é\u2028\u0085🙂".encode(), b"abc" * 9])
).map(b"".join)


def reference(content: bytes) -> tuple[list[bytes], list[int], bytes]:
    """Finished lines, their positions, and the unfinished rest; one byte at a time."""
    *finished, rest = content.split(b"\n")
    positions, position = [], 0
    for line in finished:
        positions.append(position)
        position += len(line) + 1
    return [line.removesuffix(b"\r") for line in finished], positions, rest


def cut(content: bytes, borders: list[int]) -> list[bytes]:
    """The content in blocks."""
    edges = sorted({0, len(content), *(border % (len(content) + 1) for border in borders)})
    return [content[begin:end] for begin, end in pairwise(edges)]


def payloads(lines: list[Lines]) -> list[bytes | None]:
    """All lines of several stretches."""
    return [payload for stretch in lines for payload in stretch.payloads.to_pylist()]


def test_a_line_over_the_limit_is_refused_after_the_lines_before_it() -> None:
    """What can be delivered is; then the error names the byte where the long line begins."""
    assembler = LineAssembler(position=10, line_bytes_max=4)
    lines = assembler.feed(b"a\nbcde\r\nefghi\nj\n")
    assert lines is not None
    assert lines.payloads.to_pylist() == [b"a", b"bcde"]
    assert assembler.position == lines.end == 18
    with pytest.raises(LineTooLongError) as raised:
        assembler.feed(b"")
    assert raised.value.position == 18


def test_an_unfinished_line_over_the_limit_is_refused_before_its_end_comes() -> None:
    """A line without end costs no more memory than the limit."""
    assembler = LineAssembler(position=0, line_bytes_max=4)
    assert assembler.feed(b"abcd") is None
    assert assembler.feed(b"\r") is None
    with pytest.raises(LineTooLongError):
        assembler.feed(b"x")


def test_a_finished_line_is_handed_over_though_the_next_is_already_too_long() -> None:
    """The error comes with the next call."""
    assembler = LineAssembler(position=0, line_bytes_max=4)
    lines = assembler.feed(b"ab\ncdefghi")
    assert lines is not None
    assert lines.payloads.to_pylist() == [b"ab"]
    with pytest.raises(LineTooLongError) as raised:
        assembler.feed(b"")
    assert raised.value.position == 3


@given(content=CONTENT)
def test_splits_as_the_definition_does(content: bytes) -> None:
    """Any bytes: the same lines at the same positions, and nothing but line ends is missing."""
    data = content + b"\n"
    lines = split_lines(data, 7)
    expected, positions, _rest = reference(data)
    assert lines.payloads.to_pylist() == expected
    assert lines.positions.to_pylist() == [7 + position for position in positions]
    assert lines.end == 7 + len(data)


@given(content=CONTENT, borders=st.lists(st.integers(min_value=0, max_value=10_000), max_size=20))
def test_block_borders_do_not_matter(content: bytes, borders: list[int]) -> None:
    """Cut anywhere, in a character or inside a line end, the lines are those of the whole."""
    assembler = LineAssembler(position=0, line_bytes_max=1_000_000)
    found = [lines for block in cut(content, borders) if (lines := assembler.feed(block)) is not None]
    expected, positions, rest = reference(content)
    assert payloads(found) == expected
    assert [position for lines in found for position in lines.positions.to_pylist()] == positions
    assert assembler.unfinished == rest
    assert assembler.position == len(content) - len(rest)
    assert assembler.end == len(content)
    assert b"".join(lines.raw for lines in found) + rest == content


def test_the_last_line_can_be_given_up() -> None:
    """It keeps every byte it has, a lone carriage return too; there is none to give up twice."""
    assembler = LineAssembler(position=5, line_bytes_max=100)
    assembler.feed(b"ab")
    assembler.feed(b"c\r")
    lines = assembler.give_up_unfinished()
    assert lines is not None
    assert (lines.payloads.to_pylist(), lines.positions.to_pylist(), lines.end) == ([b"abc\r"], [5], 9)
    assert assembler.give_up_unfinished() is None
