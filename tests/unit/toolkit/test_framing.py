r"""Endless bodies that are not what they are said to be; ``tests/properties/streams`` has those that are."""

from __future__ import annotations

import pytest

from fetchers.sdk import Fatal
from fetchers.toolkit.framing import Frames, LengthFraming


def fed(framing: LengthFraming, chunks: list[bytes]) -> list[Frames]:
    """What comes of these chunks."""
    return [frames for frames in map(framing.feed, chunks) if frames is not None]


def test_a_body_of_carriage_returns_is_refused_before_it_fills_memory() -> None:
    """A length is due, and a line that is no length however it goes on is not waited for."""
    framing = LengthFraming(1000)
    with pytest.raises(Fatal, match="has no length where one is due"):
        fed(framing, [b"\r"] * 20)


@pytest.mark.parametrize("chunks", [[b"\r" * 20 + b"\n"], [b"\r" * 14, b"\n"], [b"1" * 13 + b"\n"]])
def test_a_line_that_is_too_long_for_a_length_is_refused_however_it_comes(chunks: list[bytes]) -> None:
    """Whole or in parts."""
    framing = LengthFraming(1000)
    with pytest.raises(Fatal, match="has no length where one is due"):
        fed(framing, chunks)


def test_a_length_may_have_all_its_digits_and_a_carriage_return() -> None:
    """Divided anywhere."""
    framing = LengthFraming(1000)
    (frames,) = fed(framing, [bytes([byte]) for byte in b"000000000002\r\n{}"])
    assert frames.payloads.to_pylist() == [b"{}"]
