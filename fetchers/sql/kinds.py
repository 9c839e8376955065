"""What becomes of a column: its Avro form, its Arrow type, and the way from what a driver gives to both.

The names and logical types are those of Confluent's JDBC source (``GenericDatabaseDialect`` of
``kafka-connect-jdbc``), except where that would alter a value: such a column becomes text, or its odd values are
rejected one by one. The table is in ``docs/guides/polling-databases.md``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute

from fetchers.sdk import Rejection
from fetchers.sdk import rows as forms

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
UNREADABLE = "unreadable_value"
INT64_DIGITS = 18
"""Digits that every 64-bit number can have."""
DECIMAL128_DIGITS = 38
MICROS_DIGITS = 6
MICROS_OF_A_DAY = 86_400_000_000
POSTGRES_EPOCH_MICROS_MIN = -210_866_803_200_000_000
"""4714-11-24 BC, PostgreSQL's first timestamp. ADBC wraps ``infinity`` and years after 294247 round to below it."""
POSTGRES_EPOCH_DAYS_MIN = -2_440_588
"""4714-11-24 BC as a date; ADBC gives the two infinite dates below it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to hold a value. ``convert`` raises ``pa.ArrowInvalid`` where any value of its array cannot be held."""

    form: forms.Form
    arrow: Any
    """The ``pa.DataType`` of the column that holds it."""
    convert: Callable[[Any], Any] | None = None
    """None: Arrow's checked cast to ``arrow``."""
    judge: Callable[[Any], tuple[Any, Mapping[int, str]]] | None = None
    """In place of ``convert``: a column with nulls for what cannot be held, and what is the matter there, by row."""

    def hold(self, values: Any) -> Any:
        """All values, or ``pa.ArrowInvalid``."""
        return values.cast(self.arrow) if self.convert is None else self.convert(values)


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """One column of a table or query."""

    name: str
    expression: str
    """What is selected, in the database's SQL."""
    kind: Kind
    is_nullable: bool
    is_numeric: bool = False
    """Whether its literals are written without quotes."""
    tells: Literal["", "numbers", "times", "neither"] = ""
    """What new rows could be told by, which ``kind`` does not say where numbers are texts and times are numbers: whole
    numbers, times, or neither; empty where the database itself does not know what is in a column."""
    charset: str = ""
    """MySQL's, of texts."""
    exact: str = "{}"
    """SQL of the column's value where it stands in a key: what is written and compared exactly; ``{}``: the column."""
    order: str = ""
    """What else than its type decides in which order its values are: a collation, the values of an ENUM."""

    @property
    def form(self) -> forms.Form:
        """Of the field."""
        return forms.optional(self.kind.form) if self.is_nullable else self.kind.form


def _boolean(values: Any) -> Any:
    if pa.types.is_boolean(values.type):
        return values
    whole = values.cast(pa.int64())
    if pc.any(pc.greater(pc.abs_checked(whole), 1)).as_py():
        raise pa.ArrowInvalid("neither 0 nor 1")
    return whole.cast(pa.bool_())


def _text(values: Any) -> Any:
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    return values.cast(pa.string())


def _decimal(kind: pa.DataType, values: Any) -> Any:
    if pa.types.is_floating(values.type) or pa.types.is_integer(values.type):
        # SQLite's numbers, by their digits: Arrow rounds floats, and takes no 64-bit number for less than 19 digits.
        values = values.cast(pa.string())
    return (values.storage if isinstance(values, pa.ExtensionArray) else values).cast(kind)


INT8 = Kind(forms.INT8, pa.int8())
INT16 = Kind(forms.INT16, pa.int16())
INT32 = Kind(forms.INT32, pa.int32())
INT64 = Kind(forms.INT64, pa.int64())
FLOAT32 = Kind(forms.FLOAT32, pa.float32())
FLOAT64 = Kind(forms.FLOAT64, pa.float64())
BOOLEAN = Kind(forms.BOOLEAN, pa.bool_(), _boolean)
STRING = Kind(forms.STRING, pa.string(), _text)
BYTES = Kind(forms.BYTES, pa.binary())


def exact(precision: int, scale: int, mapping: str) -> Kind:
    """A number of so many digits, by ``numeric.mapping``; text where Avro's decimal cannot be declared."""
    if (
        mapping in {"best_fit", "best_fit_eager_double", "precision_only"}
        and scale == 0
        and 0 < precision <= INT64_DIGITS
    ):
        return next(kind for limit, kind in ((2, INT8), (4, INT16), (9, INT32), (18, INT64)) if precision <= limit)
    if scale > 0 and (mapping == "best_fit_eager_double" or (mapping == "best_fit" and precision <= INT64_DIGITS)):
        return FLOAT64
    if not 1 <= precision <= forms.DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        return STRING
    arrow = pa.decimal128(precision, scale) if precision <= DECIMAL128_DIGITS else pa.decimal256(precision, scale)
    return Kind(forms.decimal(precision, scale), arrow, partial(_decimal, arrow))


def _days(values: Any) -> Any:
    days = values.cast(pa.date32())
    if pc.any(pc.less(days.cast(pa.int32()), POSTGRES_EPOCH_DAYS_MIN)).as_py():
        raise pa.ArrowInvalid("an infinite date")
    return days


DATE = Kind(forms.DATE, pa.date32(), _days)


def _micros(zone: str | None, values: Any) -> Any:
    """Microseconds since the epoch, UTC, of texts or timestamps; ``zone``: of values that have none themselves."""
    if pa.types.is_integer(values.type):  # milliseconds, as Java's driver of SQLite writes them
        return pc.multiply_checked(values, 1000)
    if not pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us"))
    if zone is not None and zone != "UTC" and values.type.tz is None:
        values = pc.assume_timezone(values, zone, ambiguous="earliest", nonexistent="raise")
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    if pc.any(pc.less(micros, POSTGRES_EPOCH_MICROS_MIN)).as_py():
        raise pa.ArrowInvalid("an infinite or too distant time")
    return micros


def _floor(values: Any, divisor: int) -> Any:
    """Division that rounds towards minus infinity, in whole numbers."""
    cut = pc.divide(values, divisor)
    below = pc.and_(pc.less(values, 0), pc.not_equal(pc.multiply(cut, divisor), values))
    return pc.if_else(below, pc.subtract(cut, 1), cut)


def _millis(zone: str | None, values: Any) -> Any:
    return _floor(_micros(zone, values), 1000).cast(pa.timestamp("ms", "UTC"))


def _iso(digits: int, zone: str | None, values: Any) -> Any:
    text = pc.strftime(_micros(zone, values).cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise(text, "0" * (digits - MICROS_DIGITS), "") if digits > MICROS_DIGITS else text


def _nanos(zone: str | None, values: Any) -> Any:
    return pc.multiply_checked(_micros(zone, values), 1000)


def instant(granularity: str, zone: str | None) -> Kind:
    """A timestamp by ``timestamp.granularity``; ``zone``: where the column's values have none."""
    kinds: dict[str, tuple[forms.Form, pa.DataType, Callable[[Any], Any]]] = {
        "connect_logical": (forms.TIMESTAMP, pa.timestamp("ms", "UTC"), partial(_millis, zone)),
        "micros_long": (forms.INT64, pa.int64(), partial(_micros, zone)),
        "micros_string": (forms.STRING, pa.string(), lambda values: _micros(zone, values).cast(pa.string())),
        "micros_iso_datetime_string": (forms.STRING, pa.string(), partial(_iso, 6, zone)),
        "nanos_long": (forms.INT64, pa.int64(), partial(_nanos, zone)),
        "nanos_string": (forms.STRING, pa.string(), lambda values: _nanos(zone, values).cast(pa.string())),
        "nanos_iso_datetime_string": (forms.STRING, pa.string(), partial(_iso, 9, zone)),
    }
    return Kind(*kinds[granularity])


def _time(divisor: int, arrow: pa.DataType, values: Any) -> Any:
    if pa.types.is_string(values.type):  # Arrow reads no times, but it reads instants
        values = pc.binary_join_element_wise("1970-01-01", values, " ").cast(pa.timestamp("us"))
    else:
        values = values.cast(pa.time64("us"))
    micros = values.cast(pa.int64())
    if pc.any(pc.greater_equal(micros, MICROS_OF_A_DAY)).as_py():
        raise pa.ArrowInvalid("a time after the day's end")
    return (_floor(micros, divisor) if divisor > 1 else micros).cast(arrow)


def time_of_day(granularity: str) -> Kind:
    """Connect's Time (milliseconds), or microseconds as a plain number where timestamps have more as well."""
    if granularity == "connect_logical":
        arrow = pa.time32("ms")
        return Kind(forms.TIME, arrow, lambda values: _time(1000, pa.int32(), values).cast(arrow))
    return Kind(forms.INT64, pa.int64(), partial(_time, 1, pa.int64()))


def to_rows(batch: pa.RecordBatch, columns: Sequence[ColumnPlan]) -> tuple[pa.RecordBatch, tuple[Rejection, ...]]:
    """The first columns of a batch as their kinds hold them; what a kind cannot hold is null, and its row rejected."""
    made: list[Any] = []
    rejected: dict[int, list[str]] = defaultdict(list)
    for at, column in enumerate(columns):
        values = batch.column(at)
        judged, unheld = (column.kind.judge or partial(_judged, column.kind))(values)
        made.append(judged)
        for row, trouble in unheld.items():
            rejected[row].append(f"column {column.name}: {trouble}")
        nulls = () if column.is_nullable or not made[-1].null_count else pc.indices_nonzero(made[-1].is_null())
        for row in {row.as_py() for row in nulls} - unheld.keys():
            rejected[row].append(f"column {column.name} holds null and is declared as not null")
    table = pa.RecordBatch.from_arrays(made, names=[column.name for column in columns])
    return table, tuple(Rejection(row, UNREADABLE, "; ".join(rejected[row])) for row in sorted(rejected))


def _judged(kind: Kind, values: Any) -> tuple[Any, Mapping[int, str]]:
    if pa.types.is_union(values.type):  # sparse: each part has nulls where a value is of another type
        parts = [_judged(kind, values.field(at)) for at in range(values.type.num_fields)]
        return pc.coalesce(*(made for made, _ in parts)), {at: told for _, each in parts for at, told in each.items()}
    held = list(_held(kind, values, 0))
    made = pa.concat_arrays([part for _, part, _ in held]) if held else pa.array([], kind.arrow)
    return made, {at: f"no {kind.arrow} is {str(_plain(values[at]))!r} ({told})" for at, _, told in held if told}


def _plain(value: Any) -> Any:
    try:
        return value.as_py()
    except (ValueError, OverflowError):  # a date outside of Python's years
        return value.value


def _held(kind: Kind, values: Any, start: int) -> Iterator[tuple[int, Any, str]]:
    """Parts of a column that are held, and its single values that cannot be, as nulls with what is wrong with them.

    Nothing is looked at singly unless something is wrong; then halves are tried, so that a few odd values of a page
    cost a few tries each.
    """
    if len(values) == 1 and not values[0].is_valid:
        yield start, pa.nulls(1, kind.arrow), ""
        return
    try:
        yield start, kind.hold(values), ""
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OverflowError) as error:
        if len(values) > 1:
            half = len(values) // 2
            yield from _held(kind, values[:half], start)
            yield from _held(kind, values[half:], start + half)
        else:
            yield start, pa.nulls(1, kind.arrow), str(error).splitlines()[0][:120]


_ARROW: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}


def column_of(values: Sequence[Any]) -> Any:
    """Of values of one type as that type; of several as a union of them, so that each is read as if it were alone."""
    types = list({type(value) for value in values if value is not None})
    if len(types) <= 1:
        return pa.array(values, _ARROW[types[0]] if types else pa.int64())
    numbers = pa.array([0 if value is None else types.index(type(value)) for value in values], pa.int8())
    parts = [[value if type(value) is found else None for value in values] for found in types]
    return pa.UnionArray.from_sparse(
        numbers, [pa.array(part, _ARROW[found]) for part, found in zip(parts, types, strict=True)]
    )


def joined(first: pa.Table, second: pa.Table) -> pa.Table:
    """Rows of two reads of one SELECT, whose columns may have other types: by what is in them, or nothing but null."""
    if first.schema == second.schema:
        return pa.concat_tables([first, second])
    columns = []
    for left, right in zip(first.columns, second.columns, strict=True):
        if left.null_count == len(left):
            left = pa.chunked_array([pa.nulls(len(left), right.type)])  # noqa: PLW2901
        elif right.null_count == len(right):
            right = pa.chunked_array([pa.nulls(len(right), left.type)])  # noqa: PLW2901
        is_one_type = left.type == right.type
        columns.append(
            pa.chunked_array([*left.chunks, *right.chunks])
            if is_one_type
            else column_of([*left.to_pylist(), *right.to_pylist()])
        )
    return pa.table(columns, names=first.column_names)
