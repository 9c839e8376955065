"""Whether what expressions of Spark SQL have made can be written: JSON has no NaN, and no text is other than UTF-8."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from spark_batch.avro_types import Array, AvroType, Map, Primitive

if TYPE_CHECKING:
    from pyspark.sql import Column


def can_be_written(values: Sequence[tuple[AvroType, Column]]) -> Column | None:
    """Where all of the values can; None: everywhere. Null can."""
    proofs = [F.coalesce(proof, F.lit(True)) for kind, value in values if (proof := _proof(kind, value)) is not None]  # noqa: FBT003 - a literal
    return reduce(lambda left, right: left & right, proofs) if proofs else None


def _proof(kind: AvroType, value: Column) -> Column | None:
    if kind in {Primitive.FLOAT, Primitive.DOUBLE}:
        # NaN is larger than everything to Spark.
        return (value < F.lit(math.inf)) & (value > F.lit(-math.inf))
    if kind is Primitive.STRING:
        return F.is_valid_utf8(value)
    if isinstance(kind, Array) and _proof(kind.items.type, value) is not None:
        return F.forall(value, lambda item: _of_item(kind.items.type, item))
    if isinstance(kind, Map):
        keys = F.forall(F.map_keys(value), F.is_valid_utf8)
        if _proof(kind.values.type, value) is None:
            return keys
        return keys & F.forall(F.map_values(value), lambda item: _of_item(kind.values.type, item))
    return None


def _of_item(kind: AvroType, item: Column) -> Column:
    proof = _proof(kind, item)
    return F.lit(True) if proof is None else F.coalesce(proof, F.lit(True))  # noqa: FBT003 - literals
