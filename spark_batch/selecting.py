"""Columns of a job that `Sql` makes, each in a step of its own, so that what it is made of is evaluated once.

And what a job writes, of which these may drop some records.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, cast

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.rules.select import ROW, selected_column
from spark_batch.rules.writable import can_be_written
from spark_batch.serialize import shaped_bytes
from spark_batch.serialize.json_columns import JsonColumns
from spark_batch.transforms.change import Changed
from spark_batch.transforms.form import Parts, Values, joined
from spark_batch.transforms.shape import demand_record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column

    from spark_batch.plan import ConverterSpec
    from spark_batch.transforms.header_from import HeaderFrom
    from spark_batch.transforms.shape import Shape
    from spark_batch.transforms.sql import Sql

DROPPED = "__headrace_dropped"
"""Column that says whether a transformation drops the record; only of plans with such transformations."""
HEADERS = "__headrace_headers"
"""Column of the texts of headers that transformations make of the record (as in an outcome); only of such plans."""
_SOURCE, _SELECTED = "__headrace_source_", "__headrace_selected_"


@dataclass(frozen=True)
class Selected:
    """What a `SELECT` makes of a value in columns."""

    parts: Parts
    proof: Column
    """False where an expression raises, or makes what cannot be written."""
    is_dropped: Column
    """True where `WHERE` does not hold."""


@dataclass
class Selecting:
    """The steps of one job before its last."""

    steps: list[tuple[Column, ...]] = field(default_factory=list)

    def of(self, form: Sql, shape: Shape, value: Values, is_there: Column) -> Selected:
        """One more `SELECT`, of a value that `is_there`. Raises RuleRefused."""
        source, selected = f"{_SOURCE}{len(self.steps)}", f"{_SELECTED}{len(self.steps)}"
        self.steps.append((F.col("*"), joined(value).alias(source)))
        made = selected_column(form.sql, demand_record(form, "", shape), source, is_there)
        self.steps.append((F.col("*"), made.alias(selected)))
        whole = F.col(selected)
        row = whole.getField(ROW)
        is_right = can_be_written(form.made(shape, row))
        is_done = whole.isNotNull() if is_right is None else whole.isNotNull() & (row.isNull() | is_right)
        return Selected(form.parts(shape, row), ~is_there | is_done, is_there & whole.isNotNull() & row.isNull())


@dataclass(frozen=True)
class Written:
    """A key or value, where it is sure to be right (None: everywhere), and which records are dropped."""

    column: Column | JsonColumns
    """Its bytes, or what Arrow makes them of."""
    proof: Column | None = None
    is_dropped: Column | None = None
    texts: Mapping[str, Sequence[Column]] = field(default_factory=dict)
    """Of the headers that are made of it, by the alias of each step."""


def header_columns(form: HeaderFrom, shape: Shape, value: Values) -> list[Changed]:
    """The bytes of each header that is made of a value."""
    if form.is_text:
        return form.text_columns(shape, value)
    spec = cast("ConverterSpec", form.form)
    return [
        Changed(shaped_bytes(own, value.getField(name), is_there=value.isNotNull(), spec=spec))
        for name, own in form.field_shapes(shape)
    ]


def written_columns(written: Mapping[str, Written], header_steps: Sequence[str]) -> list[Column]:
    """What is written, which records are dropped, where any may be, and headers that steps of these aliases make."""
    columns: list[Column] = []
    for name, each in written.items():
        columns += each.column.named(name) if isinstance(each.column, JsonColumns) else [each.column.alias(name)]
    is_dropped = any_of([each.is_dropped for each in written.values()])
    columns += [] if is_dropped is None else [is_dropped.alias(DROPPED)]
    texts = {name: own for each in written.values() for name, own in each.texts.items()}
    made = [text for name in header_steps for text in texts[name]]
    return [*columns, F.array(*made).alias(HEADERS)] if made else columns


def left_to_arrow(written: Mapping[str, Written]) -> dict[str, JsonColumns]:
    """What comes out of the job in parts, by the name of the column that it becomes."""
    return {name: each.column for name, each in written.items() if isinstance(each.column, JsonColumns)}


def or_dropped(proof: Column, written: Mapping[str, Written]) -> Column:
    """What the steps behind a dropped record would have made of it is of no account."""
    is_dropped = any_of([each.is_dropped for each in written.values()])
    return proof if is_dropped is None else is_dropped | proof


def any_of(conditions: Sequence[Column | None]) -> Column | None:
    """Where any of them holds; None: nowhere."""
    given = [condition for condition in conditions if condition is not None]
    return reduce(lambda left, right: left | right, given) if given else None
