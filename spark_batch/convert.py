"""One micro-batch through a plan: Arrow looks first, the swift job next, the exact path last, then all is put together.

Blocking; `runner` calls it from threads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_batch.compiled import CompiledPlan
from spark_batch.convert_exactly import transformed_record, transformed_row, transformed_verdict, write_tombstone_keys
from spark_batch.draft import (
    UNREADABLE,
    Draft,
    RowDraft,
    assembled,
    begun,
    begun_rows,
    completed,
    keep_tombstones,
    refuse_early_timestamps,
    refuse_large_values,
    refuse_valueless,
    transformation_failed,
    whole,
)
from spark_batch.errors import ConversionFatal
from spark_batch.exact.verdicts import Verdict, exact_verdict
from spark_batch.job import (
    COERCED,
    DEDUPE,
    FIRST_RULE,
    KEY,
    ORDINAL,
    RECORD,
    STAMP,
    SUSPICIOUS,
    TIMESTAMP,
    UNDONE,
    VALID,
    VALUE,
    VERDICT,
)
from spark_batch.job_run import RAISED, PageColumns, run_columns, run_job
from spark_batch.outcome import OUTCOME_SCHEMA, ArrowColumn, Reason, Rejection
from spark_batch.plan import ConversionPlan
from spark_batch.plan_transforms import is_changed_exactly, is_page_key_written, is_value_written
from spark_batch.prepass import is_unsure, pc
from spark_batch.row_bytes import RowWriter
from spark_batch.selecting import DROPPED, HEADERS
from spark_batch.variant_paths import PAYLOAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITTEN = {
    "value": VALUE,
    "key": KEY,
    "timestamp": TIMESTAMP,
    "dedupe": DEDUPE,
    "coerced": COERCED,
    "is_dropped": DROPPED,
    "headers": HEADERS,
}


def convert_table(session: SparkSession, compiled: CompiledPlan, batch: pa.Table) -> pa.Table:
    """The outcome of a micro-batch, as OUTCOME_SCHEMA; raises what Spark raises, never for a bad record."""
    if not batch.num_rows:
        return OUTCOME_SCHEMA.empty_table()
    plan = compiled.plan
    if plan.is_of_rows:
        return convert_rows(session, compiled, batch)
    draft = begun(plan, batch)
    verdicts = np.full(len(draft.payloads), VALID, dtype=np.int32)
    unsure = is_unsure(draft.text) if plan.is_json else np.zeros(len(draft.payloads), dtype=bool)
    if compiled.swift is not None:
        page = PageColumns(
            draft.key_text if is_page_key_written(plan) else None,
            draft.columns["timestamp"] if compiled.has_timestamps else None,
        )
        written = run_columns(session, compiled, _without(draft, unsure), page)
        verdicts = _take_written(draft, written)
    verdicts[unsure | compiled.is_all_exact] = SUSPICIOUS
    is_tombstone = np.asarray(draft.payloads.is_null())
    if is_page_key_written(plan):
        write_tombstone_keys(draft, np.flatnonzero(is_tombstone & (verdicts == SUSPICIOUS)))
    verdicts[is_tombstone] = VALID
    keep_tombstones(draft, is_tombstone)
    _judge(session, compiled, draft, verdicts)
    refuse_early_timestamps(draft)
    return assembled(draft)


def convert_rows(session: SparkSession, compiled: CompiledPlan, batch: pa.Table) -> pa.Table:
    """The same of a micro-batch of rows (columns `value`, and `key` where it has a schema, of structs)."""
    plan = compiled.plan
    draft = begun_rows(plan, batch)
    if compiled.writer is not None:
        _write_rows(draft, compiled.writer)
        return assembled(draft)
    assert compiled.rows is not None  # noqa: S101 - told to the type checker: what has no writer has a job
    frame = _rows_frame(draft, has_timestamps=compiled.has_timestamps)
    verdicts = np.full(len(draft.payloads), VALID, dtype=np.int32)
    if frame.num_rows:
        written = run_job(session, compiled.rows, frame, has_rules=compiled.has_rules)
        verdicts = _take_scattered(draft, written)
    verdicts[np.asarray(draft.payloads.is_null()) & (verdicts != SUSPICIOUS) & (verdicts != UNDONE)] = VALID
    for at in map(int, np.flatnonzero(verdicts != VALID)):
        if at in draft.rows:
            continue
        if verdicts[at] == SUSPICIOUS:
            key = None if draft.keys is None else draft.keys[at].as_py()
            draft.rows[at] = transformed_row(draft, at, draft.records[at].as_py(), key)
            continue
        dedupe = draft.columns["dedupe"][at].as_py() if "dedupe" in draft.columns else None
        draft.rows[at] = Verdict(_rule_rejection(plan, int(verdicts[at])), dedupe=dedupe)
    if plan.has_key_of_value:
        refuse_valueless(draft, np.asarray(draft.payloads.is_null()))
    refuse_large_values(draft)
    refuse_early_timestamps(draft)
    return assembled(draft)


def _write_rows(draft: RowDraft, writer: RowWriter) -> None:
    """Values and keys by Arrow; what stands for rejected rows, which are told already, goes nowhere."""
    try:
        draft.columns["value"] = writer.value(draft.records)
        if writer.key is not None:
            draft.columns["key"] = writer.key(draft.keys)
    except pa.ArrowCapacityError as error:
        raise ConversionFatal.of_size(len(draft.payloads)) from error
    refuse_large_values(draft)


def _rows_frame(draft: RowDraft, *, has_timestamps: bool) -> pa.Table:
    """What the job is given: the rows that are not rejected, tombstones too."""
    columns = {ORDINAL: pa.array(np.arange(len(draft.payloads), dtype=np.int32)), RECORD: draft.records}
    if draft.keys is not None:
        columns[KEY] = draft.keys
    if has_timestamps:
        columns[STAMP] = draft.page_timestamps
    frame = pa.table(columns)
    if not draft.rows:
        return frame
    is_good = np.ones(len(draft.payloads), dtype=bool)
    is_good[list(draft.rows)] = False
    return frame.filter(pa.array(is_good)).combine_chunks()


def _take_scattered(draft: Draft, written: pa.Table) -> np.ndarray:
    """As `_take_written`, of a job that was given some of the rows only; the others are rejected already."""
    picks = np.full(len(draft.payloads), -1, dtype=np.int64)
    picks[np.asarray(written.column(ORDINAL))] = np.arange(written.num_rows)
    indices = pa.array(picks, mask=picks < 0)
    scattered = pa.table({name: whole(written, name).take(indices) for name in written.column_names})
    verdicts = pc.fill_null(whole(scattered, VERDICT), VALID)
    return _take_written(draft, scattered.set_column(scattered.column_names.index(VERDICT), VERDICT, verdicts))


def _without(draft: Draft, unsure: np.ndarray) -> ArrowColumn:
    """The payloads without those already refused or left to the exact path, so that Spark does not read them."""
    is_left_out = unsure.copy()
    is_left_out[list(draft.rows)] = True
    if not is_left_out.any():
        return draft.text
    return pc.if_else(pa.array(is_left_out), pa.scalar(None, draft.text.type), draft.text)


def _take_written(draft: Draft, written: pa.Table) -> np.ndarray:
    """Put the job's columns into the draft; gives the verdicts."""
    for name, column in _WRITTEN.items():
        if column in written.column_names:
            values = whole(written, column)
            draft.columns[name] = pc.coalesce(values, draft.columns[name]) if name == "timestamp" else values
    return np.array(whole(written, VERDICT), dtype=np.int32)


def _judge(session: SparkSession, compiled: CompiledPlan, draft: Draft, verdicts: np.ndarray) -> None:
    """Rejections by rule, and the exact path for the suspicious."""
    canonical: dict[int, Verdict] = {}
    for at in map(int, np.flatnonzero(verdicts != VALID)):
        if at in draft.rows:
            continue
        if verdicts[at] >= FIRST_RULE or verdicts[at] == UNDONE:
            dedupe = draft.columns["dedupe"][at].as_py() if "dedupe" in draft.columns else None
            draft.rows[at] = Verdict(_rule_rejection(compiled.plan, int(verdicts[at])), dedupe=dedupe)
            continue
        if not compiled.plan.is_json:
            draft.rows[at] = transformed_verdict(draft, at)
            continue
        verdict = exact_verdict(compiled.plan, draft.payloads[at].as_py())
        if verdicts[at] == RAISED and verdict.rejection is None:
            draft.rows[at] = Verdict(_rule_rejection(compiled.plan, RAISED), dedupe=verdict.dedupe)
        elif verdict.canonical is None:
            is_exact = is_changed_exactly(compiled.plan)
            draft.rows[at] = (transformed_record if is_exact else completed)(draft, at, verdict)
        else:
            canonical[at] = verdict
    if canonical and compiled.canonical is not None:
        _run_canonical(session, compiled, draft, canonical)


def _rule_rejection(plan: ConversionPlan, verdict: int) -> Rejection:
    if verdict == UNDONE:
        return transformation_failed(plan)
    if verdict == RAISED:
        return Rejection(Reason.RULE_FAILED, "rules: expected no error while they are evaluated")
    rules = plan.contract.rules if plan.contract is not None else ()
    name = rules[verdict - FIRST_RULE].name
    return Rejection(Reason.RULE_FAILED, f"rule {name}: expected to be true")


def _run_canonical(
    session: SparkSession,
    compiled: CompiledPlan,
    draft: Draft,
    judged: dict[int, Verdict],
) -> None:
    ordinals = pa.array(list(judged), pa.int32())
    texts = pa.array([verdict.canonical for verdict in judged.values()], pa.string())
    assert compiled.canonical is not None  # noqa: S101 - told to the type checker
    frame = pa.table({ORDINAL: ordinals, PAYLOAD: texts})
    if compiled.has_timestamps:
        frame = frame.append_column(STAMP, draft.page_timestamps.take(ordinals))
    written = run_job(session, compiled.canonical, frame, has_rules=compiled.has_rules)
    is_exact = is_changed_exactly(compiled.plan)
    for row in written.to_pylist():
        at = row[ORDINAL]
        dedupe = judged[at].dedupe
        if row[VERDICT] == SUSPICIOUS:
            rejection = Rejection(Reason.UNREPRESENTABLE, UNREADABLE)
            draft.rows[at] = Verdict(rejection, dedupe=dedupe)
        elif row[VERDICT] != VALID:
            draft.rows[at] = Verdict(_rule_rejection(compiled.plan, row[VERDICT]), dedupe=dedupe)
        elif is_exact:
            # The job's columns are right where they are sure only; this record may be here because they are not.
            draft.rows[at] = transformed_record(draft, at, judged[at])
        else:
            value = row[VALUE] if is_value_written(compiled.plan) else judged[at].value
            headers = None if row.get(HEADERS) is None else tuple(row[HEADERS])
            found = replace(judged[at], value=value, key=row.get(KEY), timestamp=row.get(TIMESTAMP), headers=headers)
            draft.rows[at] = completed(draft, at, found)
            if row.get(DROPPED):
                draft.dropped.add(at)
