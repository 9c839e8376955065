"""What ``JdbcSink`` asks of a database, one class for each; all calls are made from one thread of the sink."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import Enum, auto
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fetchers.sdk import Fatal, Retriable
from service.sinks.calendar import Calendar
from service.sinks.jdbc.rows import FieldColumn, Rows

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY_LENGTH_MAX = 255
"""Of texts and bytes in columns of a key."""
_EXACT_IN_DOUBLE = 2**53
_EXACT_IN_REAL = 2**24
_WHOLE_END = 2**63
_MICROS_OF_A_DAY = 86_400_000_000
_NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*", re.ASCII)
_WITH_DAY, _WITH_TIME = r"[0-9]+-[0-9]+-[0-9]+[ T]", r"[0-9][ T].*[1-9]"
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}


class RowsRefused(Exception):
    """A statement failed for what its rows hold: one of them will never be taken."""


class TargetChanged(Retriable):
    """A table or column that was there is not, or the other way round: to be looked at anew."""


class Family(Enum):
    """What a column's type can hold, as far as databases change values without a word."""

    EXACT = auto()
    """Numbers with ``digits`` behind the point, 0 for whole ones."""
    DOUBLE = auto()
    REAL = auto()
    TEXT = auto()
    BINARY = auto()
    TIME = auto()
    """Times and timestamps with ``digits`` of the second."""
    DATE = auto()
    OTHER = auto()


NUMBERS = frozenset({Family.EXACT, Family.DOUBLE, Family.REAL})


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of a table that is written to."""

    name: str
    kind: str
    """The database's word for its type."""
    family: Family = Family.OTHER
    digits: int | None = None
    """See ``Family``; None: any number."""
    length_max: int | None = None
    """Of a text in characters, of bytes in bytes."""
    takes_null: bool = True
    is_needed: bool = False
    """Whether a row without it is refused: it takes no null and has no default."""
    takes_nan: bool = True
    reads_texts: bool = False
    """Whether the database reads texts as values of the type, and takes one that does not fit for another value."""
    holds_any_text: bool = False
    """Whether a text that is no number stays what it is in a column of numbers."""
    size_bytes: int | None = None
    """Of bytes, where fewer are filled up."""


@dataclass(frozen=True, slots=True)
class Target:
    """A table as it is."""

    name: str
    """Quoted."""
    columns: Mapping[str, TargetColumn]
    unique: tuple[frozenset[str], ...] = ()
    """Columns of each unique index, where the database may take one for another."""
    alike: frozenset[str] = frozenset()
    """Of those the ones that may be the same in rows to which they are not given: with a constant default, generated,
    or no column at all but the beginning of one, or an expression."""
    engine: str = ""
    """What keeps the table, where it has no transactions: what is written there is never undone."""

    def column(self, name: str) -> TargetColumn | None:
        """By name, in any case if one column only is written so."""
        found = self.columns.get(name)
        if found is not None:
            return found
        alike = [column for other, column in self.columns.items() if other.lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None


class Database(Protocol):
    """One connection. Errors are Retriable or Fatal, or RowsRefused for what rows hold."""

    locking: str
    """What a SELECT ends with that keeps its rows for the transaction."""
    calendar: Calendar
    long_text_type: str
    """Type of a text of any length."""

    @property
    def text_key_type(self) -> str:
        """Type of a text of up to 255 characters that is part of a key, compared byte by byte."""

    def connect(self) -> None:
        """Connect, unless that was done."""

    def close(self) -> None:
        """Let go of the connection."""

    def cancel(self) -> None:
        """End the statement that runs; from any thread."""

    def run(self, sql: str) -> None:
        """One statement."""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Of a SELECT."""

    def quoted(self, name: str) -> str:
        """A name as SQL."""

    def literal(self, text: str) -> str:
        """A text as SQL, whatever is in it."""

    def folded(self, name: str) -> str:
        """What the database makes of a plain name without quotes."""

    def target(self, name: str) -> Target | None:
        """The table of a quoted name; None where there is none."""

    def type_of(self, column: FieldColumn, *, is_key: bool) -> str:
        """The type of a new column."""

    def default_of(self, value: Any, *, is_added: bool) -> str | None:
        """An Arrow array of one value, no text with a zero in it, as the default of a new column; None: it has none.

        ``is_added``: the table is there already.
        """

    def begin(self) -> None:
        """Begin a transaction; one whose worker says nothing for a while is ended by the server, if there is one."""

    def commit(self) -> None:
        """Commit it."""

    def prepare(self, rows: Rows, target: Target) -> None:
        """Whatever is to be done before the transaction in which these rows are written."""

    def insert(self, rows: Rows, target: Target, *, mode: str) -> None:
        """Write rows by ``insert.mode``; for ``upsert`` and ``update`` no key is there twice."""

    def delete(self, rows: Rows, target: Target) -> None:
        """Delete the rows of these keys."""


def table_name(database: Database, text: str, *, is_folded: bool) -> str:
    """``schema.name`` or a name, quoted."""
    parts = [part for part in text.split(".", 1) if part]
    if not parts:
        raise Fatal("table.name.format makes an empty name of a table")
    return ".".join(database.quoted(name_of(database, part, is_folded=is_folded)) for part in parts)


def name_of(database: Database, name: str, *, is_folded: bool) -> str:
    """A name as the database has it; ``is_folded``: as if it stood in SQL without quotes."""
    return database.folded(name) if is_folded and _PLAIN_NAME.fullmatch(name) else name


def columns_sql(database: Database, names: Sequence[str]) -> str:
    """Names of columns with commas between."""
    return ", ".join(database.quoted(name) for name in names)


def targets_of(rows: Rows, target: Target) -> list[TargetColumn]:
    """The columns that rows go to, in their order; raises Fatal."""
    found = [target.column(column.name) for column in rows.columns]
    return [column for column in found if column is not None]


def create_sql(database: Database, name: str, rows: Rows) -> str:
    """The statement that makes a table for rows."""
    lines = []
    for is_key, columns in ((True, rows.keys), (False, rows.values)):
        for column in columns:
            default = _default_sql(database, column, is_key=is_key, is_added=False)
            ending = " NOT NULL" if is_key or not (column.is_optional or default) else ""
            ending = f"{default}{ending}"
            lines.append(f"{database.quoted(column.name)} {database.type_of(column, is_key=is_key)}{ending}")
    if rows.keys:
        lines.append(f"PRIMARY KEY ({columns_sql(database, [column.name for column in rows.keys])})")
    return f"CREATE TABLE {name} ({', '.join(lines)})"


def add_sql(database: Database, name: str, column: FieldColumn) -> str:
    """The statement that adds a column."""
    kind = database.type_of(column, is_key=False)
    ending = _default_sql(database, column, is_key=False, is_added=True) or " NULL"
    return f"ALTER TABLE {name} ADD {database.quoted(column.name)} {kind}{ending}"


def _default_sql(database: Database, column: FieldColumn, *, is_key: bool, is_added: bool) -> str:
    """``DEFAULT`` with the schema's default, or nothing.

    As Confluent's dialects write it, which leave out ``NOT NULL`` then; but they put texts between quotes as they are.
    """
    value = column.default
    if value is None or column.is_json or value.null_count:
        return ""
    is_outside = database.calendar.outside(value)
    length = _length(value)
    if (is_outside is not None and is_outside.any()) or (
        length is not None and is_key and length[0].as_py() > _KEY_LENGTH_MAX
    ):
        return ""
    if pa.types.is_string(value.type) and "\0" in value[0].as_py():
        return ""  # some databases hold no such text, and the others end a statement there
    found = database.default_of(value, is_added=is_added)
    return "" if found is None else f" DEFAULT {found}"


def lost(values: Any, column: TargetColumn, calendar: Calendar) -> tuple[npt.NDArray[np.bool_], str]:
    """Which values the column cannot hold as they are, and why; databases would refuse some, and change others."""
    mask, reason = _changed(values, column)
    unfit = np.zeros(len(values), dtype=bool) if mask is None else _known(mask)
    if pa.types.is_floating(values.type) and not column.takes_nan:
        is_odd = _known(pc.invert(pc.is_finite(values)))
        unfit, reason = (unfit | is_odd), (reason if unfit.any() else "takes neither NaN nor infinity")
    is_outside = calendar.outside(values)
    if is_outside is not None and is_outside.any():
        unfit, reason = (unfit | is_outside), (reason if unfit.any() else "cannot hold a date or time so far away")
    if not column.takes_null and values.null_count:
        is_null = _known(values.is_null())
        unfit, reason = (unfit | is_null), (reason if unfit.any() else "takes no null")
    return unfit, f"column {column.name} ({column.kind}) {reason}"


def _known(mask: Any) -> npt.NDArray[np.bool_]:
    filled: Any = pc.fill_null(mask, False)  # noqa: FBT003 - a scalar
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=bool)


def _misread(values: Any, column: TargetColumn) -> tuple[Any, str] | None:
    """What is taken for something else than it is, where values of its type may be; None where they may not."""
    kind, family = values.type, column.family
    if column.reads_texts and (pa.types.is_string(kind) or (pa.types.is_decimal(kind) and family is Family.OTHER)):
        return _changed_texts(values.cast(pa.string()), column)
    if column.size_bytes is not None and pa.types.is_binary(kind):
        is_other: Any = pc.not_equal(pc.binary_length(values), pa.scalar(column.size_bytes, pa.int32()))
        return is_other, f"takes {column.size_bytes} bytes, and would fill up fewer"
    if column.kind.startswith("year") and family is Family.EXACT and pa.types.is_integer(kind):
        is_short: Any = pc.and_(pc.greater(values, pa.scalar(0, kind)), pc.less(values, pa.scalar(100, kind)))
        return is_short, "takes it for a year of another century"
    return None


def _changed(values: Any, column: TargetColumn) -> tuple[Any, str]:  # noqa: C901, PLR0911 - one line a type
    kind, family, digits = values.type, column.family, column.digits
    is_number = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    misread = _misread(values, column)
    if misread is not None:
        return misread
    if family in NUMBERS and digits is not None and (is_number or (pa.types.is_integer(kind) and digits < 0)):
        # Of PostgreSQL also whole hundreds, of MySQL also numbers of floating point.
        is_cut = not pa.types.is_decimal(kind) or kind.scale > digits
        is_other: Any = pc.not_equal(pc.round(values, ndigits=digits), values) if is_cut else None
        narrow, reason = (None, "") if family is Family.EXACT else _changed(values, replace(column, digits=None))
        if is_other is None or (narrow is not None and not pc.any(is_other).as_py()):
            return narrow, reason
        told = f"takes {digits} digits behind the point, and would round"
        return (is_other if narrow is None else pc.or_(is_other, narrow)), told
    if family in {Family.DOUBLE, Family.REAL} and pa.types.is_integer(kind):
        limit = _EXACT_IN_DOUBLE if family is Family.DOUBLE else _EXACT_IN_REAL
        wide = values.cast(pa.int64())
        outside: Any = pc.or_(pc.greater(wide, pa.scalar(limit)), pc.less(wide, pa.scalar(-limit)))
        return outside, "has too few digits for the number"
    if family is Family.REAL and kind == pa.float64():
        again = values.cast(pa.float32(), safe=False).cast(pa.float64())
        is_other = pc.and_(pc.not_equal(again, values), pc.invert(pc.is_nan(values)))
        return is_other, "has too few digits for the number"
    if family in {Family.DOUBLE, Family.REAL} and pa.types.is_decimal(kind):
        is_other = [one is not None and Decimal(repr(float(one))) != one for one in values.to_pylist()]
        return pa.array(is_other, pa.bool_()), "has too few digits for the number"
    if family in {Family.TEXT, Family.BINARY} and column.length_max is not None:
        length = _length(values)
        if length is not None:
            return pc.greater(length, pa.scalar(column.length_max)), f"takes {column.length_max} at most"
    if family in {Family.TIME, Family.DATE} and (pa.types.is_timestamp(kind) or pa.types.is_time(kind)):
        if family is Family.DATE:
            return pa.array(np.ones(len(values), dtype=bool)), "takes no time of day"
        step = 10 ** (6 - (6 if column.digits is None else column.digits))
        numbers: Any = values.cast(pa.int32() if kind == pa.time32("ms") else pa.int64()).cast(pa.int64())
        micros = numbers.to_numpy(zero_copy_only=False) if not numbers.null_count else numbers.fill_null(0).to_numpy()
        rest = (micros * _MICROS[kind.unit]) % step
        return pa.array(rest != 0), f"takes {column.digits} digits of the second, and would round"
    return None, ""


def _length(values: Any) -> Any:
    if pa.types.is_string(values.type):
        return pc.utf8_length(values)
    return pc.binary_length(values) if pa.types.is_binary(values.type) else None


def _changed_texts(values: Any, column: TargetColumn) -> tuple[Any, str]:
    """Which texts a database reads as another value than they say, with a note at most; and how."""
    family = column.family
    if family in {Family.TEXT, Family.BINARY}:
        return _changed(values, replace(column, reads_texts=False))
    if family is Family.DATE:
        return pc.match_substring_regex(values, _WITH_TIME), "takes no time of day"
    if family is Family.TIME:
        pattern = f":[0-9]+[.][0-9]{{{column.digits or 0}}}[0-9]*[1-9]"
        told = f"takes {column.digits} digits of the second, and would round"
        if column.kind.startswith("time") and not column.kind.startswith("timestamp"):
            pattern, told = f"{pattern}|{_WITH_DAY}", f"takes {column.digits} digits of the second, and no date"
        return pc.match_substring_regex(values, pattern), told
    if column.kind.startswith(("enum(", "set(")):
        is_other = [one is not None and one.isdigit() and f"'{one}'" not in column.kind for one in values.to_pylist()]
        return pa.array(is_other, pa.bool_()), "takes it for the number of another word"
    is_other = [one is not None and not _is_held(one, column) for one in values.to_pylist()]
    return pa.array(is_other, pa.bool_()), "takes it for another number"


def _is_held(text: str, column: TargetColumn) -> bool:
    """Whether a column of numbers holds just what a text says."""
    if not _NUMBER.fullmatch(text):
        return column.holds_any_text
    number = Decimal(text.strip())
    _, figures, exponent = number.as_tuple()
    if column.family is Family.EXACT:
        spare = len(figures) - len("".join(map(str, figures)).rstrip("0"))
        return not number or column.digits is None or -int(exponent) - spare <= column.digits
    if column.family is Family.OTHER and number == int(number) and abs(number) < _WHOLE_END:
        return True
    with np.errstate(over="ignore"):
        near = str(np.float32(number)) if column.family is Family.REAL else repr(float(number))
    return Decimal(near) == number
