"""JSON as Kafka Connect's JsonConverter writes it, with and without the schema envelope."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.avro.functions import to_avro

from spark_batch.avro_types import Array, AvroType, Decimal, JsonValue, Map, Record, Temporal
from spark_batch.connect_documents import document_text
from spark_batch.instant_columns import instant_number

if TYPE_CHECKING:
    from pyspark.sql import Column


def json_text(text: Column) -> Column:
    """Text as a JSON string; `null` where it is null."""
    return _unlisted(F.to_json(F.array(text)))


def _unlisted(listed: Column) -> Column:
    """The one item of a JSON array, none of whose ends is a bracket: a string, a number or a word.

    To cut by the length would name the array twice, and Spark would write it twice: within a condition it does not
    share what two branches have in common.
    """
    return F.btrim(listed, F.lit("[]"))


def any_json_text(kind: AvroType, value: Column, *, is_decimal_numeric: bool) -> Column:
    """A typed value as JSON; `null` where it is null."""
    payload = json_payload(kind, value, is_decimal_numeric=is_decimal_numeric)
    if isinstance(kind, (Record, Array, Map)):
        return F.coalesce(F.to_json(payload, {"ignoreNullFields": "false"}), F.lit("null"))
    return _unlisted(F.to_json(F.array(payload)))


def enveloped(document: JsonValue, payload: Column, *, is_decimal_numeric: bool) -> Column:
    """The payload's JSON text with this Connect schema."""
    schema = document_text(document, is_decimal_numeric=is_decimal_numeric)
    return F.concat(F.lit(f'{{"schema":{schema},"payload":'), payload, F.lit("}"))


def json_payload(kind: AvroType, value: Column, *, is_decimal_numeric: bool) -> Column:
    """A typed value in the form whose `to_json` is what Connect writes.

    Spark and Connect both write a decimal's number as Java's BigDecimal says it, with every digit of its scale.
    """
    inner = partial(json_payload, is_decimal_numeric=is_decimal_numeric)
    if isinstance(kind, Record):
        fields = [inner(f.slot.type, value.getField(f.name)).alias(f.name) for f in kind.fields]
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(kind, Array):
        return F.transform(value, lambda item: inner(kind.items.type, item))
    if isinstance(kind, Map):
        return F.transform_values(value, lambda _, item: inner(kind.values.type, item))
    if isinstance(kind, Decimal):
        return value if is_decimal_numeric else F.base64(value) if kind.is_wide else _unscaled_base64(kind, value)
    return instant_number(kind, value) if isinstance(kind, Temporal) else value


def _unscaled_base64(kind: Decimal, value: Column) -> Column:
    """Base64 of the unscaled value, two's complement, shortest form: taken from Avro's own encoding of it.

    Avro writes bytes as a length (one byte here, as 38 digits need at most 16) and the bytes.
    """
    schema = {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    encoded = to_avro(value, json.dumps(schema))
    return F.base64(F.substring(encoded, 2, 1 << 10))
