"""Java's regular expressions over names of topics, carried out by RE2 in time linear to the name.

Whoever may write a connector's config writes the expression, and an engine that tries one way after the other (Java's,
Python's) may take years over thirty characters. RE2 (https://github.com/google/re2/wiki/Syntax) keeps all ways at once.
It has no look-around, no back references and no possessive quantifiers: an expression with one of them is refused.

Names of topics are ASCII, which is what makes the rest exact: a class of characters, however Java writes it, is a set
of ASCII characters and is written out as one. What cannot be said is refused, never guessed.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

import re2

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
_GROUP = re.compile(r"\(\?(?::|(?P<flags>[ims]+)[:)]|<(?P<name>[A-Za-z][A-Za-z0-9]*)>)")
_PROPERTY = re.compile(r"(?P<sign>[pP])(?:\{(?P<long>\w+)\}|(?P<short>[A-Z]))")
_CODE = re.compile(r"x(?P<short>[0-9a-fA-F]{2})|u(?P<long>[0-9a-fA-F]{4})")
_COUNT = re.compile(r"\{\d{1,9}(?:,\d{0,9})?\}")
_NOT_LINEAR = re.compile(r"\(\?(?:[=!>]|<[=!])|\\(?:k<|[1-9])|[*+?}]\+")
"""Where an expression that cannot be carried out has look-around, a reference, or a possessive quantifier."""

_LACKING = "look-around, references to groups and possessive quantifiers cannot be had in linear time"

CHARACTERS_MAX = 4096
"""Length of one expression, in characters."""
STEPS_MAX = 1024
"""RE2's instructions for one expression: each character of a name costs so many steps at most."""


class JavaPatternError(ValueError):
    """The expression is wrong, or says what cannot be carried out in linear time."""


class JavaPattern:
    """A compiled expression, to be asked about names."""

    def __init__(self, text: str) -> None:
        """Raises JavaPatternError."""
        if len(text) > CHARACTERS_MAX:
            raise JavaPatternError(f"it is longer than {CHARACTERS_MAX} characters")
        self._compiled = _compiled(_Translation(text).whole(), text)
        self.groups: int = self._compiled.groups
        """How many groups it has."""
        self.groupindex: Mapping[str, int] = self._compiled.groupindex
        """Numbers of its groups by their names."""

    def fullmatch(self, name: str) -> JavaMatch | None:
        """As Java's `matches`: the whole name, or nothing."""
        return self._compiled.fullmatch(name) if name.isascii() else None

    def search(self, name: str) -> JavaMatch | None:
        """As Java's `find`: the leftmost place, and there what Java would prefer."""
        return self._compiled.search(name) if name.isascii() else None


class JavaMatch(Protocol):
    """Where an expression matches, as indexes into the text."""

    def __getitem__(self, group: int | str, /) -> str | None:
        """Text of a group; None where it takes no part."""

    def start(self) -> int:
        """Index of the first character."""

    def end(self) -> int:
        """Index after the last matched character."""


@lru_cache(maxsize=256)
def java_pattern(text: str) -> JavaPattern:
    """The expression, compiled; raises JavaPatternError."""
    return JavaPattern(text)


def pattern_doubt(text: str) -> str | None:
    """Why an expression is refused, for a finding; None where it can be carried out."""
    try:
        java_pattern(text)
    except JavaPatternError as error:
        return str(error)
    return None


def _compiled(translated: str, text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(translated, options)
    except re2.error as error:
        raise JavaPatternError(_reason(error, text)) from error
    except UnicodeEncodeError as error:
        raise JavaPatternError("it has half of a surrogate pair, which is no character") from error
    if compiled.programsize > STEPS_MAX:
        raise JavaPatternError(f"it is too large: {compiled.programsize} steps, {STEPS_MAX} are allowed")
    return compiled


def _reason(error: Exception, text: str) -> str:
    """In RE2's words, and with what it lacks."""
    words = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else str(error)
    return f"{words} ({_LACKING})" if _NOT_LINEAR.search(text) else words


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
        if letter == "{":  # which RE2 takes for the character itself where it is no count
            return self._match(_COUNT, "a count")[0]
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
        return f"(?P<{found['name']}>" if found["name"] else found[0]

    def _escape(self) -> str:
        self.at += 1
        letter = self.text[self.at : self.at + 1]
        if letter == "Q":
            return str(re2.escape(self._quoted()))
        if letter and letter in "bBA":
            self.at += 1
            return f"\\{letter}"
        if letter in {"z", "Z"}:
            self.at += 1
            return r"\z"
        members = self._members()
        return _written(members) if len(members) != 1 else str(re2.escape(next(iter(members))))

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
            lacking = f": {_LACKING}" if letter and letter in "k123456789" else ""
            raise JavaPatternError(f"\\{letter} cannot be carried out{lacking}")
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
            lacking = f": {_LACKING}" if _NOT_LINEAR.match(self.text, self.at) else ""
            raise JavaPatternError(f"{what} at {self.at} cannot be carried out{lacking}")
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
        return r"[\x00-\x7f]" if is_negated else r"[^\x00-\x{10ffff}]"
    codes = "".join(rf"\x{ord(letter):02x}" for letter in sorted(members))
    return f"[^{codes}]" if is_negated else f"[{codes}]"
