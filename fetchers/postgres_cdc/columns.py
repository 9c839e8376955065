"""What a column of the server is, and what its texts become: types, a config's modes, kinds of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.sdk import rows as forms
from fetchers.toolkit.binary_modes import BinaryMode

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
Texts: TypeAlias = Any
"""A ``pa.StringArray`` of the server's texts."""
SESSION = (
    "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=iso_8601 -c extra_float_digits=3 -c bytea_output=hex "
    "-c client_encoding=UTF8 -c lc_monetary=C -c row_security=off "
    "-c statement_timeout=0 -c idle_in_transaction_session_timeout=0"
)
"""Settings of every session whose texts are read here. Row-level security is an error, as in ``pg_dump``: the log has
all rows. And as there, limits that a database or a role sets do not end the reading of a large table, or the
transaction that waits between two tables until Kafka has taken what was read."""

TYPES = """
with recursive asked(oid) as (
  select unnest(%s::oid[])
  union select case when t.typtype = 'd' then t.typbasetype else t.typelem end from asked join pg_type t using (oid)
  where t.typtype = 'd' or t.typcategory = 'A')
select t.oid::int8 as oid, t.typname::text as name, case when t.typtype = 'd' then t.typbasetype::int8 end as base,
  t.typtypmod as modifier, case when t.typcategory = 'A' then t.typelem::int8 end as item,
  t.typdelim::text as delimiter,
  case when t.typtype = 'e' then array(
    select e.enumlabel::text from pg_enum e where e.enumtypid = t.oid order by e.enumsortorder) end as labels
from asked join pg_type t using (oid)"""
"""Types by their numbers, with those that domains and arrays among them are made of."""


class UnreadableError(Exception):
    """A value that its column's form cannot hold, with what is the matter."""


@dataclass(frozen=True)
class Modes:
    """How a config wants its values."""

    decimals: Literal["precise", "double", "string"] = "precise"
    times: Literal["adaptive", "adaptive_time_microseconds", "connect"] = "adaptive"
    intervals: Literal["numeric", "string"] = "numeric"
    binaries: BinaryMode = "bytes"


@dataclass(frozen=True)
class Type:
    """A type of the server, with that of a domain resolved; from ``pg_type``."""

    name: str
    modifier: int = -1
    item: Type | None = None
    """Of an array, the type of its items."""
    labels: tuple[str, ...] | None = None
    """Of an enum, which may have none yet."""
    delimiter: str = ","
    """Between items of this type in an array; ``;`` for ``box``."""

    @property
    def words(self) -> tuple[str, ...] | None:
        """Labels of an enum, or of the items of an array; None: it is no enum."""
        return self.labels if self.item is None else self.item.words


@dataclass(frozen=True)
class Kind:
    """One way from texts to a column."""

    form: forms.Form
    arrow: Any
    """The ``pa.DataType`` of the column."""
    one: Callable[[str], Any]
    """One text's value, as ``pa.array`` takes it; raises ``UnreadableError``."""
    many: Callable[[Texts], Any] | None = None
    """A whole column; raises ``pa.ArrowInvalid`` where one value is not to be read so. None: by distinct values."""
    stand_in: Callable[[str], str] | None = None
    """The server's text of the placeholder of a large value that has not changed; None: the type has none."""
    selects: bool = False
    """Whether a snapshot selects the column as it is, and the driver's Arrow type can be cast to ``arrow``."""

    def read(self, texts: Texts) -> tuple[Any, dict[int, str]]:
        """The column, and what is wrong with values that it cannot hold, by row; they are null."""
        if self.many is not None:
            try:
                return self.many(texts), {}
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                pass
        encoded = texts.dictionary_encode()
        values, wrong = [], {}
        for at, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                values.append(self.one(text))
            except (UnreadableError, ArithmeticError, ValueError) as error:
                values.append(None)
                wrong[at] = f"no {self.arrow} is {text[:60]!r} ({error})"
        column = pa.array(values, self.arrow).take(encoded.indices)
        if not wrong:
            return column, {}
        is_wrong = np.isin(np.asarray(pc.fill_null(encoded.indices, -1)), list(wrong))
        return column, {int(row): wrong[encoded.indices[int(row)].as_py()] for row in np.flatnonzero(is_wrong)}


def type_of(rows: Mapping[int, dict[str, Any]], oid: int, modifier: int) -> Type:
    """The type of a column from what ``pg_type`` says, domains resolved; a type that is not there any more is text.

    ``rows``: by the types' numbers.
    """
    row = rows.get(oid)
    while row is not None and row["base"]:
        modifier = row["modifier"] if row["modifier"] >= 0 else modifier
        row = rows.get(row["base"])
    if row is None:
        return Type("text")
    item = type_of(rows, row["item"], modifier) if row["item"] else None
    labels = None if row["labels"] is None else tuple(row["labels"])
    return Type(row["name"], modifier, item, labels, row["delimiter"])
