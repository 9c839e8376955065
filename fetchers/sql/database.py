"""What ``JdbcSource`` asks of a database: one class for each, behind one port."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import pyarrow as pa

from fetchers.sdk import Fatal
from fetchers.sql.kinds import ColumnPlan
from fetchers.sql.settling import Holder

T = TypeVar("T")


class NoTableError(Fatal):
    """A table that is not there, or no more."""


class MistypedError(Fatal):
    """A statement that does not fit the types of its columns: fatal, unless these are others than it was made for."""


BATCH_BYTES = 4 * 1024 * 1024
"""About so much is read at once, however wide the rows are."""
FIRST_ROWS = 100
WHOLE_DAYS = -1
"""As digits of the second, of columns that have days alone: the present one is not over."""


def next_rows(batch: pa.RecordBatch, *, rows_max: int) -> int:
    """How many rows to ask for after this batch, so that they have about ``BATCH_BYTES``."""
    fitting = BATCH_BYTES * batch.num_rows // max(1, batch.nbytes)
    return max(1, min(fitting, rows_max, 10 * batch.num_rows))


def wrapped(query: str) -> str:
    """A query as a relation; the end of the line ends a comment that the query may end with."""
    return f"({query.strip().rstrip(';')}\n)"


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view, by the names that the database itself has for it."""

    name: str
    schema: str | None = None
    catalog: str | None = None
    database: str = ""
    """The database that it is in, where that is no part of its name."""

    @property
    def names(self) -> tuple[str, ...]:
        """All by which a config or another connector's offset may mean it.

        Releases of Confluent's connector with PostgreSQL's driver 42.7.5 and newer have the database in a table's name
        (https://github.com/confluentinc/kafka-connect-jdbc/pull/1648).
        """
        found = (self.name, self.schema_name, self.full_name)
        return (*found, f"{self.database}.{self.full_name}") if self.database else found

    @property
    def full_name(self) -> str:
        """As Confluent's offsets have it: the parts that there are, with dots."""
        return ".".join(part for part in (self.catalog, self.schema, self.name) if part)

    @property
    def schema_name(self) -> str:
        """``schema.name``, or the name where there are no schemas."""
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class Relation:
    """What is read: a table with the state of its columns, or a query."""

    name: str
    """The struct's name, and the end of the topic's."""
    source: str
    """What stands behind FROM."""
    columns: tuple[ColumnPlan, ...]
    table: Table | None = None
    """None: a query."""
    keys: tuple[str, ...] = ()
    """Columns of the primary key."""
    auto_increment: str | None = None
    """The column that the database numbers by itself."""
    is_view: bool = False
    """Whether no column of it can be declared as not null."""
    zoned: frozenset[str] = field(default_factory=frozenset)
    """Timestamp columns that are instants, whatever a session's zone."""
    precisions: dict[str, int] = field(default_factory=dict)
    """Digits of the second that timestamp columns have, or ``WHOLE_DAYS``."""
    not_null: dict[str, str] = field(default_factory=dict)
    """Of columns that may be null: their definition without that, where the SQL that changes it has to have one."""

    @property
    def alias(self) -> str:
        """As which ``source`` is known in a statement."""
        return self.source if self.table is not None else "query"

    def column(self, name: str) -> ColumnPlan:
        """By name, in any case if no column is written exactly so; raises ``Fatal``."""
        for fold in (str, str.lower):
            for column in self.columns:
                if fold(column.name) == fold(name):
                    return column
        raise Fatal(f"{self.name} has no column {name}; it has {', '.join(column.name for column in self.columns)}")


@dataclass(frozen=True, slots=True)
class Range:
    """What of a relation is new: which expression orders it, and what the database says of its end."""

    relation: Relation
    identity: str | None
    """SQL of the incrementing column."""
    time: str | None
    """SQL of the timestamp."""
    time_columns: tuple[str, ...] = ()
    delay_ms: int = 0
    identity_column: str = ""
    """Its name; empty where there is no incrementing column."""

    @property
    def is_zoned(self) -> bool:
        """Whether its timestamps are instants."""
        return all(name in self.relation.zoned for name in self.time_columns)

    @property
    def precision(self) -> int:
        """Digits of the second that all of its timestamps have, or ``WHOLE_DAYS``."""
        return min((self.relation.precisions.get(name, 6) for name in self.time_columns), default=6)


class Blocking(Protocol):
    """How blocking drivers are called: ``FetchContext.run_blocking``."""

    async def run_blocking(self, call: Callable[[], T], *, subject: str = "", seconds_max: float = 300.0) -> T:
        """What the call returns or raises."""


class Database(Protocol):
    """One database, over one connection of one task. Errors are ``Retriable`` or ``Fatal``."""

    settling_ms: int
    """How much older than the database's clock a bound by time is, besides the delay of the config."""

    async def open(self) -> None:
        """Connect."""

    def close(self) -> None:
        """Let go of the connection, also while it is being read; never waits."""

    async def tables(self, *, types: Sequence[str], schema_pattern: str | None) -> list[Table]:
        """Tables that the user can read, the system's own left out."""

    async def relation(self, table: Table) -> Relation:
        """A table with its columns as they are now; ``Fatal`` where there is none."""

    async def query(self, text: str) -> Relation:
        """A query with its columns as they are now."""

    def quoted(self, name: str) -> str:
        """A name as SQL."""

    def text_of(self, expression: str, relation: Relation, column: str) -> str:
        """SQL of the text of an expression of the column, from which ``literal_of`` makes the same value."""

    def literal_of(self, text: str, relation: Relation, column: str) -> str:
        """SQL of a value of the column whose text it is."""

    async def bound(self, wanted: Range) -> str | None:
        """How far can be read when those have gone who may still commit; None where there are no rows yet.

        As text: an id (the last one, inclusive), or a timestamp of the database's clock (exclusive).
        """

    async def holders(self, wanted: Range) -> frozenset[Holder]:
        """Who may still commit rows under a bound that was taken before."""

    def read(self, sql: str, *, rows_max: int) -> AsyncGenerator[pa.RecordBatch, None]:
        """Rows as they come, in constant memory."""

    async def counter(self, wanted: Range) -> int | None:
        """The last number that the database has given out for the incrementing column; None where it does not say."""

    async def trouble(self, wanted: Range) -> str | None:
        """Why late commits cannot be seen here, with the SQL or setting that mends it; None: they can."""
