"""Text of records and sources as a terminal can take it; apart, so that a command need not import others for it."""

from __future__ import annotations

import sys


def printable(text: str) -> str:
    """As standard output can take it: what its character set does not have, and signs of control, are escaped."""
    encoding = sys.stdout.encoding or "utf-8"
    shown = "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)
    return shown.encode(encoding, "backslashreplace").decode(encoding)
