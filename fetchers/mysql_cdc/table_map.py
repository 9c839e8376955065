"""TABLE_MAP events: which table the rows that follow belong to, and what its columns were when they were logged.

The log describes itself only with ``binlog_row_metadata=FULL``: names, signs, character sets, values of ENUM and SET,
and the primary key come from there, and so are right for every row, whatever DDL came later. Without it a table is
refused. Format: ``Table_map_event`` in MySQL's ``libbinlogevents``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fetchers.mysql_cdc.events import Event, MalformedError

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR = (
    1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13,
)  # fmt: skip
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2, JSON, DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = (
    15, 16, 17, 18, 19, 245, 246, 247, 248, 252, 253, 254, 255,
)  # fmt: skip
BINARY_CHARSET = 63
NAMED_BYTES: Final[Mapping[str, int]] = {"uuid": 16, "inet4": 4, "inet6": 16}
"""MariaDB's types that its log has as ``BINARY``, and how many bytes a value has."""
_METADATA_BYTES: Final = dict.fromkeys((VARCHAR, BIT, DECIMAL, VAR_STRING, STRING, ENUM, SET), 2) | dict.fromkeys(
    (FLOAT, DOUBLE, TIMESTAMP2, DATETIME2, TIME2, JSON, BLOB, GEOMETRY), 1
)
_NUMERIC: Final = {TINY, SHORT, INT24, LONG, LONGLONG, DECIMAL, FLOAT, DOUBLE}
_NUMERIC_IN_MARIADB: Final = _NUMERIC | {YEAR}
"""Types that the log tells the signs of. MariaDB counts YEAR among them, MySQL does not."""
_TEXTUAL: Final = {STRING, VAR_STRING, VARCHAR, BLOB}
_UNKNOWN: Final = {
    140: "a compressed column",
    141: "a compressed column",
    242: "a VECTOR column",
    14: "a DATE of a form that no server logs",
    6: "a column of type NULL",
    0: "a DECIMAL of the form before MySQL 5.0",
}
_SIGNS, _CHARSET_DEFAULT, _CHARSETS, _NAMES, _SET_VALUES, _ENUM_VALUES = 1, 2, 3, 4, 5, 6
_GEOMETRY_TYPES, _KEY, _KEY_WITH_PREFIX, _CHOICE_CHARSET_DEFAULT, _CHOICE_CHARSETS = 7, 8, 9, 10, 11


class NotDescribed(Exception):
    """The log does not say enough of a table, or has a column that cannot be read; the text says what mends it."""


@dataclass(frozen=True)
class Column:
    """One column as the log has it; what its bytes mean follows from this alone."""

    name: str
    type: int
    """The type that the bytes have: ENUM and SET rather than the STRING that carries them."""
    size: int = 0
    """By type: bytes of the length's prefix (texts, BLOB, JSON), bytes (ENUM, SET, BIT), precision (DECIMAL)."""
    scale: int = 0
    """Digits of a fraction (DECIMAL, times), bits (BIT), or the subtype (GEOMETRY)."""
    is_unsigned: bool = False
    charset: int = BINARY_CHARSET
    """The number of a collation."""
    values: tuple[bytes, ...] = ()
    """Of ENUM and SET, in the column's character set."""
    is_nullable: bool = True
    named: str = ""
    """A type of ``NAMED_BYTES``, once the catalogue has said so."""
    told_charset: str = ""
    """Of a text, the character set that the catalogue has told: a snapshot's SELECT has its bytes."""
    told_collation: str = ""
    """Of a text, by whose order a snapshot goes on behind a key."""

    @property
    def may_be_named(self) -> bool:
        """Whether the log has it as it has these types."""
        return self.type == STRING and self.charset == BINARY_CHARSET and self.scale in NAMED_BYTES.values()


@dataclass(frozen=True)
class TableMap:
    """One table in one state of its columns."""

    database: str
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()
    """Columns of the primary key, in its order."""
    trouble: str | None = None
    """Why rows of this table cannot be read; of a table that nobody wants it does not matter."""
    name: str = field(init=False)

    def __post_init__(self) -> None:
        """The name that lists of a config know it by."""
        object.__setattr__(self, "name", f"{self.database}.{self.table}")

    def is_apart(self, other: TableMap) -> bool:
        """Whether their rows are not to be read together; where types are not in the log an ALTER may not show."""
        return self is not other and (self != other or any(column.may_be_named for column in self.columns))


class Cursor:
    """Reads what a body holds from the left; every step past its end is ``MalformedError``."""

    def __init__(self, data: bytes, short: str = "the description of a table is cut short") -> None:
        """``short``: what is told of a step past the end."""
        self.data, self.at, self._short = data, 0, short

    def take(self, count: int) -> bytes:
        """The next bytes."""
        found = self.data[self.at : self.at + count]
        self.at += count
        if len(found) < count:
            raise MalformedError(self._short)
        return found

    def packed(self) -> int:
        """A length-encoded integer."""
        first = self.take(1)[0]
        if first < 0xFB:  # noqa: PLR2004
            return first
        if first in (0xFC, 0xFD, 0xFE):
            return int.from_bytes(self.take({0xFC: 2, 0xFD: 3, 0xFE: 8}[first]), "little")
        raise MalformedError(f"{self._short}: it holds a length that is none")

    @property
    def has_more(self) -> bool:
        """Whether bytes are left."""
        return self.at < len(self.data)


def read_table_map(event: Event, *, is_mariadb: bool) -> TableMap:
    """The table; raises ``MalformedError``."""
    body = Cursor(event.data[event.start : event.end])
    body.take(8)  # number and flags
    database = body.take(body.take(1)[0]).decode("utf-8", "replace")
    body.take(1)
    table = body.take(body.take(1)[0]).decode("utf-8", "replace")
    body.take(1)
    count = body.packed()
    types = body.take(count)
    metadata = Cursor(body.take(body.packed()))
    nullable = body.take((count + 7) // 8)
    found = []
    try:
        for at, kind in enumerate(types):
            is_nullable = bool(nullable[at >> 3] >> (at & 7) & 1)
            found.append({**_layout(kind, metadata), "is_nullable": is_nullable})
        optional = dict(_optional(body))
        key = _describe(found, optional, _NUMERIC_IN_MARIADB if is_mariadb else _NUMERIC)
        columns = tuple(Column(**entry) for entry in found)
    except NotDescribed as trouble:
        return TableMap(database, table, (), trouble=str(trouble))
    return TableMap(database, table, columns, key)


def _layout(kind: int, metadata: Cursor) -> dict[str, Any]:  # noqa: C901, PLR0911 - one line a type
    """Type, size and scale of one column, from what every log says."""
    if kind in _UNKNOWN:
        raise NotDescribed(f"{_UNKNOWN[kind]} (type {kind}) cannot be read: leave its table out, or change it")
    raw = metadata.take(_METADATA_BYTES.get(kind, 0))
    low, high = (*raw, 0, 0)[:2]
    both = low | high << 8
    match kind:
        case _ if kind in (TIMESTAMP, TIME, DATETIME):
            raise NotDescribed(
                "a TIMESTAMP, TIME or DATETIME of the form before MySQL 5.6 cannot be told from its newer forms. "
                "Run: ALTER TABLE … FORCE, with mysql56_temporal_format=ON"
            )
        case _ if kind in (VARCHAR, VAR_STRING):
            return {"type": VARCHAR, "size": 1 if both < 256 else 2, "scale": both}  # noqa: PLR2004
        case _ if kind == STRING and low in (ENUM, SET):
            return {"type": low, "size": high}
        case _ if kind == STRING:
            length = high | (((low & 0x30) ^ 0x30) << 4)
            return {"type": STRING, "size": 1 if length < 256 else 2, "scale": length}  # noqa: PLR2004
        case _ if kind == BIT:
            return {"type": BIT, "size": high + (1 if low else 0), "scale": high * 8 + low}
        case _ if kind == DECIMAL:
            return {"type": DECIMAL, "size": low, "scale": high}
        case _ if kind in (TIMESTAMP2, DATETIME2, TIME2):
            return {"type": kind, "scale": low}
        case _ if kind in (BLOB, JSON, GEOMETRY):
            return {"type": kind, "size": low}
        case _ if kind in (TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, DATE, YEAR):
            return {"type": kind}
    raise NotDescribed(f"a column of the unknown type {kind} cannot be read")


def _optional(body: Cursor) -> Iterator[tuple[int, bytes]]:
    while body.has_more:
        kind = body.take(1)[0]
        yield kind, body.take(body.packed())


def _describe(
    found: list[dict[str, Any]], optional: Mapping[int, bytes], with_signs: Collection[int]
) -> tuple[str, ...]:
    """Add what only a full log says; the primary key."""
    if _NAMES not in optional:
        raise NotDescribed(
            "the log does not name its columns. Run: SET GLOBAL binlog_row_metadata = FULL; changes that were logged "
            "before cannot be read"
        )
    names = list(_texts(Cursor(optional[_NAMES])))
    if len(names) != len(found):
        raise MalformedError(f"a table has {len(found)} columns and {len(names)} names")
    for entry, name in zip(found, names, strict=True):
        entry["name"] = name.decode("utf-8", "replace")
    numeric = [entry for entry in found if entry["type"] in with_signs]
    signs = optional.get(_SIGNS, b"")
    if len(signs) * 8 < len(numeric):
        raise MalformedError("a table has numbers of which the log does not tell the signs")
    for at, entry in enumerate(numeric):
        entry["is_unsigned"] = bool(signs[at >> 3] >> (7 - (at & 7)) & 1)
    textual = [entry for entry in found if entry["type"] in _TEXTUAL]
    _charsets(textual, optional.get(_CHARSET_DEFAULT), optional.get(_CHARSETS))
    choices = [entry for entry in found if entry["type"] in (ENUM, SET)]
    _charsets(choices, optional.get(_CHOICE_CHARSET_DEFAULT), optional.get(_CHOICE_CHARSETS))
    for kind, values in ((SET, optional.get(_SET_VALUES, b"")), (ENUM, optional.get(_ENUM_VALUES, b""))):
        cursor = Cursor(values)
        for entry in found:
            if entry["type"] == kind:
                entry["values"] = tuple(cursor.take(cursor.packed()) for _ in range(cursor.packed()))
    subtypes = Cursor(optional.get(_GEOMETRY_TYPES, b""))
    for entry in (one for one in found if one["type"] == GEOMETRY):
        entry["scale"] = subtypes.packed()
    return tuple(_key(found, optional))


def _key(found: list[dict[str, Any]], optional: Mapping[int, bytes]) -> Iterator[str]:
    is_prefixed = _KEY_WITH_PREFIX in optional
    cursor = Cursor(optional.get(_KEY_WITH_PREFIX if is_prefixed else _KEY, b""))
    while cursor.has_more:
        at = cursor.packed()
        if is_prefixed:
            cursor.packed()
        if at >= len(found):
            raise MalformedError("the key of a table names a column that it has not")
        yield found[at]["name"]


def _texts(cursor: Cursor) -> Iterator[bytes]:
    while cursor.has_more:
        yield cursor.take(cursor.packed())


def _charsets(entries: list[dict[str, Any]], default: bytes | None, each: bytes | None) -> None:
    """Either one for all with exceptions, or one each."""
    if each is not None:
        cursor = Cursor(each)
        for entry in entries:
            entry["charset"] = cursor.packed()
    elif default is not None:
        cursor = Cursor(default)
        usual = cursor.packed()
        for entry in entries:
            entry["charset"] = usual
        while cursor.has_more:
            at = cursor.packed()
            if at >= len(entries):
                raise MalformedError("a character set is given to a column that is not there")
            entries[at]["charset"] = cursor.packed()
