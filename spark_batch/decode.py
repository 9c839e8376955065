"""Columns from a parsed payload to typed values, each with the proof that the value is exact.

`from_json` is not strict (see the record of its holes in the design notes); where it cannot be trusted the proof is a
cheap predicate over what it gave. A record whose proof fails is not rejected here: it is *suspicious*, and the exact
path decides. So a proof may be too careful, but never too trusting.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.types import StructField, StructType

from spark_batch.avro_types import (
    DOUBLE_MAX,
    FLOAT_MAX,
    UUID,
    Array,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Slot,
    Temporal,
    Uuid,
    unit_range,
)
from spark_batch.coerced_arrow import decimal_text
from spark_batch.coerced_columns import CoercedValue, coerced_literal, coerced_symbol, is_read_as_variant
from spark_batch.instant_columns import typed_instant
from spark_batch.shapes import canonical_type
from spark_batch.variant_paths import is_bare, keys_at, variant_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

    from spark_batch.coercion import Coercion


@dataclass(frozen=True)
class Place:
    """Where in the payload a value stands: a path for looking it up in the variant, None inside arrays and maps."""

    names: tuple[str, ...] | None
    is_unknown_refused: bool

    def child(self, name: str) -> Place:
        """The place of a field."""
        return Place(None if self.names is None else (*self.names, name), self.is_unknown_refused)

    def inside(self) -> Place:
        """The place of an item or a map's value."""
        return Place(None, self.is_unknown_refused)

    def look_up(self) -> Column | None:
        """The same value in the variant, where a path can name it."""
        return None if self.names is None else variant_at(self.names)


@dataclass(frozen=True)
class Decoded:
    """A typed value, and a column that is true where the value is exact and allowed (None: always).

    `coerced`: the bits of the fields in which a text was taken for a value (None: of none).
    """

    value: Column
    proof: Column | None
    coerced: Column | None = None


def decode_record(record: Record, raw: Column, *, is_unknown_refused: bool) -> Decoded:
    """The whole payload, read as `payload_shape`."""
    return _record(record, raw, Place((), is_unknown_refused))


def _record(record: Record, raw: Column, place: Place) -> Decoded:
    parts = [(field, _field(field, raw.getField(field.json_name), place)) for field in record.fields]
    value = F.struct(*[part.value.alias(field.name) for field, part in parts])
    known = _only_known(record, place) if place.is_unknown_refused else None
    bits = [part.coerced for _, part in parts if part.coerced is not None]
    coerced = reduce(lambda left, right: left.bitwiseOR(right), bits) if bits else None
    return Decoded(value, _all([known, *(part.proof for _, part in parts)]), coerced)


def _only_known(record: Record, place: Place) -> Column:
    keys = None if place.names is None else keys_at(place.names)
    if keys is None:
        return F.lit(False)  # noqa: FBT003 - a literal
    names = [field.json_name for field in record.fields]
    return F.coalesce(F.forall(keys, lambda key: key.isin(*names)), F.lit(False))  # noqa: FBT003 - a literal


def _field(field: Field, raw: Column, place: Place) -> Decoded:
    own = place.child(field.json_name)
    decoded = _slot(field.slot, raw, own)
    if not field.has_value_default:
        return decoded
    written = own.look_up()
    if written is None:
        return Decoded(decoded.value, raw.isNotNull() & _or_true(decoded.proof), decoded.coerced)
    is_missing = raw.isNull() & written.isNull()
    value = F.when(is_missing, canonical_literal(field)).otherwise(decoded.value)
    return Decoded(value, is_missing | _or_true(decoded.proof), decoded.coerced)


def _slot(slot: Slot, raw: Column, place: Place) -> Decoded:
    raw = _without_variant_null(slot, raw)
    decoded = _value(slot.type, raw, place) if slot.coercion is None else _coerced(slot, slot.coercion, raw, place)
    value = F.when(raw.isNotNull(), decoded.value) if isinstance(slot.type, Record) else decoded.value
    if slot.is_nullable:
        return Decoded(value, None if decoded.proof is None else raw.isNull() | decoded.proof, decoded.coerced)
    return Decoded(value, raw.isNotNull() & _or_true(decoded.proof), decoded.coerced)


def _coerced(slot: Slot, coercion: Coercion, raw: Column, place: Place) -> Decoded:
    """Inside arrays and maps no column counts, so that texts taken for values are left to the exact path."""
    kind = slot.type
    if is_read_as_variant(slot):
        found = coerced_literal(slot, coercion, raw)
        value = typed_instant(kind, found.value) if isinstance(kind, Temporal) else found.value
        found = replace(found, value=value)
    elif isinstance(kind, Enum):
        found = coerced_symbol(kind, coercion, raw)
        found = replace(found, proof=found.proof & _is_text(raw, place))
    else:
        plain = _text(kind, raw, place)
        found = CoercedValue(plain.value, _or_true(plain.proof), F.lit(False))  # noqa: FBT003 - a literal
    if coercion.is_empty_null and not is_read_as_variant(slot):
        # Nothing but an empty text is read as one.
        is_empty = raw == ""
        found = CoercedValue(F.when(~is_empty, found.value), is_empty | found.proof, is_empty | found.is_coerced)
    if place.names is None:
        return Decoded(found.value, found.proof & ~found.is_coerced)
    return Decoded(found.value, found.proof, F.when(found.is_coerced, F.lit(coercion.mask)).otherwise(F.lit(0)))


def _value(kind: AvroType, raw: Column, place: Place) -> Decoded:  # noqa: PLR0911 - one line a type
    if isinstance(kind, Record):
        return _record(kind, raw, place)
    if isinstance(kind, Array):
        return _array(kind, raw, place)
    if isinstance(kind, Map):
        return _map(kind, raw, place)
    if isinstance(kind, Temporal):
        return _instant(kind, raw)
    if isinstance(kind, Decimal):
        return _decimal(kind, raw)
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        limit = FLOAT_MAX if kind is Primitive.FLOAT else DOUBLE_MAX
        return Decoded(raw, (raw >= F.lit(-limit)) & (raw <= F.lit(limit)))
    if kind is Primitive.NULL:
        return Decoded(F.lit(None).cast("void"), F.lit(False))  # noqa: FBT003 - a literal
    if kind in {Primitive.BOOLEAN, Primitive.INT, Primitive.LONG}:
        return Decoded(raw, None)
    return _text(kind, raw, place)


def _array(kind: Array, raw: Column, place: Place) -> Decoded:
    inside = place.inside()
    proof = F.forall(raw, lambda item: _or_true(_slot(kind.items, item, inside).proof))
    value = F.transform(raw, lambda item: _slot(kind.items, item, inside).value)
    return Decoded(value, _or_same_text(proof, kind, raw, place))


def _map(kind: Map, raw: Column, place: Place) -> Decoded:
    inside = place.inside()
    proof = F.forall(F.map_values(raw), lambda item: _or_true(_slot(kind.values, item, inside).proof))
    value = F.transform_values(raw, lambda _, item: _slot(kind.values, item, inside).value)
    return Decoded(value, _or_same_text(proof, kind, raw, place))


def _or_same_text(proof: Column, kind: Array | Map, raw: Column, place: Place) -> Column:
    """Texts that look like numbers are texts after all where writing both readings gives the same JSON."""
    inner = kind.items if isinstance(kind, Array) else kind.values
    written = place.look_up()
    if inner.type is not Primitive.STRING or written is None:
        return proof
    values = raw if isinstance(kind, Array) else F.map_values(raw)
    has_nulls = F.exists(values, lambda item: item.isNull())
    is_same = F.to_json(written) == F.to_json(raw, {"ignoreNullFields": "false"})
    return proof | (is_same if inner.is_nullable else is_same & ~has_nulls)


def _is_text(raw: Column, place: Place) -> Column:
    """Where what was read as text stood in quotes, surely."""
    written = place.look_up()
    return ~is_bare(raw) if written is None else ~is_bare(raw) | F.to_json(written).startswith('"')


def _text(kind: AvroType, raw: Column, place: Place) -> Decoded:
    proof = _is_text(raw, place)
    if isinstance(kind, Enum):
        return Decoded(raw, raw.isin(*kind.symbols) & proof)
    if isinstance(kind, Uuid):
        return Decoded(raw, raw.rlike(rf"\A{UUID}\z"))
    if isinstance(kind, Fixed) or kind is Primitive.BYTES:
        value = F.try_to_binary(raw, F.lit("base64"))
        is_canonical = F.coalesce(F.base64(value) == raw, F.lit(False))  # noqa: FBT003 - a literal
        size = getattr(kind, "size", None)
        return Decoded(value, proof & (is_canonical if size is None else is_canonical & (F.length(value) == size)))
    return Decoded(raw, proof)


def _decimal(kind: Decimal, raw: Column) -> Decoded:
    text = F.to_json(raw)
    is_exact = text.rlike(decimal_text(kind)) & (F.schema_of_variant(raw) != "DOUBLE")
    return Decoded(F.when(is_exact, text).cast(f"decimal({kind.precision},{kind.scale})"), is_exact)


def _instant(kind: Temporal, raw: Column) -> Decoded:
    low, high = unit_range(kind)
    number = F.when(F.schema_of_variant(raw) == "BIGINT", F.to_json(raw)).cast("bigint")
    number = F.when(number.between(low, high), number)
    return Decoded(typed_instant(kind, number), number.isNotNull())


def canonical_value(kind: AvroType, raw: Column) -> Column:
    """The typed value of a canonical one, read as `canonical_shape`; nothing is left to prove."""
    if isinstance(kind, Record):
        fields = [canonical_value(f.slot.type, raw.getField(f.name)).alias(f.name) for f in kind.fields]
        return F.when(raw.isNotNull(), F.struct(*fields))
    if isinstance(kind, Array):
        return F.transform(raw, lambda item: canonical_value(kind.items.type, item))
    if isinstance(kind, Map):
        return F.transform_values(raw, lambda _, item: canonical_value(kind.values.type, item))
    if isinstance(kind, Temporal):
        return typed_instant(kind, raw)
    return F.lit(None).cast("void") if kind is Primitive.NULL else raw


def proven_record(record: Record, raw: Column) -> Column:
    """The typed record of one that Arrow has read and proven: a field with a default was missing where it is null."""
    fields = [_proven_field(field, raw.getField(field.name)).alias(field.name) for field in record.fields]
    return F.when(raw.isNotNull(), F.struct(*fields))


def _proven_field(field: Field, raw: Column) -> Column:
    kind = field.slot.type
    value = proven_record(kind, raw) if isinstance(kind, Record) else canonical_value(kind, raw)
    return F.when(raw.isNull(), canonical_literal(field)).otherwise(value) if field.has_value_default else value


def canonical_literal(field: Field) -> Column:
    """The field's default as a typed value."""
    kind = field.slot.type
    shape = StructType([StructField("default", canonical_type(kind))])
    parsed = F.from_json(F.lit(f'{{"default":{field.default}}}'), shape)
    return canonical_value(kind, parsed.getField("default"))


def _without_variant_null(slot: Slot, raw: Column) -> Column:
    if isinstance(slot.type, (Decimal, Temporal)) or is_read_as_variant(slot):
        return F.when(~F.is_variant_null(raw), raw)
    return raw


def _or_true(proof: Column | None) -> Column:
    return F.lit(True) if proof is None else proof  # noqa: FBT003 - a literal


def _all(proofs: Iterable[Column | None]) -> Column | None:
    given = [proof for proof in proofs if proof is not None]
    return reduce(lambda left, right: left & right, given) if given else None
