"""What the header of an answer tells of its body."""

from __future__ import annotations

from collections.abc import Mapping

_PAGE_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_PROVING_ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})
"""They end with a check sum, and the decoder insists on it."""


def is_page(headers: Mapping[str, str]) -> bool:
    """Whether the body is a web page."""
    return headers.get("Content-Type", "").partition(";")[0].strip().lower() in _PAGE_TYPES


def is_framed(headers: Mapping[str, str]) -> bool:
    """Whether the body proves where it ends (RFC 9112 §6.3); else it ends where the connection does."""
    last_coding = headers.get("Transfer-Encoding", "").rpartition(",")[2].strip().lower()
    if last_coding == "chunked" or "Content-Length" in headers:
        return True
    return headers.get("Content-Encoding", "").strip().lower() in _PROVING_ENCODINGS
