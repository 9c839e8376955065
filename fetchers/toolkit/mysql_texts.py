"""Texts of MySQL and MariaDB: the bytes of a column in the character set that it has.

For the log, snapshots of it, and ``JdbcSource``. A server that converts a text itself sends a question mark, or
U+FFFD, for a letter that it knows no Unicode for. So a SELECT shows the bytes, and they are decoded here (`shown`); or
it shows the server's own text where nothing of it was replaced.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import pyarrow as pa

from fetchers.toolkit.texts import decoded, told_bytes

_UTF8, _ASCII = "utf-8", "ascii"
_CODECS: Final[Mapping[str, str]] = {
    "utf8mb4": _UTF8, "utf8mb3": _UTF8, "utf8": _UTF8, "ascii": _ASCII, "latin2": "iso8859-2", "cp1250": "cp1250",
    "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "greek": "iso8859-7", "hebrew": "iso8859-8",
    "latin5": "iso8859-9", "latin7": "iso8859-13", "koi8r": "koi8-r", "koi8u": "koi8-u", "cp850": "cp850",
    "cp852": "cp852", "cp866": "cp866", "macroman": "mac-roman", "macce": "mac-latin2", "ucs2": "utf-16-be",
    "utf16": "utf-16-be", "utf16le": "utf-16-le", "utf32": "utf-32-be", "gbk": "gbk", "gb2312": "gb2312",
    "gb18030": "gb18030", "big5": "big5", "sjis": "shift_jis", "cp932": "cp932", "ujis": "euc_jp",
    "eucjpms": "euc_jp", "euckr": "cp949", "tis620": "tis-620",
}  # fmt: skip
"""Python's codecs for MySQL's character sets; latin1 is read by a table."""
_WIDE = {"ucs2", "utf16", "utf16le", "utf32"}
"""Sets in which ASCII has other bytes than in ASCII."""
_SERVERS_OWN: Final = frozenset(("cp866", "eucjpms", "gb18030", "greek", "hebrew", "koi8u", "ujis"))
"""Sets in which both servers have letters that the codec has not, or has another letter for the same bytes: ``①`` of
eucjpms, the bytes FC of cp866 (told by MySQL 8.4 and MariaDB 10.11 for all their bytes)."""
_BYTES = "CONVERT({} USING binary)"
"""MariaDB has NULL for a CAST of a text that is larger than ``max_allowed_packet``, and no word of it but a warning."""
_CHECKED = (
    "CASE WHEN {0} IS NULL THEN NULL WHEN LENGTH(REPLACE({1}, '?', '')) - LENGTH({1}) = "
    "LENGTH(REPLACE({2}, '?', '')) - LENGTH({2}) THEN {1} ELSE COALESCE(CONCAT(x'FF', {2}), x'FF') END"
).format("{0}", _BYTES.format("CONVERT({0} USING utf8mb4)"), _BYTES.format("{0}"))
"""The server's text as UTF-8, if it has as many question marks as the bytes have; else the bytes behind an FF, which
no UTF-8 has. Of a text that is too large for the server to look at (``max_allowed_packet``), the FF alone. In none of
these sets is ``?`` a part of another letter."""
_REPLACED = b"\xff"
TOLD_AS_THEY_ARE: Final = frozenset(("", "utf8mb4", "utf8mb3", "utf8", "latin1"))
"""Sets in which each letter has a Unicode of its own."""
_KEY_OF_BYTES = re.compile("\0((?:[0-9A-F]{2})*)")
_ETEN = dict(zip(range(0xF9D6, 0xF9DD), "碁銹裏墻恒粧嫺", strict=True))
"""Letters of big5 that both servers have, and Python's codec has not."""
_LATIN1 = [bytes([code]).decode("cp1252", "replace").replace("\ufffd", chr(code)) for code in range(256)]
"""MySQL's latin1 is cp1252, with the five bytes that it does not use as the control characters of their number
(manual, "West European Character Sets")."""


def _eten(error: UnicodeError) -> tuple[str, int]:
    """What the codec of big5 does with bytes that it does not know."""
    assert isinstance(error, UnicodeDecodeError)  # noqa: S101 - nothing is encoded
    code = int.from_bytes(error.object[error.start : error.start + 2], "big")
    if code not in _ETEN:
        raise error
    return _ETEN[code], error.start + 2


codecs.register_error("headrace.eten", _eten)


class UnknownCharset(Exception):
    """A character set that has no codec here."""


class Texts:
    """Decodes the texts of one character set."""

    expression = _BYTES
    """What a SELECT shows of a column, for which ``{}`` or ``{0}`` stands, so that it is decoded here."""

    def __init__(self, charset: str) -> None:
        """``charset``: as the server names it; raises ``UnknownCharset``."""
        if charset != "latin1" and charset not in _CODECS:
            raise UnknownCharset(f"the character set {charset} cannot be read here: change the column's to utf8mb4")
        self.charset = charset
        self._codec = None if charset == "latin1" else codecs.lookup(_CODECS[charset])
        self._errors = "headrace.eten" if charset == "big5" else "strict"
        self._is_utf8 = charset.startswith("utf8")
        self._is_wide = charset in _WIDE

    def one(self, text: bytes) -> str:
        """Raises ``UnicodeDecodeError`` for bytes that are no text."""
        if self._codec is None:
            return "".join([_LATIN1[code] for code in text])
        return self._codec.decode(text, self._errors)[0]

    def column(self, values: Any) -> tuple[Any, dict[int, str]]:
        """A binary column as texts, null where bytes are no text; and what is the matter there, by place."""
        if not self._is_wide:
            raw = values.buffers()[2]
            is_ascii = raw is None or raw.to_pybytes().isascii()
            if is_ascii:
                return values.view(pa.string()), {}
            if self._is_utf8:
                try:
                    return values.cast(pa.string()), {}
                except pa.ArrowInvalid:
                    pass
        return decoded(values, self.one, self._told)

    def _told(self, value: bytes) -> str:
        return f"the bytes {told_bytes(value)} are no text in {self.charset}"


class _ServersTexts(Texts):
    """The server's own text, in a set of which it knows more than any codec here."""

    expression = _CHECKED

    def __init__(self, charset: str) -> None:
        super().__init__("utf8mb4")
        self.charset = charset

    def _told(self, value: bytes) -> str:
        """Where the server has nothing for some of the bytes."""
        own = value.removeprefix(_REPLACED)
        if value == _REPLACED:
            return f"a text in {self.charset} is larger than the server converts: raise its max_allowed_packet"
        return super()._told(own)


@cache
def shown(charset: str) -> Texts | None:
    """How a SELECT shows the texts of a column; None: as the server sends them, because nothing is replaced in them.

    ``charset``: the column's; empty for what is no text of a column, such as a number.
    """
    if charset in {"", "latin1"}:
        return None
    return Texts(charset) if charset in _CODECS and charset not in _SERVERS_OWN else _ServersTexts(charset)


def key_text(column: str, charset: str) -> str:
    """SQL of a text that stands for one value of the column and for no other, from which ``key_literal`` makes it.

    It is the value's own text where the server makes the value of that again; else it is ``key_of_bytes``. Several
    letters of cp932 have one Unicode, and some have none: behind the text of such a key rows would be lost or repeated.
    """
    text, own = f"CONVERT({column} USING utf8mb4)", _BYTES.format(column)
    digits = f"CONCAT(_utf8mb4 x'00', HEX({column}))"
    if charset in _WIDE:  # a server may make half of a surrogate pair of what is no UTF-8
        return digits
    again, letters = _BYTES.format(f"CONVERT({text} USING {charset})"), _BYTES.format(text)
    is_told = f"{again} = {own} AND LEFT({letters}, 1) <> x'00'"
    return f"CASE WHEN {column} IS NULL THEN NULL WHEN {is_told} THEN {text} ELSE {digits} END"


def key_of_bytes(value: bytes) -> str:
    """A text that stands for the value with these bytes: a NUL and their digits."""
    return f"\0{value.hex().upper()}"


def key_literal(text: str, charset: str) -> str:
    """SQL of the value that such a text stands for; any other text, as of an earlier release, is itself the value."""
    match = _KEY_OF_BYTES.fullmatch(text)
    return text_literal(text) if match is None else f"_{charset} x'{match[1]}'"


def text_literal(text: str) -> str:
    """A literal, whatever its letters and the session's settings are."""
    return f"_utf8mb4 x'{text.encode().hex()}'"
