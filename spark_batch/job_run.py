"""What Spark does of a micro-batch in columns: the typed job for what is proven, the swift one for the others.

A handful of others is not worth a job of their own: they are left suspicious, for the exact path. Each job's rows come
back in order; where a rule raises an error, the rows it raises on are found and the others are judged without them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException

from spark_batch.errors import ConversionFatal
from spark_batch.job import COERCED, KEY, ORDINAL, RECORD, STAMP, SUSPICIOUS, VERDICT, Job
from spark_batch.proof import Proof, prove
from spark_batch.recovery import Remedy, judged
from spark_batch.variant_paths import PAYLOAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_batch.compiled import CompiledPlan, TypedPath
    from spark_batch.outcome import ArrowColumn


RAISED = -1
"""Verdict on a row that no rule passes judgement on, because one of them raises."""
SPLIT_JOBS_MAX = 200
"""Jobs spent on finding the rows on which rules raise (about a dozen for each); then the plan is called wrong."""


def run_job(session: SparkSession, job: Job, frame: pa.Table, *, has_rules: bool) -> pa.Table:
    """The job's rows in the order of the frame, with what is left to Arrow written; raises what Spark raises."""
    rows = _rows(session, job, frame, has_rules=has_rules)
    for name, columns in job.left_to_arrow.items():
        rows = columns.put_together(rows, name)
    return rows


def _rows(session: SparkSession, job: Job, frame: pa.Table, *, has_rules: bool) -> pa.Table:
    """As Spark gives them.

    Spark has no way to catch an error of any expression, and an error of one row ends the whole job: where the plan has
    rules, halves of the frame are tried until the rows that raise stand alone. A lost session is no rule that raises.
    """
    if (written := job.driver_runs.run(session, job.applied, frame)) is not None:
        return written
    try:
        return in_order(job.applied(session.createDataFrame(frame)).toArrow())
    except AnalysisException:
        raise
    except PySparkException as error:
        if not has_rules or not frame.num_rows or not _is_of_a_row(session, error):
            raise
    return _split(session, job, frame)


def _split(session: SparkSession, job: Job, frame: pa.Table) -> pa.Table:
    waiting = [_half(frame, 0), _half(frame, 1)]
    done: list[pa.Table] = []
    for _ in range(SPLIT_JOBS_MAX):
        if not waiting:
            return in_order(pa.concat_tables(done, promote_options="default").combine_chunks())
        part = waiting.pop()
        if part.num_rows == 0:
            continue
        try:
            done.append(job.applied(session.createDataFrame(part)).toArrow())
        except PySparkException as error:
            if not _is_of_a_row(session, error):
                raise
            if part.num_rows == 1:
                done.append(pa.table({ORDINAL: part.column(ORDINAL), VERDICT: pa.array([RAISED], pa.int32())}))
            else:
                waiting += [_half(part, 0), _half(part, 1)]
    raise ConversionFatal("the rules raise on too many records: mend them so that they give null or false")


def _is_of_a_row(session: SparkSession, error: PySparkException) -> bool:
    """Whether a rule may have raised the error, rather than a lost session, a lost executor or a full disk."""
    return judged(error, session).remedy is Remedy.NONE


def _half(frame: pa.Table, which: int) -> pa.Table:
    middle = frame.num_rows // 2
    return frame.slice(middle) if which else frame.slice(0, middle)


def in_order(written: pa.Table) -> pa.Table:
    """The rows sorted by their ordinals; executors may have given their parts in any order."""
    ordinals = np.asarray(written.column(ORDINAL))
    if np.any(ordinals[1:] < ordinals[:-1]):
        return written.take(np.argsort(ordinals, kind="stable"))
    return written


EXACT_ROWS_MAX = 64
"""So many payloads take the exact path in less time than a job of their own needs to start."""


@dataclass(frozen=True)
class PageColumns:
    """What stands beside the payloads on their pages."""

    keys: ArrowColumn | None
    """Keys to be converted (None: none are); only the swift job does that."""
    timestamps: ArrowColumn | None
    """Record timestamps, where transformations ask for them."""

    def with_timestamps(self, frame: dict[str, ArrowColumn], rows: np.ndarray) -> dict[str, ArrowColumn]:
        """The frame of these rows with their timestamps."""
        if self.timestamps is None:
            return frame
        return {**frame, STAMP: self.timestamps.take(pa.array(rows))}


def run_columns(session: SparkSession, compiled: CompiledPlan, text: ArrowColumn, page: PageColumns) -> pa.Table:
    """One row for each payload, in order; null payloads are nobody's and come out suspicious."""
    keys = page.keys
    run = functools.partial(run_job, session, has_rules=compiled.has_rules)
    typed = compiled.typed
    proof = None if typed is None or _has_keys(keys) else _proof(text, typed)
    if typed is None or proof is None:
        return run(_swift(compiled), _swift_frame(compiled, np.arange(len(text), dtype=np.int32), text, page))
    ordinals = np.flatnonzero(proof.is_proven).astype(np.int32)
    parts = [run(typed.job, _typed_frame(ordinals, proof.records, page))]
    if compiled.plan.coerced_fields:
        parts[0] = parts[0].append_column(COERCED, pa.array(proof.coerced, mask=proof.coerced == 0))
    others = np.flatnonzero(~proof.is_proven).astype(np.int32)
    if not len(others):
        return parts[0]
    is_asked = np.asarray(text.is_valid())[others]
    asked = others[is_asked]
    if len(asked) > EXACT_ROWS_MAX:
        asked_page = replace(page, keys=None)
        parts.append(run(_swift(compiled), _swift_frame(compiled, asked, text.take(pa.array(asked)), asked_page)))
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


def _typed_frame(ordinals: np.ndarray, records: ArrowColumn, page: PageColumns) -> pa.Table:
    """Said to hold no nulls (but in timestamps), so that Spark looks for none."""
    columns = page.with_timestamps({ORDINAL: pa.array(ordinals), RECORD: records}, ordinals)
    fields = [pa.field(name, column.type, nullable=name == STAMP) for name, column in columns.items()]
    return pa.table(list(columns.values()), schema=pa.schema(fields))


def _swift(compiled: CompiledPlan) -> Job:
    assert compiled.swift is not None  # noqa: S101 - told to the type checker
    return compiled.swift


def _swift_frame(compiled: CompiledPlan, ordinals: np.ndarray, text: ArrowColumn, page: PageColumns) -> pa.Table:
    frame = page.with_timestamps({ORDINAL: pa.array(ordinals), PAYLOAD: text}, ordinals)
    if compiled.has_page_key:
        frame[KEY] = pa.nulls(len(text), pa.string()) if page.keys is None else page.keys
    table = pa.table(frame)
    if compiled.plan.is_json or text.null_count:
        return table
    # Said to hold no nulls, so that the optimizer sees which columns come out as they go in.
    fields = [pa.field(each.name, each.type, nullable=each.name != PAYLOAD) for each in table.schema]
    return table.cast(pa.schema(fields))
