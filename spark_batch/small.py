"""Small micro-batches of rows: the same plan by the exact path, where starting Spark's work costs more than the work.

Only plans whose outcome is known to be Spark's, byte by byte, are taken (ADR 88 says which, and how that is known);
every other micro-batch, and each on which the exact path fails, is left to Spark.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING

from spark_batch.avro_types import Array, AvroType, Map, Primitive, Record
from spark_batch.convert_exactly import convert_exactly, is_judged_exactly
from spark_batch.errors import ConversionError
from spark_batch.row_bytes import row_writer
from spark_batch.transforms.catalog import DropHeaders, Filter, InsertHeader, RegexRouter

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_batch.plan import ConversionPlan

VALUES_MAX = 2_048
"""Fields times records, from about where on plain Python takes more processor time than Spark's compiled columns."""
WRITTEN_VALUES_MAX = 256
"""The same beside Arrow, which writes many rows in the time of one (``row_bytes``)."""
BYTES_MAX = 256 * 1024
"""Of the payloads: few records may be large, and plain Python is slow on those."""
PLANS_MAX = 2_048
"""Plans of which is remembered whether they are taken."""
_BESIDE_THE_RECORD = (RegexRouter, Filter, InsertHeader, DropHeaders)
"""Transformations of topics and headers, which both ways leave to the same code."""


class SmallFailedError(Exception):
    """The exact path failed on a micro-batch as a whole: Spark has to say what becomes of it."""


class SmallBatches:
    """Converts micro-batches of at most `records_max` records; with 0 none. One event loop; `stop` at the end."""

    def __init__(self, *, records_max: int) -> None:
        self._records_max = records_max
        # One thread: the interpreter's lock would let no second one work beside it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="small-batches")

    def takes(self, plan: ConversionPlan, batch: pa.Table) -> bool:
        """Whether `convert` gives this micro-batch the outcome that Spark's job would."""
        count = batch.num_rows
        return (
            count <= self._records_max and is_alike(plan) and count <= _records_max(plan) and batch.nbytes <= BYTES_MAX
        )

    async def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome (OUTCOME_SCHEMA); raises SmallFailedError, and ConversionFatal as Spark's way does."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, convert_exactly, plan, batch)
        except ConversionError:
            raise
        except Exception as error:
            # Whatever it is: the other way may know better, and if not it says so in its own words.
            raise SmallFailedError(type(error).__name__) from error

    def stop(self) -> None:
        """End the thread once it is done with what it has."""
        self._thread.shutdown(wait=False, cancel_futures=True)


@lru_cache(maxsize=PLANS_MAX)
def is_alike(plan: ConversionPlan) -> bool:
    """Whether both ways are known to write the same bytes of all that comes by this plan."""
    if not plan.is_of_rows or plan.record is None or not is_judged_exactly(plan):
        return False
    if not all(isinstance(step.transformation, _BESIDE_THE_RECORD) for step in plan.transformations):
        return False
    return all(record is None or _is_written_alike(record) for record in (plan.record, plan.key_record))


@lru_cache(maxsize=PLANS_MAX)
def _records_max(plan: ConversionPlan) -> int:
    """By the fields of a row and its key, those within records too."""
    fields = sum(_leaves(record) for record in (plan.record, plan.key_record) if record is not None)
    return (VALUES_MAX if row_writer(plan) is None else WRITTEN_VALUES_MAX) // max(fields, 1)


def _leaves(kind: AvroType) -> int:
    return sum(_leaves(field.slot.type) for field in kind.fields) if isinstance(kind, Record) else 1


def _is_written_alike(kind: AvroType) -> bool:
    """But for maps, whose entries Avro may write in any order, and floating numbers.

    Older Javas write more digits of some, and of a NaN only Spark's way keeps the bits.
    """
    if isinstance(kind, Record):
        return all(_is_written_alike(field.slot.type) for field in kind.fields)
    if isinstance(kind, Array):
        return _is_written_alike(kind.items.type)
    return not isinstance(kind, Map) and kind not in {Primitive.FLOAT, Primitive.DOUBLE}
