"""The oracle's reader of JSON: RFC 8259 by recursive descent, sharing no code with the conversion."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from typing import Any

DEPTH_MAX = 500
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SPACE = " \t\n\r"
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = re.compile(r"[0-9a-fA-F]{4}")


class NotValid(Exception):
    """The payload must be rejected."""


@dataclass(frozen=True)
class Literal:
    """A number as written."""

    text: str


class _Reader:
    """One JSON value from text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def document(self) -> Any:
        value = self.value(0)
        self.space()
        if self.at != len(self.text):
            raise NotValid("text after the value")
        return value

    def space(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _SPACE:
            self.at += 1

    def peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def expect(self, token: str) -> None:
        if not self.text.startswith(token, self.at):
            raise NotValid(f"expected {token}")
        self.at += len(token)

    def value(self, depth: int) -> Any:
        self.space()
        first = self.peek()
        if first in {"{", "["} and depth >= DEPTH_MAX:
            raise NotValid("too deep")
        if first == "{":
            return self.object(depth + 1)
        if first == "[":
            return self.array(depth + 1)
        if first == '"':
            return self.string()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if first == word[0]:
                self.expect(word)
                return value
        match = NUMBER.match(self.text, self.at)
        if match is None:
            raise NotValid("no value")
        self.at = match.end()
        return Literal(match.group())

    def object(self, depth: int) -> dict[str, Any]:
        self.expect("{")
        found: dict[str, Any] = {}
        self.space()
        if self.peek() == "}":
            self.at += 1
            return found
        while True:
            self.space()
            key = self.string()
            self.space()
            self.expect(":")
            if key in found:
                raise NotValid("key twice")
            found[key] = self.value(depth)
            self.space()
            if self.peek() != ",":
                self.expect("}")
                return found
            self.at += 1

    def array(self, depth: int) -> list[Any]:
        self.expect("[")
        found: list[Any] = []
        self.space()
        if self.peek() == "]":
            self.at += 1
            return found
        while True:
            found.append(self.value(depth))
            self.space()
            if self.peek() != ",":
                self.expect("]")
                return found
            self.at += 1

    def string(self) -> str:
        self.expect('"')
        units: list[str] = []
        while True:
            letter = self.peek()
            if not letter or ord(letter) < 0x20:
                raise NotValid("string not closed, or a control character in it")
            self.at += 1
            if letter == '"':
                break
            units.append(self.escape() if letter == "\\" else letter)
        try:
            return "".join(units).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise NotValid("lone surrogate") from error

    def escape(self) -> str:
        letter = self.peek()
        self.at += 1
        if letter in _ESCAPES and letter:
            return _ESCAPES[letter]
        match = _HEX.match(self.text, self.at)
        if letter != "u" or match is None:
            raise NotValid("bad escape")
        self.at = match.end()
        return chr(int(match.group(), 16))


def read_json(payload: bytes) -> Any:
    """The payload's value; raises NotValid."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotValid("not UTF-8") from error
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(usual + 3 * DEPTH_MAX)
    try:
        return _Reader(text).document()
    finally:
        sys.setrecursionlimit(usual)
