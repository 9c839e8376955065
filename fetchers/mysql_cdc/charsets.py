"""Texts of a log: the bytes of a column in the character set that it had."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

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
"""Python's codecs for MySQL's character sets; latin1 is its own (``Latin1``)."""
_WIDE = {"ucs2", "utf16", "utf16le", "utf32"}
"""Sets in which ASCII has other bytes than in ASCII."""
SERVERS_OWN: Final = frozenset(("latin1", "cp866", "eucjpms", "gb18030", "greek", "hebrew", "koi8u", "ujis"))
"""Sets in which both servers have letters that the codec has not, or has another letter for the same bytes: ``①`` of
eucjpms, the bytes FC of cp866 (told by MySQL 8.4 and MariaDB 10.11 for all their bytes)."""
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

    def column(self, values: Any) -> tuple[Any, list[int]]:
        """A binary column as texts, null where bytes are no text; and the places of those."""
        if not self._is_wide:
            raw = values.buffers()[2]
            is_ascii = raw is None or raw.to_pybytes().isascii()
            if is_ascii:
                return values.view(pa.string()), []
            if self._is_utf8:
                try:
                    return values.cast(pa.string()), []
                except pa.ArrowInvalid:
                    pass
        texts: list[str | None] = []
        bad = []
        for at, value in enumerate(values.to_pylist()):
            try:
                texts.append(None if value is None else self.one(value))
            except UnicodeDecodeError:
                texts.append(None)
                bad.append(at)
        return pa.array(texts, pa.string()), bad
