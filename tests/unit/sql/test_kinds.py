"""Columns as their kinds hold them, and what they cannot hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import rows as forms
from fetchers.sql.kinds import DATE, INT16, INT64, STRING, UNREADABLE, ColumnPlan, Kind, exact, instant, to_rows

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _plan(kind: Kind, *, is_nullable: bool = True) -> ColumnPlan:
    return ColumnPlan("c", '"c"', kind, is_nullable)


@given(st.lists(st.one_of(st.none(), st.integers(-40_000, 40_000)), max_size=60))
def test_what_cannot_be_held_is_rejected_and_nothing_else(values: list[int | None]) -> None:
    """Row by row, however many; the others are as they were."""
    batch = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["x"])
    held, rejections = to_rows(batch, [_plan(INT16)])
    wrong = [at for at, value in enumerate(values) if value is not None and not -32_768 <= value <= 32_767]
    assert [rejection.index for rejection in rejections] == wrong
    expected = [None if at in wrong else value for at, value in enumerate(values)]
    assert held.column(0).to_pylist() == expected


def test_the_rejection_names_column_and_value() -> None:
    """So that the row is found; a null where none may be is told too."""
    batch = pa.RecordBatch.from_arrays([pa.array(["2024-01-31", "0000-00-00", None])], names=["x"])
    _, rejections = to_rows(batch, [_plan(DATE, is_nullable=False)])
    assert [(rejection.index, rejection.reason) for rejection in rejections] == [(1, UNREADABLE), (2, UNREADABLE)]
    assert "column c" in rejections[0].message
    assert "0000-00-00" in rejections[0].message


def test_a_row_with_two_unreadable_values_names_both_in_full() -> None:
    """In its dead letter these values are null: the message alone has them."""
    long = "x" * 100
    batch = pa.RecordBatch.from_arrays([pa.array([long]), pa.array(["0000-00-00"])], names=["x", "y"])
    plans = [ColumnPlan("a", '"a"', INT64, is_nullable=False), ColumnPlan("b", '"b"', DATE, is_nullable=True)]
    _, (rejection,) = to_rows(batch, plans)
    assert f"column a: no int64 is {long!r}" in rejection.message
    assert "; column b: no date32[day] is '0000-00-00'" in rejection.message
    assert "declared as not null" not in rejection.message


@given(st.integers(-(10**15), 10**15))
def test_milliseconds_are_cut_downwards(micros: int) -> None:
    """Also before 1970; the other granularities keep all digits."""
    values = pa.array([micros], pa.timestamp("us"))
    moment = EPOCH + timedelta(microseconds=micros)
    assert instant("connect_logical", None).hold(values).cast(pa.int64()).to_pylist() == [micros // 1000]
    assert instant("micros_long", None).hold(values).to_pylist() == [micros]
    assert instant("nanos_long", None).hold(values).to_pylist() == [micros * 1000]
    assert instant("nanos_string", None).hold(values).to_pylist() == [str(micros * 1000)]
    text = moment.strftime("%m-%dT%H:%M:%S.") + f"{moment.microsecond:06}"
    assert instant("micros_iso_datetime_string", None).hold(values)[0].as_py().endswith(text)
    assert instant("nanos_iso_datetime_string", None).hold(values)[0].as_py().endswith(f"{text}000")


def test_a_zone_is_applied_around_both_switches() -> None:
    """An hour that comes twice is its first; one that a clock passes over is no time."""
    kind = instant("connect_logical", "Europe/Berlin")
    texts = pa.array(["2024-03-31 01:59:59", "2024-03-31 02:30:00", "2024-03-31 03:00:00", "2024-10-27 02:30:00"])
    held, rejections = to_rows(pa.RecordBatch.from_arrays([texts], names=["x"]), [_plan(kind)])
    assert [rejection.index for rejection in rejections] == [1]
    hours = [value and value.strftime("%m-%d %H:%M:%S") for value in held.column(0).to_pylist()]
    assert hours == ["03-31 00:59:59", None, "03-31 01:00:00", "10-27 00:30:00"]


@pytest.mark.parametrize(
    ("precision", "scale", "mapping", "form"),
    [
        (9, 0, "none", forms.decimal(9, 0)),
        (9, 0, "best_fit", forms.INT32),
        (18, 0, "precision_only", forms.INT64),
        (19, 0, "best_fit", forms.decimal(19, 0)),
        (18, 2, "best_fit", forms.FLOAT64),
        (18, 2, "precision_only", forms.decimal(18, 2)),
        (30, 2, "best_fit_eager_double", forms.FLOAT64),
        (3, -2, "none", forms.STRING),
        (1000, 3, "none", forms.STRING),
    ],
)
def test_numbers_by_their_digits(precision: int, scale: int, mapping: str, form: forms.Form) -> None:
    """As ``numeric.mapping`` says; text where no decimal can be declared."""
    assert exact(precision, scale, mapping).form == form


@given(st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**40), max_value=10**40))
def test_decimals_keep_every_digit(value: Decimal) -> None:
    """From their text."""
    assert exact(65, 10, "none").hold(pa.array([f"{value:f}"])).to_pylist() == [value]


def test_a_decimal_is_never_rounded() -> None:
    """More digits behind the point than declared are rejected."""
    with pytest.raises(pa.ArrowInvalid):
        exact(10, 2, "none").hold(pa.array(["1.005"]))


def test_numbers_of_a_file_without_types_are_exact() -> None:
    """SQLite may have any value in any column."""
    batch = pa.RecordBatch.from_arrays([pa.array([1.0, 1.5])], names=["x"])
    held, rejections = to_rows(batch, [_plan(INT64)])
    assert held.column(0).to_pylist() == [1, None]
    assert len(rejections) == 1
    assert STRING.hold(pa.array(["a"])).to_pylist() == ["a"]
