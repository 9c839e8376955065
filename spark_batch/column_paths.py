"""What Spark does of a micro-batch in columns: the typed job for what is proven, the swift one for the others.

A handful of others is not worth a job of their own: they are left suspicious, for the exact path.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_batch.job import KEY, ORDINAL, RECORD, SUSPICIOUS, VERDICT, Job
from spark_batch.job_run import in_order, run_job
from spark_batch.proof import Proof, prove
from spark_batch.variant_paths import PAYLOAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_batch.compiled import CompiledPlan, TypedPath
    from spark_batch.outcome import ArrowColumn

EXACT_ROWS_MAX = 64
"""So many payloads take the exact path in less time than a job of their own needs to start."""


def run_columns(session: SparkSession, compiled: CompiledPlan, text: ArrowColumn, keys: ArrowColumn | None) -> pa.Table:
    """One row for each payload, in order; null payloads are nobody's and come out suspicious.

    `keys`: page keys to be converted (None: none are); only the swift job does that.
    """
    run = functools.partial(run_job, session, has_rules=compiled.has_rules)
    typed = compiled.typed
    proof = None if typed is None or _has_keys(keys) else _proof(text, typed)
    if typed is None or proof is None:
        return run(_swift(compiled), _swift_frame(compiled, np.arange(len(text), dtype=np.int32), text, keys))
    ordinals = np.flatnonzero(proof.is_proven).astype(np.int32)
    parts = [run(typed.job, _typed_frame(pa.array(ordinals), proof.records))]
    others = np.flatnonzero(~proof.is_proven).astype(np.int32)
    if not len(others):
        return parts[0]
    is_asked = np.asarray(text.is_valid())[others]
    asked = others[is_asked]
    if len(asked) > EXACT_ROWS_MAX:
        parts.append(run(_swift(compiled), _swift_frame(compiled, asked, text.take(pa.array(asked)), None)))
        others = others[~is_asked]
    suspicious = pa.array(np.full(len(others), SUSPICIOUS, dtype=np.int32))
    parts.append(pa.table({ORDINAL: pa.array(others), VERDICT: suspicious}))
    return in_order(pa.concat_tables(parts, promote_options="default").combine_chunks())


def _has_keys(keys: ArrowColumn | None) -> bool:
    return keys is not None and keys.null_count < len(keys)


def _proof(text: ArrowColumn, typed: TypedPath) -> Proof | None:
    if not typed.habit.is_tried():
        return None
    proof = prove(text, typed.shape)
    typed.habit.tell(was_worth_while=proof is not None)
    return proof


def _typed_frame(ordinals: ArrowColumn, records: ArrowColumn) -> pa.Table:
    """Said to hold no nulls, so that Spark looks for none."""
    fields = [pa.field(ORDINAL, ordinals.type, nullable=False), pa.field(RECORD, records.type, nullable=False)]
    return pa.table([ordinals, records], schema=pa.schema(fields))


def _swift(compiled: CompiledPlan) -> Job:
    assert compiled.swift is not None  # noqa: S101 - told to the type checker
    return compiled.swift


def _swift_frame(compiled: CompiledPlan, ordinals: np.ndarray, text: ArrowColumn, keys: ArrowColumn | None) -> pa.Table:
    frame = {ORDINAL: pa.array(ordinals), PAYLOAD: text}
    if compiled.has_page_key:
        frame[KEY] = pa.nulls(len(text), pa.string()) if keys is None else keys
    return pa.table(frame)
