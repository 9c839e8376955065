"""Cuts JSON texts by their brackets alone, where the strict parser refuses the whole for one bad part.

One record with ``NaN``, a lone surrogate or endless brackets must not keep a thousand good ones from passing: the
answer is cut into records here, and the conversion passes its verdict on each. Slow (some MB/s), so only for answers
that need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""May stand before a text in UTF-8, and is no part of it."""
BLANK = b" \t\r\n"
"""What may stand around a JSON value."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s"\[\]{},:]+', re.DOTALL)
_CLOSING = {b"[": b"]", b"{": b"}"}


class UncuttableError(ValueError):
    """The brackets do not match, or something is missing between them: the text is incomplete."""


def elements(text: bytes) -> list[bytes]:
    """The elements of an array, each as it stands in ``text``. Raises UncuttableError."""
    return [text[start:end] for start, end in _values(text, b"[")]


def members(text: bytes) -> dict[str, bytes]:
    """The members of an object; of a name that comes twice the last. Raises UncuttableError."""
    found: dict[str, bytes] = {}
    spans = list(_values(text, b"{"))
    for (name_start, name_end), (start, end) in zip(spans[::2], spans[1::2], strict=True):
        found[_name(text[name_start:name_end])] = text[start:end]
    return found


def at(text: bytes, path: str) -> bytes | None:
    """The value at ``path`` (dots between names); None where there is none."""
    for step in path.split("."):
        if text[:1] != b"{":
            return None
        try:
            found = members(text).get(step)
        except UncuttableError:
            return None
        if found is None:
            return None
        text = found
    return text


def _name(token: bytes) -> str:
    try:
        return msgspec.json.decode(token, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return token.decode("utf-8", "replace")


def _values(text: bytes, opening: bytes) -> Iterator[tuple[int, int]]:
    """Where the values between the outermost brackets stand; for an object names and values by turns."""
    tokens = _tokens(text)
    if next(tokens, (b"", 0, 0))[0] != opening:
        message = f"does not begin with {opening.decode()}"
        raise UncuttableError(message)
    separators = (b",",) if opening == b"[" else (b":", b",")
    count = 0
    while True:
        token, start, end = _expect(tokens)
        if token == _CLOSING[opening] and count == 0:
            break
        if token in _CLOSING:
            end = _end_of(tokens, token)
        elif len(token) == 1 and token in b"]}:,":
            message = f"a value is missing at byte {start}"
            raise UncuttableError(message)
        yield start, end
        token, start, _ = _expect(tokens)
        wanted = separators[count % len(separators)]
        count += 1
        if token == _CLOSING[opening] and wanted == b",":
            break
        if token != wanted:
            message = f"something is missing at byte {start}"
            raise UncuttableError(message)
    if next(tokens, None) is not None:
        message = "goes on after its end"
        raise UncuttableError(message)


def _end_of(tokens: Iterator[tuple[bytes, int, int]], opening: bytes) -> int:
    """Where the bracket opened by ``opening`` is closed again."""
    open_brackets = [_CLOSING[opening]]
    end = 0
    while open_brackets:
        token, start, end = _expect(tokens)
        if token in _CLOSING:
            open_brackets.append(_CLOSING[token])
        elif token in {b"]", b"}"} and token != open_brackets.pop():
            message = f"brackets do not match at byte {start}"
            raise UncuttableError(message)
    return end


def _expect(tokens: Iterator[tuple[bytes, int, int]]) -> tuple[bytes, int, int]:
    token = next(tokens, None)
    if token is None:
        message = "ends too early"
        raise UncuttableError(message)
    return token


def _tokens(text: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Brackets, separators, strings and bare words; a stray quotation mark means that a string has no end."""
    at_byte = 0
    for match in _TOKEN.finditer(text):
        if text[at_byte : match.start()].strip():
            break
        yield match.group(), match.start(), match.end()
        at_byte = match.end()
    if text[at_byte:].strip():
        message = f"a string has no end after byte {at_byte}"
        raise UncuttableError(message)
