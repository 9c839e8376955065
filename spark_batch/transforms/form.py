"""What a transformation is: its keys, and what it makes of types, Spark's columns, JSON values, and a sink's columns.

One file holds one transformation in all of these forms, `catalog` lists them. Whoever carries transformations out knows
this contract only. Behaviour: Kafka Connect 4.1's classes of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from spark_batch.transforms.halves import Faults, JsonHalf, Origins, TypedHalf
from spark_batch.transforms.shape import Shape

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_batch.avro_types import JsonValue
    from spark_batch.outcome import Reason


class Side(StrEnum):
    """Which half of a record a transformation works on: Connect's `$Key` and `$Value`."""

    KEY = "key"
    VALUE = "value"


class KeyKind(StrEnum):
    """What the text of a config key is read as."""

    TEXT = "text"
    NAME = "name"
    """Text that is not empty."""
    BOOLEAN = "boolean"
    CHOICE = "choice"
    PATTERN = "pattern"
    """A regular expression of Java's; see `java_pattern`."""
    NAMES = "names"
    """Texts between commas; where the key is required, at least one."""
    INTEGER = "integer"
    FILLED = "filled"
    """Text that is not empty, where it is given."""


@dataclass(frozen=True)
class FormKey:
    """One key of a transformation or predicate, below `transforms.<name>.` or `predicates.<name>.`."""

    name: str
    about: str
    """Its documentation."""
    kind: KeyKind = KeyKind.TEXT
    default: str | bool | tuple[str, ...] | None = None
    is_required: bool = False
    is_important: bool = False
    """Connect's importance HIGH; else MEDIUM."""
    choices: tuple[str, ...] = ()
    is_slight: bool = False
    """Connect's importance LOW."""


KeyValues: TypeAlias = Mapping[str, Any]
"""The values of all keys of a form by their names, defaults put in: text, None, a truth value, a number, or texts."""


class KeysRefused(ValueError):
    """Values that are right one by one and wrong together: for each the key, and what was expected."""

    def __init__(self, *refused: tuple[str, str]) -> None:
        super().__init__("; ".join(f"{key}: expected {expected}" for key, expected in refused))
        self.refused: Sequence[tuple[str, str]] = refused


class HeaderForm(Protocol):
    """How a source's headers are written: a `ConverterSpec`, as far as transformations ask it."""

    @property
    def kind(self) -> str:
        """As `ConverterKind` has it, but for Avro."""

    @property
    def is_schema_enveloped(self) -> bool:
        """Whether JSON comes with its schema."""


class Inapplicable(Exception):
    """A value is not what the transformation works on; `reason` is for dead letters."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason, self.message = reason, message


@dataclass(frozen=True)
class Row:
    """What transformations may ask of a record besides its key or value."""

    is_there: Column
    """Whether there is anything to transform; what is null from the start stays null."""
    timestamp: Column
    """Milliseconds since the epoch, or null."""
    topic: str
    """Where the record is for, as the routers before have made it."""


@dataclass(frozen=True)
class Parts:
    """A record as columns of its fields, not yet put together.

    A struct that one step makes and the next one takes apart is named once for each of its fields: the tree that Spark
    reads grows by that factor with every step.
    """

    columns: Mapping[str, Column]
    is_there: Column

    def getField(self, name: str) -> Column:  # noqa: N802 - as Spark's columns have it
        """One field's column."""
        return self.columns[name]

    def isNotNull(self) -> Column:  # noqa: N802 - as Spark's columns have it
        """Whether there is a record."""
        return self.is_there


Values: TypeAlias = "Column | Parts"


def joined(value: Values) -> Column:
    """The record as one column, null where there is none."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

    if not isinstance(value, Parts):
        return value
    return F.when(value.is_there, F.struct(*(column.alias(name) for name, column in value.columns.items())))


@dataclass(frozen=True)
class ExactRow:
    """What `Row` tells, of one record that takes the exact path."""

    topic: str
    timestamp: JsonValue
    """A canonical number, or None."""


class Reshaping(Protocol):
    """A transformation of keys or values. `name` is the alias in the config, which findings tell.

    What is null stays null at a source, in each form; `takes_nulls` says whether a sink's nulls are transformed.
    """

    NAME: ClassVar[str]
    """Connect's class without its package, and without `$Key` and `$Value`."""
    ABOUT: ClassVar[str]
    """One sentence for the reference."""
    KEYS: ClassVar[tuple[FormKey, ...]]
    takes_nulls: ClassVar[bool]

    @property
    def side(self) -> Side:
        """Whether it works on keys or on values."""

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> Reshaping:
        """Made of the values of its keys; raises KeysRefused."""

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """The type and Avro schema after it; raises Misfit where it cannot be applied to what it gets."""

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """The value after it, as a column of Spark's; the shape is that of the value before."""

    def proof(self, shape: Shape, value: Values) -> Column | None:
        """Where `column` is sure to be right; elsewhere `canonical` decides. None: everywhere, and it never refuses."""

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """A parsed JSON value after it, of which no contract tells the type; raises Inapplicable."""

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """A value that a contract describes, as `exact.writing` has it, after it: what `column` does, for one record.

        Only what is there comes here. Raises Inapplicable.
        """

    def of_texts(self, half: JsonHalf, origins: Origins) -> tuple[JsonHalf, Faults]:
        """A sink's JSON texts after it, with Connect's schema or without. Raises Unfit."""

    def of_columns(self, half: TypedHalf, origins: Origins) -> tuple[TypedHalf, Faults]:
        """A sink's typed columns after it. Raises Unfit."""
