"""Coercion in Spark columns: a place that may hold a text for a value, read as variant or as text.

Says the same as `exact.coercing` wherever the proof is true; where it is not, the exact path decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.avro_types import DOUBLE_MAX, FLOAT_MAX, AvroType, Decimal, Enum, Primitive, Slot, Temporal, unit_range
from spark_batch.coerced_arrow import INTEGER_TEXT, REAL_TEXT, decimal_text
from spark_batch.coercion import ASCII_LOWER, ASCII_UPPER, Coercion, folded_symbols


@dataclass(frozen=True)
class CoercedValue:
    """A value (dates and times as numbers), whether it is sure, and whether a text was taken for it."""

    value: Column
    proof: Column
    is_coerced: Column


def is_read_as_variant(slot: Slot) -> bool:
    """Whether the place is read as variant, to tell a text from what it may be taken for."""
    kind = slot.type
    is_literal = isinstance(kind, (Temporal, Decimal)) or kind in _LITERALS
    return slot.coercion is not None and is_literal


def coerced_literal(slot: Slot, coercion: Coercion, raw: Column) -> CoercedValue:
    """A number, boolean, date or time of a variant that is not a variant's null."""
    found = F.schema_of_variant(raw)
    is_text = F.coalesce(found == "STRING", F.lit(False))  # noqa: FBT003 - a literal
    text = F.when(is_text, F.try_variant_get(raw, "$", "string")).otherwise(F.to_json(raw))
    value, is_sure = _literal(slot.type, text, found, is_text)
    if coercion.pattern is not None or not coercion.is_taken:
        is_sure = is_sure & ~is_text
    if not coercion.is_empty_null:
        return CoercedValue(value, is_sure, is_text)
    is_empty = is_text & (text == "")
    return CoercedValue(F.when(~is_empty, value), is_empty | is_sure, is_text)


def coerced_symbol(kind: Enum, coercion: Coercion, raw: Column) -> CoercedValue:
    """A symbol from a text; null where it is none."""
    exact = F.when(raw.isin(*kind.symbols), raw)
    value = exact
    if coercion.is_taken:
        folded = F.translate(raw, ASCII_UPPER, ASCII_LOWER)
        meant = [F.when(folded == F.lit(text), F.lit(symbol)) for text, symbol in folded_symbols(kind.symbols).items()]
        value = F.coalesce(exact, *meant)
    return CoercedValue(value, value.isNotNull(), raw.isNotNull() & exact.isNull())


def _literal(kind: AvroType, text: Column, found: Column, is_text: Column) -> tuple[Column, Column]:
    """The value of a literal (null where it is not surely one), and where it is sure."""
    if isinstance(kind, Temporal):
        number = _whole(text, found, is_text)
        value = F.when(number.between(*unit_range(kind)), number)
    elif isinstance(kind, Decimal):
        is_exact = text.rlike(decimal_text(kind)) & (found != "DOUBLE")
        value = F.when(is_exact, text).cast(f"decimal({kind.precision},{kind.scale})")
    elif kind is Primitive.BOOLEAN:
        folded = F.translate(text, ASCII_UPPER, ASCII_LOWER)
        value = F.when((is_text | (found == "BOOLEAN")) & folded.isin("true", "false"), folded == "true")
    elif kind is Primitive.LONG:
        value = _whole(text, found, is_text)
    elif kind is Primitive.INT:
        number = _whole(text, found, is_text)
        value = F.when(number.between(-(2**31), 2**31 - 1), number).cast("int")
    else:
        value = _real(kind, text, found, is_text)
    return value, value.isNotNull()


def _whole(text: Column, found: Column, is_text: Column) -> Column:
    """Decimals without fraction look like integers too, but were not written as such."""
    return F.when((is_text | (found == "BIGINT")) & text.rlike(INTEGER_TEXT), text).cast("bigint")


def _real(kind: AvroType, text: Column, found: Column, is_text: Column) -> Column:
    """The sign of a zero is lost in a variant's decimal, and an integer has none."""
    limit = FLOAT_MAX if kind is Primitive.FLOAT else DOUBLE_MAX
    is_number = (is_text | (found != "BOOLEAN")) & text.rlike(REAL_TEXT)
    number = F.when(is_number, text).cast(str(kind))
    is_plain = (number != 0) | (found == "BIGINT") | (is_text & ~text.startswith("-"))
    return F.when(number.between(-limit, limit) & is_plain, number)


_LITERALS = {Primitive.BOOLEAN, Primitive.INT, Primitive.LONG, Primitive.FLOAT, Primitive.DOUBLE}
