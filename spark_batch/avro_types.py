"""The contract's types: Avro schema text parsed into frozen values, with all findings at once.

Only what the conversion can express without changing a value is accepted (Avro 1.12 specification, sections "Schema
Declaration" and "Logical Types"); everything else is a finding, never a silent fallback. Recursive records and unions
other than "T or null" are such findings. The attribute `json.name` of a field names it in the payload; `json.coerce`,
`json.pattern` and `json.zone` say which texts are taken for its value (see `coercion`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal as ExactNumber
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_batch.coercion import Coercion


class Primitive(StrEnum):
    """Avro's primitive types, by the names that schemas use."""

    NULL = "null"
    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    STRING = "string"
    BYTES = "bytes"


class Temporal(StrEnum):
    """Logical types of dates and times; the value is Avro's own name."""

    DATE = "date"
    TIME_MILLIS = "time-millis"
    TIME_MICROS = "time-micros"
    TIMESTAMP_MILLIS = "timestamp-millis"
    TIMESTAMP_MICROS = "timestamp-micros"
    LOCAL_TIMESTAMP_MILLIS = "local-timestamp-millis"
    LOCAL_TIMESTAMP_MICROS = "local-timestamp-micros"

    @property
    def base(self) -> Primitive:
        """The primitive type that carries it."""
        return Primitive.INT if self in {Temporal.DATE, Temporal.TIME_MILLIS} else Primitive.LONG

    @property
    def units_per_second(self) -> int:
        """Units of the carried number in one second (0 for dates)."""
        if self is Temporal.DATE:
            return 0
        return 1_000 if self.value.endswith("millis") else 1_000_000


DECIMAL_DIGITS_MAX = 38
"""Of Spark's widest decimal."""


@dataclass(frozen=True)
class Decimal:
    """A decimal number, exact within precision and scale; `size` bytes where it is carried by a fixed."""

    precision: int
    scale: int
    size: int | None = None

    @property
    def is_wide(self) -> bool:
        """Whether Spark has no type for it: its unscaled value goes through as bytes. Only rows have such ones."""
        return self.precision > DECIMAL_DIGITS_MAX


@dataclass(frozen=True)
class Uuid:
    """A string in the canonical form of RFC 4122."""


@dataclass(frozen=True)
class Enum:
    """One of the symbols, as text."""

    name: str
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Fixed:
    """Binary values of exactly `size` bytes; `name` is the type's full name in Avro."""

    name: str
    size: int


@dataclass(frozen=True)
class ConnectMark:
    """What Connect's schema says of a type besides its form: the attributes `connect.*` of Confluent's `AvroData`."""

    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    type: str | None = None
    """`int8` or `int16`, which Avro has no type for."""


@dataclass(frozen=True)
class Narrow:
    """A whole number of 8 or 16 bits, which Connect has and Avro carries in an int.

    What transformations make of a field, and what they see where a contract says it by `ConnectMark.type`.
    """

    bits: int


@dataclass(frozen=True)
class Slot:
    """A place for a value: its type, whether null may stand there, and what texts are taken for a value."""

    type: AvroType
    is_nullable: bool = False
    coercion: Coercion | None = None
    connect: ConnectMark | None = None
    """That of its type, unless this is a record, which has its own."""

    @property
    def connect_type(self) -> AvroType:
        """Its type to Connect's transformations: numbers that Connect's schema says to be narrow are so to them."""
        if self.type is not Primitive.INT or self.connect is None or self.connect.type is None:
            return self.type
        return Narrow(int(self.connect.type.removeprefix("int")))


@dataclass(frozen=True)
class Array:
    """A list whose items are all of one type."""

    items: Slot


@dataclass(frozen=True)
class Map:
    """A map from text keys to values that are all of one type."""

    values: Slot


@dataclass(frozen=True)
class Field:
    """One field of a record; `default` is the default as JSON value, canonical text, None where there is none."""

    name: str
    json_name: str
    slot: Slot
    default: str | None = None
    doc: str | None = None

    @property
    def has_value_default(self) -> bool:
        """Whether a missing field becomes something other than null."""
        return self.default is not None and self.default != "null"


@dataclass(frozen=True)
class Record:
    """Named fields; `name` is the full name."""

    name: str
    fields: tuple[Field, ...]
    doc: str | None = None
    connect: ConnectMark | None = None

    def field(self, name: str) -> Field | None:
        """The field of that Avro name."""
        return next((field for field in self.fields if field.name == name), None)


AvroType = Primitive | Temporal | Decimal | Uuid | Enum | Fixed | Narrow | Array | Map | Record
JsonValue = Any
"""Whatever `json.loads` gives."""


SCHEMAS_MAX = 2_048
"""Of which is kept what was read of each: those of a thousand tables and their keys, which come by turns."""
INTEGER_BITS = {Primitive.INT: 32, Primitive.LONG: 64}
FLOAT_MAX = 3.4028234663852886e38
FLOAT_BOUND = ExactNumber(2**128 - 2**103)
"""From here on the nearest float is infinite (IEEE 754, rounding to nearest), and that is out of range."""
DOUBLE_MAX = 1.7976931348623157e308
UUID = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
"""The whole of the text: matched from ``\\A`` to ``\\z``, since ``$`` lets ends of lines pass, in Java five of them."""
EPOCH = dt.date(1970, 1, 1).toordinal()
DAY_SECONDS = 86_400
_DAY_MIN = dt.date.min.toordinal() - EPOCH
_DAY_MAX = dt.date.max.toordinal() - EPOCH


def unit_range(kind: Temporal) -> tuple[int, int]:
    """Lowest and highest number, in the type's unit, both inclusive."""
    if kind is Temporal.DATE:
        return _DAY_MIN, _DAY_MAX
    day = DAY_SECONDS * kind.units_per_second
    if kind in {Temporal.TIME_MILLIS, Temporal.TIME_MICROS}:
        return 0, day - 1
    return _DAY_MIN * day, (_DAY_MAX + 1) * day - 1
