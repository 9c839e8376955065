"""Columns from single fields of a payload by path: de-duplication hash, untyped keys and timestamps.

These read the variant, so they need no contract. What is not plain (a fraction, an object, a name no path can express)
gives null here and is left to the exact path, which writes the same bytes (`exact.fields`).
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.exact.instants import unit_range
from spark_batch.serialize.connect_json import json_text
from spark_batch.variant_paths import PAYLOAD, text_at, variant_at

if TYPE_CHECKING:
    from pyspark.sql import Column

from spark_batch.avro_types import Temporal

_PLAIN_INTEGER = "^-?[0-9]{1,18}$"


def dedupe_hash(paths: tuple[str, ...]) -> Column:
    """16 bytes over the fields' kinds and values; over the whole payload where none of the fields is there."""
    parts = reduce(F.concat, [_encoded(tuple(path.split("."))) for path in paths])
    whole = F.concat(F.lit("P"), F.col(PAYLOAD))
    text = F.when(parts == "m" * len(paths), whole).otherwise(F.concat(F.lit("F"), parts))
    return F.unhex(F.md5(text.cast("binary")))


def _encoded(names: tuple[str, ...]) -> Column:
    found, text = variant_at(names), text_at(names)
    if found is None or text is None:
        return F.lit(None).cast("string")
    written = F.to_json(found)
    return (
        F.when(found.isNull(), F.lit("m"))
        .when(written.startswith('"'), F.concat(F.lit("s"), F.octet_length(text).cast("string"), F.lit(":"), text))
        .when(written.rlike(_PLAIN_INTEGER), F.concat(F.lit("i"), written, F.lit(";")))
        .when(written == "null", F.lit("n"))
        .when(written.isin("true", "false"), F.concat(F.lit("b"), written, F.lit(";")))
    )


def loose_json(name: str) -> Column | None:
    """JSON text of a top-level field (`null` where it is missing), null where it is not plain."""
    found, text = variant_at((name,)), text_at((name,))
    if found is None or text is None:
        return None
    written = F.to_json(found)
    is_plain = written.rlike(_PLAIN_INTEGER) | written.isin("null", "true", "false")
    return (
        F.when(found.isNull(), F.lit("null")).when(written.startswith('"'), json_text(text)).when(is_plain, written)
    )


def loose_text(name: str) -> Column | None:
    """Text of a top-level field: itself where it is text, JSON otherwise; null where it is missing, null or not plain."""
    found, text = variant_at((name,)), text_at((name,))
    if found is None or text is None:
        return None
    written = F.to_json(found)
    is_plain = written.rlike(_PLAIN_INTEGER) | written.isin("true", "false")
    return F.when(written.startswith('"'), text).when(is_plain, written)


def loose_timestamp(path: str) -> tuple[Column, Column]:
    """Milliseconds at a path (null where missing or null), and whether that could be told for certain."""
    found = variant_at(tuple(path.split(".")))
    if found is None:
        return F.lit(None).cast("bigint"), F.lit(False)  # noqa: FBT003 - a literal
    low, high = unit_range(Temporal.TIMESTAMP_MILLIS)
    number = F.when(F.schema_of_variant(found) == "BIGINT", F.to_json(found)).cast("bigint")
    is_absent = found.isNull() | F.coalesce(F.is_variant_null(found), F.lit(False))  # noqa: FBT003 - a literal
    is_number = F.coalesce(number.between(low, high), F.lit(False))  # noqa: FBT003 - a literal
    return F.when(is_number, number), is_absent | is_number
