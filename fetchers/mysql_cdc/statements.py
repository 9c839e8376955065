"""Statements of the log, read as far as it takes to know what they do to transactions, and which table they empty.

Lexical rules: MySQL's manual, "Comments" and "Schema Object Names"; MariaDB's knowledge base, "Comment Syntax".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, auto

from fetchers.mysql_cdc.events import AS_ROWS
from fetchers.mysql_cdc.table_map import NotDescribed

_TOKEN = re.compile(
    r"""\s+ | /\*M?!\d* | \*/ | /\*(?!M?!).*?\*/ | --(?=\s|$)[^\n]* | \#[^\n]*  # comments; those with ! are run
    | `(?P<quoted>(?:[^`]|``)+)` | "(?P<ansi>(?:[^"]|"")+)" | (?P<word>[\w$]+) | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


_CHANGING = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD"}
_NOT_CHANGING = {"", "SAVEPOINT", "RELEASE", "ROLLBACK", "XA", "CREATE", "ALTER", "DROP"}
"""First words of all others that a transaction may have: whatever else it logs as a statement has changed rows, by any
word (``WITH … UPDATE``, ``SELECT`` of a function, MariaDB's ``SET STATEMENT … FOR UPDATE``). Tables that are made and
dropped in one are temporary, or get their rows as rows."""
_HEARTBEAT = re.compile(
    r"(?:INSERT\s+INTO|DELETE\s+FROM)\s+`?mysql`?\.`?rds_\w+`?(?:\s*\(|\s+WHERE\s|\s*$)", re.IGNORECASE
)
"""Statements of Amazon's RDS for tables of its own, which it logs so in whatever format."""
_FILLED = re.compile(r"\sSTART\s+TRANSACTION\s*$", re.IGNORECASE)
"""How MySQL 8.0.21 and newer log CREATE TABLE … SELECT, whose rows follow."""
_COMMENTS = re.compile(r"(?:\s+|/\*M?!\d*|\*/|/\*.*?\*/|--[^\n]*(?:\n|$)|#[^\n]*(?:\n|$))*", re.DOTALL)
"""Those with ! are run: their words count."""


def first_words(text: str) -> tuple[str, str]:
    """The first two words behind comments and brackets, in capitals; empty where there are none."""
    at = _COMMENTS.match(text)
    words = text[at.end() if at else 0 :].lstrip("(").upper().split(None, 2)[:2] or [""]
    return words[0].rstrip(";"), words[1] if len(words) > 1 else ""


class Effect(Enum):
    """What a statement does to the transaction that it is in."""

    BEGINS = auto()
    BEGINS_XA = auto()
    COMMITS_XA = auto()
    ROLLS_BACK_XA = auto()
    ENDS = auto()
    NONE = auto()
    """It is no bound, and outside of a transaction it is one by itself, such as DDL."""


_XA = {
    "START": Effect.BEGINS_XA,
    "BEGIN": Effect.BEGINS_XA,
    "END": Effect.NONE,
    "COMMIT": Effect.COMMITS_XA,
    "ROLLBACK": Effect.ROLLS_BACK_XA,
}


def effect_of(text: str, *, has_rows: bool, is_open: bool = False) -> Effect:
    """``has_rows``: of the transaction so far; ``is_open``: whether it is in one.

    Raises ``NotDescribed`` for a change that is told as a statement.
    """
    word, second = first_words(text)
    if word == "BEGIN" or (word == "CREATE" and _FILLED.search(text)):
        return Effect.BEGINS
    if word == "XA" and second in _XA:
        return _XA[second]
    if word == "ROLLBACK" and has_rows:
        raise NotDescribed(
            "a transaction has changed tables of engines that cannot take it back, and was then rolled back: the "
            "log does not say what remains of it. Set the offset behind it, and read its tables anew"
        )
    if word == "COMMIT" or (word == "ROLLBACK" and second != "TO"):
        return Effect.ENDS
    is_change = word in _CHANGING or (is_open and word not in _NOT_CHANGING)
    if is_change and not _HEARTBEAT.match(text):
        raise NotDescribed(f"a change is logged as its statement ({word}), not as rows. {AS_ROWS}")
    return Effect.NONE


def names_in(text: str) -> set[str] | None:
    """All words and names of a statement in small letters; None where it is in a character set that is not read."""
    return None if "\ufffd" in text else {word.lower() for word, _ in _tokens(text)}


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """Words, names and signs, and whether each is a quoted name."""
    for found in _TOKEN.finditer(text):
        if (name := found["quoted"]) is not None:
            yield name.replace("``", "`"), True
        elif (name := found["ansi"]) is not None:
            yield name.replace('""', '"'), True
        elif (word := found["word"] or found["other"]) is not None:
            yield word, False


def emptied_table(text: str, database: str) -> tuple[str, str] | None:
    """Database and name of the table of a TRUNCATE; None: it is another statement. ``database``: the session's."""
    tokens = _tokens(text)
    first, is_quoted = next(tokens, ("", False))
    if is_quoted or first.upper() != "TRUNCATE":
        return None
    name, is_quoted = next(tokens, ("", False))
    if not is_quoted and name.upper() == "TABLE":
        name, is_quoted = next(tokens, ("", False))
    if next(tokens, ("", False)) != (".", False):
        return database, name
    return name, next(tokens, ("", False))[0]
