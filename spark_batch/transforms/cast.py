"""`Cast`: other types for fields, or for the whole key or value."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal as ExactNumber
from typing import TYPE_CHECKING, Any, ClassVar

from spark_batch.avro_types import (
    FLOAT_BOUND,
    FLOAT_MAX,
    AvroType,
    Decimal,
    Enum,
    Fixed,
    JsonValue,
    Narrow,
    Primitive,
    Record,
    Temporal,
    Uuid,
)
from spark_batch.literals.floating import floating, floating_text
from spark_batch.literals.reading import Number
from spark_batch.outcome import Reason
from spark_batch.transforms.change import CONNECT_TEMPORALS, EXACT, Changed, Taken, Unchangeable, changed_json
from spark_batch.transforms.fields import NULL_KEY, OfFields, Opened
from spark_batch.transforms.form import FormKey, Inapplicable, KeyKind, KeysRefused, KeyValues, Side
from spark_batch.transforms.java_dates import DAY_MS, SURE_BELOW_MS, SURE_FROM_MS, java_date_text

if TYPE_CHECKING:
    from pyspark.sql import Column

_TARGETS: dict[str, AvroType] = {
    "int8": Narrow(8),
    "int16": Narrow(16),
    "int32": Primitive.INT,
    "int64": Primitive.LONG,
    "float32": Primitive.FLOAT,
    "float64": Primitive.DOUBLE,
    "boolean": Primitive.BOOLEAN,
    "string": Primitive.STRING,
}
_BITS: dict[AvroType, int] = {Narrow(8): 8, Narrow(16): 16, Primitive.INT: 32, Primitive.LONG: 64}
_SPARK: dict[AvroType, str] = {
    Narrow(8): "tinyint",
    Narrow(16): "smallint",
    Primitive.INT: "int",
    Primitive.LONG: "bigint",
    Primitive.FLOAT: "float",
    Primitive.DOUBLE: "double",
    Primitive.BOOLEAN: "boolean",
    Primitive.STRING: "string",
}
_FLOATS = {Primitive.FLOAT, Primitive.DOUBLE}
_WHOLE = re.compile(r"[+-]?\d+")
_SURE_WHOLE = r"\A[+-]?[0-9]{1,18}\z"
_NUMBER = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?")
_HEXADECIMAL = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[dDfF]?")
_SURE_NUMBER = r"\A[+-]?[0-9]{1,15}(?:\.[0-9]{1,15})?(?:[eE][+-]?[0-9]{1,2})?\z"
_BLANKS = "".join(map(chr, range(33)))
"""What Java cuts from both ends of a text before it reads a number of floating point."""
_DIGITS_MAX = 400


def _wrapped(number: int, bits: int) -> Number:
    """The lowest bits, as Java has it."""
    half = 1 << (bits - 1)
    return Number((number + half) % (2 * half) - half)


def _out_of_range() -> Inapplicable:
    return Inapplicable(Reason.OUT_OF_RANGE, "expected a value in the range of the type that it is cast to")


def connect_kind(kind: AvroType) -> AvroType:
    """What a type is to Connect: dates and times in microseconds are plain numbers, symbols and UUIDs texts."""
    if isinstance(kind, Temporal) and kind not in CONNECT_TEMPORALS:
        return Primitive.LONG
    return Primitive.STRING if isinstance(kind, (Enum, Uuid)) else kind


@dataclass(frozen=True)
class To:
    """Casts to a type, as Java does: whole numbers keep their lowest bits, fractions are cut, texts are read."""

    target: AvroType

    def kind(self, kind: AvroType) -> AvroType:
        """The target, from every type that has one value."""
        source = connect_kind(kind)
        if isinstance(source, (Temporal, Decimal, Narrow)) or source in _SPARK:
            return self.target
        if (source is Primitive.BYTES or isinstance(source, Fixed)) and self.target is Primitive.STRING:
            return self.target
        raise Unchangeable("a field of numbers, text, booleans or dates, or bytes that become text")

    def column(self, kind: AvroType, value: Column) -> Changed:
        """Spark's casts are Java's without ANSI; texts are sure where they are plain numbers."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        if isinstance(kind, Decimal) and kind.is_wide:
            nothing = F.lit(None).cast(_SPARK[self.target])
            changed = Changed(nothing, F.lit(False))  # noqa: FBT003 - a literal
        else:
            changed = self._column(kind, value)
        # Numbers of 8 and 16 bits are carried by Avro's int.
        return replace(changed, value=changed.value.cast("int")) if isinstance(self.target, Narrow) else changed

    def _column(  # noqa: PLR0911 - one line a type
        self, kind: AvroType, value: Column
    ) -> Changed:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        source, target = connect_kind(kind), self.target
        if isinstance(kind, Temporal):
            from spark_batch.instant_columns import instant_number  # noqa: PLC0415 - it imports Spark

            value = instant_number(kind, value)
            if isinstance(source, Temporal) and target is Primitive.STRING:
                millis = value.cast("bigint") * (DAY_MS if source is Temporal.DATE else 1)
                is_sure = millis.between(SURE_FROM_MS, SURE_BELOW_MS - 1)
                return Changed(_date_text(F.when(is_sure, millis)), is_sure)
        if source is Primitive.BYTES or isinstance(source, Fixed):
            return Changed(F.base64(value))
        if source is Primitive.STRING:
            return self._of_text(value)
        if source is Primitive.BOOLEAN or target is Primitive.STRING:
            return Changed(value.cast(_SPARK[target]))
        if target is Primitive.BOOLEAN:
            return Changed(value.cast("bigint") != 0)
        if isinstance(source, Decimal):
            whole = F.abs(value) < F.lit(2**31 - 1)
            return Changed(value.cast(_SPARK[target]), None if target in _FLOATS else whole)
        if target is Primitive.FLOAT and source is Primitive.DOUBLE:
            return Changed(value.cast("float"), F.abs(value) <= F.lit(FLOAT_MAX))
        if isinstance(target, Narrow):
            value = value.cast("int")
        return Changed(value.cast(_SPARK[target]))

    def _of_text(self, value: Column) -> Changed:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        if self.target is Primitive.STRING:
            return Changed(value.cast("string"))
        if self.target is Primitive.BOOLEAN:
            return Changed(F.lower(value) == "true", F.octet_length(value) == F.length(value))
        if self.target in _FLOATS:
            number = F.when(value.rlike(_SURE_NUMBER), value).cast(_SPARK[self.target])
            return Changed(number, F.abs(number) <= F.lit(FLOAT_MAX))
        number = F.when(value.rlike(_SURE_WHOLE), value).cast("bigint")
        half = 1 << (_BITS[self.target] - 1)
        number = F.when(number.between(-half, half - 1), number)
        carrier = "bigint" if self.target is Primitive.LONG else "int"
        return Changed(number.cast(carrier), number.isNotNull())

    def canonical(  # noqa: PLR0911 - one line a type
        self, kind: AvroType, value: JsonValue
    ) -> JsonValue:
        """One value; raises Inapplicable where Java does, and for numbers that would become infinite."""
        source, target = connect_kind(kind), self.target
        if target is Primitive.STRING:
            return self._text(source, value)
        if isinstance(value, bool):
            if target is Primitive.BOOLEAN:
                return value
            return Number(f"{int(value)}.0" if target in _FLOATS else int(value))
        if not isinstance(value, Number):
            return self._read(value)
        if source in _FLOATS:
            return self._of_floating(_floating(source, value))
        number = ExactNumber(value)
        if target in _FLOATS:
            return self._nearest(value)
        whole = int(number)
        if target is Primitive.BOOLEAN:
            return _wrapped(whole, 64) != "0"
        return _wrapped(whole, _BITS[target])

    def _text(self, source: AvroType, value: JsonValue) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(source, Temporal):
            return java_date_text(int(value) * (DAY_MS if source is Temporal.DATE else 1))
        if source in _FLOATS:
            number = float(value)
            return floating_text(source, value) if math.isfinite(number) else _not_finite(number)
        if isinstance(source, Decimal):
            return str(ExactNumber(value).quantize(ExactNumber((0, (1,), -source.scale)), context=EXACT))
        return str(int(value)) if isinstance(value, Number) else str(value)

    def _of_floating(self, number: float) -> JsonValue:
        target = self.target
        if target in _FLOATS:
            if target is Primitive.FLOAT and math.isfinite(number) and abs(number) >= FLOAT_BOUND:
                raise _out_of_range()
            return self._nearest(repr(number))
        bits = 64 if target in {Primitive.LONG, Primitive.BOOLEAN} else 32
        half = 1 << (bits - 1)
        whole = 0 if math.isnan(number) else half - 1 if number >= half else -half if number < -half else int(number)
        if target is Primitive.BOOLEAN:
            return whole != 0
        return _wrapped(whole, _BITS[target])

    def _read(self, text: str) -> JsonValue:
        """A text, read as Java's parsers of each type read it."""
        target = self.target
        if target is Primitive.BOOLEAN:
            return text.lower() == "true"
        if target in _FLOATS:
            return self._read_floating(text.strip(_BLANKS))
        if len(text) > _DIGITS_MAX or not _WHOLE.fullmatch(text):
            raise _out_of_range()
        number, half = int(text), 1 << (_BITS[target] - 1)
        if not -half <= number < half:
            raise _out_of_range()
        return Number(number)

    def _read_floating(self, text: str) -> Number:
        found, other = _NUMBER.fullmatch(text), _HEXADECIMAL.fullmatch(text)
        if len(text) > _DIGITS_MAX or not (found or other):
            raise _out_of_range()
        try:
            number = float(found[1]) if found else float.fromhex(other[1])  # type: ignore[index] # one of them is there
        except OverflowError as error:
            raise _out_of_range() from error
        return self._nearest(found[1] if found else repr(number))

    def _nearest(self, literal: str) -> Number:
        """The nearest number of floating point; raises Inapplicable where that is not finite."""
        number = float(literal)
        is_finite = math.isfinite(number)
        if self.target is Primitive.FLOAT and is_finite and abs(number) >= FLOAT_BOUND:
            # The double may be at the bound where the literal, of which nothing must be rounded, is just below it.
            is_finite = ExactNumber(literal).copy_abs() < FLOAT_BOUND
        if not is_finite:
            raise _out_of_range()
        return Number(floating_text(self.target, Number(literal)))


def _floating(kind: AvroType, literal: Number) -> float:
    """The number that a literal is in its type; a sink's Avro may hold numbers that are not finite."""
    number = float(literal)
    return floating(kind, literal) if math.isfinite(number) else number


def _not_finite(number: float) -> str:
    return "NaN" if math.isnan(number) else f"{'-' if number < 0 else ''}Infinity"


def _date_text(millis: Column) -> Column:
    """As `java_date_text` writes them."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

    instant = F.timestamp_millis(millis)
    return (
        F.when(millis < DAY_MS, F.date_format(instant, "HH:mm:ss.SSS'Z'"))
        .when(millis % DAY_MS == 0, F.date_format(instant, "yyyy-MM-dd"))
        .otherwise(F.date_format(instant, "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'"))
    )


@dataclass(frozen=True)
class Cast(OfFields):
    """Other types for fields, or for the whole."""

    casts: tuple[tuple[str, To], ...] = ()
    all_to: To | None = None

    NAME: ClassVar[str] = "Cast"
    ABOUT: ClassVar[str] = "Casts fields, or the whole key or value, to other types."
    PURPOSE: ClassVar[str] = "cast types"
    NAMING_KEY: ClassVar[str] = "spec"
    is_optional_kept: ClassVar[bool] = True
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey(
            "spec",
            "``field:type`` with commas between, or one type for the whole. "
            "Types: int8, int16, int32, int64, float32, float64, boolean, string.",
            KeyKind.NAMES,
            is_required=True,
            is_important=True,
        ),
        NULL_KEY,
    )

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> Cast:
        """Refuses types that there are not, and a type for the whole beside others."""
        del is_sink
        found: dict[str, To] = {}
        whole = None
        for item in values["spec"]:
            name, colon, type_name = item.rstrip(":").partition(":")
            target = _TARGETS.get((type_name if colon else name).strip().lower())
            if target is None:
                raise KeysRefused(("spec", f"field:type with a type of {', '.join(_TARGETS)}, not {item}"))
            if colon:
                found[name.strip()] = To(target)
            else:
                whole = To(target)
        if whole is not None and len(values["spec"]) > 1:
            raise KeysRefused(("spec", "one type alone, where it is for the whole"))
        return cls(side, values["replace.null.with.default"], tuple(found.items()), whole)

    @property
    def whole(self) -> To | None:
        """The cast of the whole."""
        return self.all_to

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """All fields; names that the record does not have are of no account, as in Connect."""
        del name
        casts = dict(self.casts)
        return tuple(Taken(field.name, (field.name,), casts.get(field.name)) for field in record.fields)

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """A field that is not there is null afterwards, as in Connect."""
        return {**fields, **{name: changed_json(to, value_of(fields.get(name))) for name, to in self.casts}}
