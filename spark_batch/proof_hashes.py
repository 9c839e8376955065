"""De-duplication hashes of proven records, written from their columns: the same bytes as `payload_fields` writes.

Spark's only way to these 16 bytes makes hexadecimal text of every digest and reads it back; that and compiling it cost
more than everything here. The texts are made in whole columns, and digested one by one in C.
"""

from __future__ import annotations

from hashlib import md5

import pyarrow as pa

from spark_batch.outcome import ArrowColumn
from spark_batch.prepass import pc


def dedupe_hashes(records: ArrowColumn, paths: tuple[tuple[str, ...], ...]) -> ArrowColumn:
    """16 bytes over kinds and values of the fields at these paths; null can only mean that a field is missing."""
    parts = [pc.fill_null(_text(pc.struct_field(records, list(path))), "m") for path in paths]
    texts = pc.binary_join_element_wise("F", *parts, "").cast(pa.binary())
    return pa.array([md5(text, usedforsecurity=False).digest() for text in texts.to_pylist()], pa.binary())


def _text(column: ArrowColumn) -> ArrowColumn:
    """Kind and value, unambiguous."""
    if pa.types.is_string(column.type):
        return pc.binary_join_element_wise("s", pc.binary_length(column).cast(pa.string()), ":", column, "")
    kind = "b" if pa.types.is_boolean(column.type) else "i"
    return pc.binary_join_element_wise(kind, column.cast(pa.string()), ";", "")
