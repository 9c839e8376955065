"""Text of records and sources as a terminal can take it; apart, so that a command need not import others for it.

Signs of control are escaped (U+0080 to U+009F too): a source, or whoever writes into a topic, must not command the
terminal of who looks at it. What the character set of standard output does not have is escaped as well.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable


def printable(text: str) -> str:
    """For people; ends of lines stay, everything else is escaped as Python escapes it."""
    return _escaped(text, lambda letter: letter.encode("unicode_escape").decode())


def printable_json(text: str) -> str:
    """A JSON text that is the same for who parses it."""
    return _escaped(text, lambda letter: f"\\u{ord(letter):04x}" if letter <= "\uffff" else json.dumps(letter)[1:-1])


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    encoding = sys.stdout.encoding or "utf-8"
    if text.replace("\n", "").isprintable() and _can_be_written(text, encoding):
        return text
    return "".join(
        letter if letter == "\n" or (letter.isprintable() and _can_be_written(letter, encoding)) else escape(letter)
        for letter in text
    )


def _can_be_written(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True
