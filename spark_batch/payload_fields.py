"""Columns from single fields of a payload by path: de-duplication hash, untyped keys and timestamps.

These read the variant, so they need no contract. What is not plain (a fraction, an object, a name no path can express)
gives null here and is left to the exact path, which writes the same bytes (`exact.fields`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.avro_types import AvroType, Enum, Primitive, Record, Temporal, Uuid, unit_range
from spark_batch.serialize.connect_json import json_text
from spark_batch.variant_paths import PAYLOAD, is_bare, text_at, variant_at

_PLAIN_INTEGER = r"\A-?[0-9]{1,18}\z"
_TEXT = "__headrace_text_"
_TYPED = {Primitive.STRING, Primitive.INT, Primitive.LONG, Primitive.BOOLEAN}


@dataclass(frozen=True)
class DedupeField:
    """One field of the de-duplication hash: its path, and the contract's type there (None: not known)."""

    names: tuple[str, ...]
    kind: AvroType | None
    avro_names: tuple[str, ...]

    @property
    def is_typed(self) -> bool:
        """Whether the typed record tells kind and value, so that the variant need not be asked."""
        return self.kind in _TYPED or isinstance(self.kind, (Enum, Uuid))


def dedupe_fields(paths: tuple[str, ...], record: Record | None) -> tuple[DedupeField, ...]:
    """The paths with what the contract says of them."""
    return tuple(_dedupe_field(tuple(path.split(".")), record) for path in paths)


def dedupe_texts(fields: tuple[DedupeField, ...]) -> list[Column]:
    """Columns to be written one step before `dedupe_text` needs them."""
    return [
        _untyped(field.names, text_at).alias(f"{_TEXT}{index}")
        for index, field in enumerate(fields)
        if not field.is_typed
    ]


def dedupe_text(fields: tuple[DedupeField, ...], record: Column) -> Column:
    """Kinds and values of the fields, unambiguous; null where that is for the exact path."""
    return F.concat(*[part for index, field in enumerate(fields) for part in _encoded(index, field, record)])


def dedupe_hash(text: Column, *, count: int) -> Column:
    """16 bytes over kinds and values of `count` fields; over the whole payload where none of them is there."""
    whole = F.concat(F.lit("P"), F.col(PAYLOAD))
    hashed = F.when(text == "m" * count, whole).otherwise(F.concat(F.lit("F"), text))
    return F.unhex(F.md5(hashed.cast("binary")))


def typed_dedupe_hash(fields: tuple[DedupeField, ...], record: Column, *, absent: str = "m") -> Column:
    """The same hash where all fields are typed, some of them are there, and the others are missing.

    `absent`: `n` where what is null is there all the same, as in rows.
    """
    texts = [F.coalesce(_typed_text(field, _field_of(record, field)), F.lit(absent)) for field in fields]
    return F.unhex(F.md5(F.concat(F.lit("F"), *texts).cast("binary")))


def _field_of(record: Column, field: DedupeField) -> Column:
    return reduce(lambda column, name: column.getField(name), field.avro_names, record)


def _dedupe_field(names: tuple[str, ...], record: Record | None) -> DedupeField:
    kind: AvroType | None = record
    avro_names: list[str] = []
    for name in names:
        found = next((f for f in kind.fields if f.json_name == name), None) if isinstance(kind, Record) else None
        if found is None or found.has_value_default or found.slot.coercion is not None:
            # What is compared is what the payload says: "21" is not 21, whatever it is taken for.
            return DedupeField(names, None, ())
        avro_names.append(found.name)
        kind = found.slot.type
    return DedupeField(names, kind, tuple(avro_names))


def _encoded(index: int, field: DedupeField, record: Column) -> list[Column]:
    if field.is_typed:
        value = _field_of(record, field)
        return [F.when(value.isNull(), _absent(field.names)).otherwise(_typed_text(field, value))]
    text = F.col(f"{_TEXT}{index}")
    written = F.to_json(_untyped(field.names, variant_at))
    plain = (
        F.when(~is_bare(text) | written.startswith('"'), _sized(text))
        .when(text.rlike(_PLAIN_INTEGER), F.concat(F.lit("i"), text, F.lit(";")))
        .when(text.isin("true", "false"), F.concat(F.lit("b"), text, F.lit(";")))
    )
    return [F.when(text.isNull(), _absent(field.names)).otherwise(plain)]


def _typed_text(field: DedupeField, value: Column) -> Column:
    if field.kind is Primitive.BOOLEAN:
        return F.concat(F.lit("b"), value.cast("string"), F.lit(";"))
    if field.kind in {Primitive.INT, Primitive.LONG}:
        return F.concat(F.lit("i"), value.cast("string"), F.lit(";"))
    return _sized(value)


def _sized(text: Column) -> Column:
    return F.concat(F.lit("s"), F.octet_length(text).cast("string"), F.lit(":"), text)


def _absent(names: tuple[str, ...]) -> Column:
    """`m` where the field is missing, `n` where it is null, null where it is neither."""
    found = _untyped(names, variant_at)
    return F.when(found.isNull(), F.lit("m")).when(F.is_variant_null(found), F.lit("n"))


def _untyped(names: tuple[str, ...], look_up: Callable[[tuple[str, ...]], Column | None]) -> Column:
    """The look-up, or for names that no path can express something that is neither missing nor null nor plain."""
    found = look_up(names)
    if found is not None:
        return found
    return F.parse_json(F.lit("{}")) if look_up is variant_at else F.lit("{}")


def loose_key(names: tuple[str, ...], *, is_json: bool) -> Column:
    """Bytes of a key of these top-level fields: an object of them, or the text of the only one."""
    if not is_json:
        text = _loose_text(names[0])
        return (F.lit(None).cast("string") if text is None else text).cast("binary")
    parts = []
    for name in names:
        text = _loose_json(name)
        parts += [json_text(F.lit(name)), F.lit(":"), F.lit(None) if text is None else text, F.lit(",")]
    return F.concat(F.lit("{"), *parts[:-1], F.lit("}")).cast("binary")


def is_plain(name: str) -> Column:
    """Whether the key's columns say all of a top-level field."""
    text = _loose_json(name)
    return F.lit(False) if text is None else text.isNotNull()  # noqa: FBT003 - a literal


def _loose_json(name: str) -> Column | None:
    """JSON text of a top-level field (`null` where it is missing), null where it is not plain."""
    found, text = variant_at((name,)), text_at((name,))
    if found is None or text is None:
        return None
    written = F.to_json(found)
    is_word = written.rlike(_PLAIN_INTEGER) | written.isin("null", "true", "false")
    return F.when(found.isNull(), F.lit("null")).when(written.startswith('"'), json_text(text)).when(is_word, written)


def _loose_text(name: str) -> Column | None:
    """A top-level field: itself where it is text, JSON otherwise; null where it is missing, null or not plain."""
    found, text = variant_at((name,)), text_at((name,))
    if found is None or text is None:
        return None
    written = F.to_json(found)
    is_word = written.rlike(_PLAIN_INTEGER) | written.isin("true", "false")
    return F.when(written.startswith('"'), text).when(is_word, written)


def timestamp_at(path: str, record: Record | None, value: Column) -> tuple[Column, Column | None]:
    """Milliseconds at a path (null where missing or null), and whether they could be told for certain (None: surely).

    ``record``: the contract's, whose typed value is given; None: the payload is looked into.
    """
    if record is None:
        return _loose_timestamp(path)
    kind: AvroType = record
    for name in path.split("."):
        field = next(f for f in kind.fields if f.json_name == name)  # type: ignore[union-attr]
        kind, value = field.slot.type, value.getField(field.name)
    return (F.unix_millis(value) if isinstance(kind, Temporal) else value), None


def _loose_timestamp(path: str) -> tuple[Column, Column]:
    found = variant_at(tuple(path.split(".")))
    if found is None:
        return F.lit(None).cast("bigint"), F.lit(False)  # noqa: FBT003 - a literal
    low, high = unit_range(Temporal.TIMESTAMP_MILLIS)
    number = F.when(F.schema_of_variant(found) == "BIGINT", F.to_json(found)).cast("bigint")
    is_absent = found.isNull() | F.coalesce(F.is_variant_null(found), F.lit(False))  # noqa: FBT003 - a literal
    is_number = F.coalesce(number.between(low, high), F.lit(False))  # noqa: FBT003 - a literal
    return F.when(is_number, number), is_absent | is_number
