"""Content encodings, undone piece by piece, with a verdict on the end.

The client library's own decompression hides whether a gzip stream had its trailer, so headrace decodes by itself:
a body that stops early must never look like a whole one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from zlib_ng import zlib_ng

PIECE_BYTES_MAX = 1024 * 1024
"""Decoded bytes handed over at once: a small body that unpacks to gigabytes never sits in memory whole."""
_GZIP_WINDOW = 16 + zlib_ng.MAX_WBITS


class BrokenBodyError(Exception):
    """The body is not what its header says, or ends too early."""


class UnknownEncodingError(Exception):
    """A content encoding that was not asked for and cannot be read."""


class Decoder(Protocol):
    """Undoes one content encoding of a body that comes in pieces."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces of what came in. Raises BrokenBodyError."""

    def finish(self) -> None:
        """Hear that the body has ended. Raises BrokenBodyError when it cannot have."""


class PlainDecoder:
    """The decoder of a body without any content encoding."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Return the bytes as they came."""
        yield data

    def finish(self) -> None:
        """Accept any end: only the frame of the body tells whether it is whole."""


class ZlibDecoder:
    """gzip with any number of members (RFC 1952), or deflate (RFC 9110 §8.4.1: zlib format)."""

    def __init__(self, *, window_bits: int, name: str) -> None:
        self._window_bits = window_bits
        self._name = name
        self._member = zlib_ng.decompressobj(window_bits)
        self._is_between_members = False
        self._has_begun = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces, each at most ``PIECE_BYTES_MAX``."""
        while data:
            if self._is_between_members:
                data = data.lstrip(b"\0")  # gzip allows zero padding after a member
                if not data:
                    return
                self._member = zlib_ng.decompressobj(self._window_bits)
                self._is_between_members = False
            self._has_begun = True
            try:
                piece = self._member.decompress(data, PIECE_BYTES_MAX)
            except zlib_ng.error as error:  # type: ignore[misc] # the stub takes the class for an instance
                message = f"the body is not the {self._name} its header promises"
                raise BrokenBodyError(message) from error
            self._is_between_members = self._member.eof
            data = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if piece:
                yield piece

    def finish(self) -> None:
        """Accept only the end of a member."""
        if not self._has_begun:
            message = f"the header promises {self._name}, and no body came"
            raise BrokenBodyError(message)
        if not self._is_between_members:
            message = f"the {self._name} stream ends without its trailer"
            raise BrokenBodyError(message)


def decoder_for(encoding: str, *, is_empty: bool) -> Decoder:
    """The decoder of a ``Content-Encoding``; ``is_empty`` when the header says outright that there is no body."""
    name = encoding.strip().lower()
    if is_empty or name in {"", "identity"}:
        return PlainDecoder()
    if name in {"gzip", "x-gzip"}:
        return ZlibDecoder(window_bits=_GZIP_WINDOW, name="gzip")
    if name == "deflate":
        return ZlibDecoder(window_bits=zlib_ng.MAX_WBITS, name="deflate")
    message = f"content encoding {name[:40]!r} was not asked for and cannot be read"
    raise UnknownEncodingError(message)
