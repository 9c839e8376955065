"""`MaskField`: puts nothing, or a fixed text or number, in the place of what fields hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spark_batch.avro_types import Array, AvroType, Decimal, JsonValue, Map, Narrow, Primitive, Record, Temporal
from spark_batch.literals.floating import floating_text
from spark_batch.literals.numbers import exact_number
from spark_batch.literals.reading import Number
from spark_batch.transforms.change import CONNECT_TEMPORALS, Changed, Taken, Unchangeable, changed_json
from spark_batch.transforms.fields import NULL_KEY, OfFields, Opened
from spark_batch.transforms.form import FormKey, KeyKind, KeyValues, Side

if TYPE_CHECKING:
    from pyspark.sql import Column

_SPARK: dict[AvroType, str] = {Primitive.LONG: "bigint", Primitive.FLOAT: "float", Primitive.DOUBLE: "double"}
_BITS: dict[AvroType, int] = {Narrow(8): 8, Narrow(16): 16, Primitive.INT: 32, Primitive.LONG: 64}


@dataclass(frozen=True)
class Mask:
    """Nothing of the type, or the replacement read as the type; what is null stays null."""

    replacement: str | None

    def kind(self, kind: AvroType) -> AvroType:
        """The same."""
        self._constant(kind)
        return kind

    def column(self, kind: AvroType, value: Column) -> Changed:
        """The constant, wherever there is a value."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        constant = self._constant(kind)
        if isinstance(kind, Array):
            return Changed(F.when(value.isNotNull(), F.slice(value, 1, 0)))
        if isinstance(kind, Map):
            return Changed(F.when(value.isNotNull(), F.map_filter(value, lambda _key, _value: F.lit(False))))  # noqa: FBT003
        if isinstance(kind, Decimal) and kind.is_wide:
            return Changed(F.lit(None).cast("binary"), F.lit(False))  # noqa: FBT003 - a literal
        if isinstance(kind, (Temporal, Decimal)) or isinstance(constant, Number):
            from spark_batch.instant_columns import typed_instant  # noqa: PLC0415 - it imports Spark

            if isinstance(kind, Temporal):
                return Changed(F.when(value.isNotNull(), typed_instant(kind, F.lit(int(constant)).cast("bigint"))))
            name = f"decimal({kind.precision},{kind.scale})" if isinstance(kind, Decimal) else _SPARK.get(kind, "int")
            return Changed(F.when(value.isNotNull(), F.lit(str(constant)).cast(name)))
        return Changed(F.when(value.isNotNull(), F.lit(constant)))

    def canonical(self, kind: AvroType, value: JsonValue) -> JsonValue:
        """The constant."""
        del value
        return self._constant(kind)

    def _constant(self, kind: AvroType) -> JsonValue:  # noqa: PLR0911 - one line a type
        """What stands in the place of every value; raises Unchangeable."""
        if kind is Primitive.STRING:
            return self.replacement or ""
        if isinstance(kind, Temporal) and kind not in CONNECT_TEMPORALS:
            kind = Primitive.LONG
        if self.replacement is not None:
            return self._number(kind, self.replacement)
        if isinstance(kind, Array):
            return []
        if isinstance(kind, Map):
            return {}
        if kind is Primitive.BOOLEAN:
            return False
        if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
            return Number("0.0")
        if kind in _BITS or isinstance(kind, (Temporal, Decimal)):
            return Number("0")
        raise Unchangeable("a field of text, numbers, booleans, dates, arrays or maps")

    def _number(self, kind: AvroType, text: str) -> Number:
        """Of numbers that are too large the lowest bits count, as in Java, and of fractions the whole part."""
        try:
            number = exact_number(text)
        except ArithmeticError:
            number = None
        if number is None or not number.is_finite():
            raise Unchangeable("a field of text, or a replacement that is a number")
        if isinstance(kind, Decimal):
            digits = number.as_tuple()
            if -int(digits.exponent) != kind.scale or len(digits.digits) > kind.precision:
                raise Unchangeable(f"a replacement of {kind.scale} digits behind the point, as the field has")
            return Number(f"{number:f}")
        if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
            return Number(floating_text(kind, Number(text)))
        if kind not in _BITS:
            raise Unchangeable("a field of text or of numbers, where there is a replacement")
        half = 1 << (_BITS[kind] - 1)
        return Number((int(number) + half) % (2 * half) - half)


@dataclass(frozen=True)
class MaskField(OfFields):
    """Puts nothing, or a fixed text or number, in the place of what fields hold."""

    fields: tuple[str, ...] = ()
    mask: Mask = Mask(None)

    NAME: ClassVar[str] = "MaskField"
    ABOUT: ClassVar[str] = "Puts zero, an empty text or a replacement in the place of what fields hold."
    PURPOSE: ClassVar[str] = "mask fields"
    NAMING_KEY: ClassVar[str] = "fields"
    takes_nulls: ClassVar[bool] = True
    refuses_nulls: ClassVar[bool] = True
    is_optional_kept: ClassVar[bool] = True
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("fields", "Names of the fields.", KeyKind.NAMES, is_required=True, is_important=True),
        FormKey(
            "replacement",
            "What stands there instead, in fields of text and numbers; zero, an empty text and so on when not given.",
            KeyKind.FILLED,
            is_slight=True,
        ),
        NULL_KEY,
    )

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> MaskField:
        """Made of the values of its keys."""
        del is_sink
        return cls(side, values["replace.null.with.default"], values["fields"], Mask(values["replacement"]))

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """All fields; names that the record does not have are of no account, as in Connect."""
        del name
        return tuple(
            Taken(field.name, (field.name,), self.mask if field.name in self.fields else None)
            for field in record.fields
        )

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """A field that is not there is null afterwards, as in Connect."""
        return {**fields, **{name: changed_json(self.mask, value_of(fields.get(name))) for name in self.fields}}
