"""What undoes gzip here agrees with Python's own zlib, on whole streams and on broken ones."""

from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.toolkit.http import decoding
from fetchers.toolkit.http.decoding import BrokenBodyError, decoder_for

_TEXTS = st.one_of(
    st.binary(max_size=2_000),
    st.builds(bytes.__mul__, st.binary(min_size=1, max_size=40), st.integers(0, 3_000)),
)
_MEMBERS = st.lists(st.tuples(_TEXTS, st.integers(0, 9)), min_size=1, max_size=3)


@st.composite
def _streams(draw: st.DrawFn) -> bytes:
    """Some members, perhaps padded, cut short or with one bit turned."""
    stream = b"".join(gzip.compress(text, level, mtime=0) for text, level in draw(_MEMBERS))
    stream += b"\0" * draw(st.integers(0, 9))
    stream = stream[: draw(st.one_of(st.none(), st.integers(0, len(stream))))]
    if stream and draw(st.booleans()):
        place, bit = draw(st.integers(0, len(stream) - 1)), draw(st.integers(0, 7))
        stream = stream[:place] + bytes([stream[place] ^ (1 << bit)]) + stream[place + 1 :]
    return stream


def _decoded(stream: bytes, chunk_bytes: int) -> tuple[bytes, bool]:
    """All that came out, and whether the end was believed."""
    decoder, text = decoder_for("gzip", is_empty=False), b""
    try:
        for start in range(0, len(stream), chunk_bytes):
            for piece in decoder.feed(stream[start : start + chunk_bytes]):
                assert len(piece) <= decoding.PIECE_BYTES_MAX
                text += piece
        decoder.finish()
    except BrokenBodyError:
        return text, False
    return text, True


@given(_streams(), st.sampled_from([1, 7, 100, 100_000]), st.sampled_from([1, 100, 5_000, 1_048_576]))
def test_agrees_with_zlib(stream: bytes, chunk_bytes: int, piece_bytes: int) -> None:
    """Same bytes, same verdict on the end; a turned bit or a missing trailer is never a whole body."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "PIECE_BYTES_MAX", piece_bytes)
        ours = _decoded(stream, chunk_bytes)
        patch.setattr(decoding, "zlib_ng", zlib)
        theirs = _decoded(stream, chunk_bytes)
    assert ours == theirs
