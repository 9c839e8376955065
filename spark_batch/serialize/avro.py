"""Avro in Confluent's wire format, encoded by spark-avro.

Framing: a zero byte, the registry's schema id as 4 bytes big-endian, the Avro binary body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.avro.functions import to_avro

if TYPE_CHECKING:
    from pyspark.sql import Column


def framed_avro(value: Column, *, avro_schema: str | None, schema_id: int | None) -> Column:
    """The value (null stays null) framed and encoded; raises ValueError where the plan has no schema id yet."""
    if avro_schema is None or schema_id is None:
        message = "an Avro conversion needs the registry's schema id: ConversionPlan.with_schema_ids"
        raise ValueError(message)
    frame = F.lit(bytearray(b"\x00" + schema_id.to_bytes(4, "big")))
    return F.concat(frame, to_avro(value, avro_schema))
