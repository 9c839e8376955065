"""Java's regular expressions over names of topics, carried out by Python's.

Names of topics are ASCII, which is what makes this exact: a class of characters, however Java writes it, is a set of
ASCII characters and is written out as one. What cannot be said in Python is refused, never guessed.
"""

from __future__ import annotations

import re
import string
from functools import lru_cache

_ASCII = frozenset(map(chr, range(128)))
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SETS = {"d": frozenset(string.digits), "w": _WORD, "s": frozenset(" \t\n\x0b\f\r"), "h": frozenset(" \t")}
_SETS |= {name.upper(): _ASCII - members for name, members in _SETS.items()}
_LETTERS = frozenset(string.ascii_letters)
_PROPERTIES = {
    **dict.fromkeys(("Lower", "Ll", "IsLl", "javaLowerCase", "IsLowercase"), frozenset(string.ascii_lowercase)),
    **dict.fromkeys(("Upper", "Lu", "IsLu", "javaUpperCase", "IsUppercase"), frozenset(string.ascii_uppercase)),
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic"), _LETTERS),
    **dict.fromkeys(("Digit", "N", "Nd", "IsN", "IsNd", "IsDigit"), _SETS["d"]),
    "Alnum": _LETTERS | _SETS["d"],
    "Punct": frozenset(string.punctuation),
    "Space": _SETS["s"],
    "ASCII": _ASCII,
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_GROUP = re.compile(r"\(\?(?:[:=!>]|<[=!]|(?P<flags>[ims]+)(?P<scope>[:)])|<(?P<name>[A-Za-z][A-Za-z0-9]*)>)")
_PROPERTY = re.compile(r"(?P<sign>[pP])(?:\{(?P<long>\w+)\}|(?P<short>[A-Z]))")
_CODE = re.compile(r"x(?P<short>[0-9a-fA-F]{2})|u(?P<long>[0-9a-fA-F]{4})")
_REFERENCE = re.compile(r"k<(?P<name>\w+)>|(?P<number>[1-9])(?![0-9])")


class JavaPatternError(ValueError):
    """The expression is wrong, or says what only Java can carry out."""


@lru_cache(maxsize=256)
def java_pattern(text: str) -> re.Pattern[str]:
    """The expression, compiled; raises JavaPatternError."""
    try:
        return re.compile(_Translation(text).whole(), re.ASCII)
    except (re.error, RecursionError, OverflowError) as error:
        raise JavaPatternError(str(error)) from error


class _Translation:
    """Walks the text once."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def whole(self) -> str:
        parts = []
        while self.at < len(self.text):
            parts.append(self._part())
        return "".join(parts)

    def _part(self) -> str:
        letter = self.text[self.at]
        if letter == "\\":
            return self._escape()
        if letter == "[":
            return self._bracket()
        if self.text.startswith("(?", self.at):
            return self._group()
        self.at += 1
        return letter

    def _group(self) -> str:
        found = self._match(_GROUP, "a group")
        if found["flags"] and found["scope"] == ")" and found.start():
            raise JavaPatternError(f"{found[0]} may only stand at the beginning")
        return f"(?P<{found['name']}>" if found["name"] else found[0]

    def _escape(self) -> str:
        self.at += 1
        letter = self.text[self.at : self.at + 1]
        if letter == "Q":
            return re.escape(self._quoted())
        if letter and letter in "bBA":
            self.at += 1
            return f"\\{letter}"
        if letter in {"z", "Z"}:
            self.at += 1
            return r"\Z"
        reference = _REFERENCE.match(self.text, self.at)
        if reference:
            self.at = reference.end()
            return f"(?P={reference['name']})" if reference["name"] else f"(?:\\{reference['number']})"
        members = self._members()
        return _written(members) if len(members) != 1 else re.escape(next(iter(members)))

    def _quoted(self) -> str:
        quoted, _, _ = self.text[self.at + 1 :].partition("\\E")
        self.at = min(len(self.text), self.at + 1 + len(quoted) + 2)
        return quoted

    def _members(self) -> frozenset[str]:
        """Characters that an escape (its backslash behind us) stands for."""
        letter = self.text[self.at : self.at + 1]
        for pattern in (_PROPERTY, _CODE):
            found = pattern.match(self.text, self.at)
            if found:
                self.at = found.end()
                return (
                    _property(found) if pattern is _PROPERTY else _ascii(chr(int(found["short"] or found["long"], 16)))
                )
        self.at += 1
        if letter in _SETS:
            return _SETS[letter]
        if letter in _CONTROLS:
            return frozenset(_CONTROLS[letter])
        if not letter or letter.isalnum():
            raise JavaPatternError(f"\\{letter} cannot be carried out")
        return _ascii(letter)

    def _bracket(self) -> str:
        is_negated = self.text.startswith("[^", self.at)
        members = self._class()
        # Kept as a negation, so that (?i) negates what it should.
        return _written(_ASCII - members, is_negated=True) if is_negated else _written(members)

    def _class(self) -> frozenset[str]:
        self.at += 1
        is_negated = self.text.startswith("^", self.at)
        self.at += is_negated
        members: frozenset[str] = frozenset()
        is_empty = True
        while not self.text.startswith("]", self.at) or is_empty:
            if self.at >= len(self.text):
                raise JavaPatternError("a class of characters is not closed")
            if self.text.startswith("&&", self.at):
                members &= self._rest_of_class()
                break
            members |= self._item()
            is_empty = False
        self.at += 1
        return _ASCII - members if is_negated else members

    def _rest_of_class(self) -> frozenset[str]:
        """What stands after `&&`, up to the bracket that closes the class."""
        if "(?i" in self.text:
            raise JavaPatternError("&& together with (?i) cannot be carried out")
        self.at += 2
        members: frozenset[str] = frozenset()
        while not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                raise JavaPatternError("a class of characters is not closed")
            if self.text.startswith("&&", self.at):
                return members & self._rest_of_class()
            members |= self._item()
        return members

    def _item(self) -> frozenset[str]:
        if self.text.startswith("[", self.at):
            return self._class()
        if self.text.startswith("\\Q", self.at):
            self.at += 1
            return frozenset(self._quoted())
        first = self._single()
        is_range = self.text.startswith("-", self.at) and self.text[self.at + 1 : self.at + 2] not in {"]", "[", ""}
        if not is_range or len(first) != 1:
            return first
        self.at += 1
        last = self._single()
        low, high = next(iter(first)), max(last, default="")
        if len(last) != 1 or low > high:
            raise JavaPatternError("a range of characters has no end, or one before its start")
        return frozenset(map(chr, range(ord(low), ord(high) + 1)))

    def _single(self) -> frozenset[str]:
        letter = self.text[self.at]
        self.at += 1
        return self._members() if letter == "\\" else _ascii(letter)

    def _match(self, pattern: re.Pattern[str], what: str) -> re.Match[str]:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise JavaPatternError(f"{what} at {self.at} cannot be carried out")
        self.at = found.end()
        return found


def _property(found: re.Match[str]) -> frozenset[str]:
    members = _PROPERTIES.get(found["long"] or found["short"])
    if members is None:
        raise JavaPatternError(f"\\{found[0]} cannot be carried out")
    return _ASCII - members if found["sign"] == "P" else members


def _ascii(letter: str) -> frozenset[str]:
    """Characters beyond ASCII are in no name of a topic: they may stand there and match nothing."""
    return frozenset(letter) & _ASCII


def _written(members: frozenset[str], *, is_negated: bool = False) -> str:
    if not members:
        return r"[\x00-\x7f]" if is_negated else "(?!)"
    codes = "".join(rf"\x{ord(letter):02x}" for letter in sorted(members))
    return f"[^{codes}]" if is_negated else f"[{codes}]"
