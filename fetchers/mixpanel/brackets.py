"""Whether a JSON object that is never held whole is closed."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PIECE_BYTES = 256 * 1024
"""Looked at in one go; what is cut out of a piece takes several times its size."""
_ESCAPED = re.compile(rb"\\.", re.DOTALL)


@dataclass(slots=True)
class Brackets:
    """Counts the brackets of a text that comes in pieces, those within strings left out."""

    _depth: int = 0
    _is_in_string: bool = False
    _is_escaping: bool = False
    _ends_with_brace: bool = False

    @property
    def are_closed(self) -> bool:
        """Whether a brace came last, and left nothing open; blanks may have followed."""
        return self._depth == 0 and self._ends_with_brace and not self._is_in_string

    def feed(self, data: bytes) -> None:
        """Count the brackets of the next bytes of the text; pieces may be cut anywhere."""
        for start in range(0, len(data), _PIECE_BYTES):
            self._feed(data[start : start + _PIECE_BYTES])

    def _feed(self, piece: bytes) -> None:
        if self._is_escaping:
            piece = b"\\" + piece
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        self._is_escaping = backslashes % 2 == 1
        if self._is_escaping:
            piece = piece[:-1]
        parts = _ESCAPED.sub(b"", piece).split(b'"')
        outside = b'"'.join(parts[self._is_in_string :: 2])
        self._is_in_string ^= len(parts) % 2 == 0
        self._depth += sum(map(outside.count, (b"{", b"["))) - sum(map(outside.count, (b"}", b"]")))
        told = outside.rstrip()
        if told or len(parts) > 1:
            self._ends_with_brace = told.endswith(b"}")
