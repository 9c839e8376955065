"""One micro-batch through a plan: Arrow looks first, the swift job next, the exact path last, then all is put together.

Blocking; `runner` calls it from threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_batch.compiled import CompiledPlan
from spark_batch.exact.fields import payload_hash
from spark_batch.exact.json_text import RejectedPayload, parse
from spark_batch.exact.verdicts import Verdict, exact_verdict
from spark_batch.job import (
    DEDUPE,
    FIRST_RULE,
    KEY,
    ORDINAL,
    STAMP,
    SUSPICIOUS,
    TIMESTAMP,
    VALID,
    VALUE,
    VERDICT,
    is_page_key_written,
    is_value_written,
)
from spark_batch.job_run import RAISED, PageColumns, run_columns, run_job
from spark_batch.outcome import OUTCOME_SCHEMA, ArrowColumn, Reason, Rejection, Stage
from spark_batch.plan import ConversionPlan, ConverterKind, PayloadFormat
from spark_batch.plan_transforms import is_reshaped
from spark_batch.prepass import is_larger, is_unsure, pc, read_utf8
from spark_batch.transforms.catalog import Side
from spark_batch.variant_paths import PAYLOAD

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WRITTEN = {"value": VALUE, "key": KEY, "timestamp": TIMESTAMP, "dedupe": DEDUPE}
_TYPES = {"value": pa.binary(), "key": pa.binary(), "timestamp": pa.int64(), "dedupe": pa.binary()}


@dataclass
class _Draft:
    """The outcome in the making: whole columns, and single rows that stand in their place."""

    plan: ConversionPlan
    columns: dict[str, ArrowColumn]
    payloads: ArrowColumn
    page_timestamps: ArrowColumn
    rows: dict[int, Verdict] = field(default_factory=dict)


def convert_table(session: SparkSession, compiled: CompiledPlan, batch: pa.Table) -> pa.Table:
    """The outcome of a micro-batch, as OUTCOME_SCHEMA; raises what Spark raises, never for a bad record."""
    if not batch.num_rows:
        return OUTCOME_SCHEMA.empty_table()
    plan = compiled.plan
    payloads, keys = _whole(batch, "value"), _whole(batch, "key")
    timestamps = _whole(batch, "timestamp")
    draft = _Draft(plan, {"timestamp": timestamps}, payloads, timestamps)
    text = payloads if _is_binary(plan) else _read_payloads(draft)
    key_text = _read_keys(draft, keys)
    _refuse_large(draft)
    verdicts = np.full(len(payloads), VALID, dtype=np.int32)
    draft.columns["value"] = payloads
    draft.columns["key"] = keys
    unsure = is_unsure(text) if plan.is_json else np.zeros(len(payloads), dtype=bool)
    if compiled.swift is not None:
        page = PageColumns(
            key_text if is_page_key_written(plan) else None,
            draft.columns["timestamp"] if compiled.has_timestamps else None,
        )
        written = run_columns(session, compiled, _without(draft, text, unsure), page)
        verdicts = _take_written(draft, written)
    verdicts[unsure | compiled.is_all_exact] = SUSPICIOUS
    is_tombstone = np.asarray(payloads.is_null())
    verdicts[is_tombstone] = VALID
    _keep_tombstones(draft, keys, is_tombstone)
    _judge(session, compiled, draft, verdicts)
    _refuse_early_timestamps(draft)
    return _assembled(draft)


def _is_binary(plan: ConversionPlan) -> bool:
    return plan.payload_format is PayloadFormat.BYTES and not plan.is_json


def _whole(batch: pa.Table, name: str) -> ArrowColumn:
    column = batch.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _read_payloads(draft: _Draft) -> ArrowColumn:
    text = read_utf8(draft.payloads)
    for at in np.flatnonzero(text.is_invalid):
        _refuse(draft, int(at), Rejection(Reason.INVALID_UTF8, "record: expected UTF-8"))
    return text.column


def _read_keys(draft: _Draft, keys: ArrowColumn) -> ArrowColumn | None:
    """Page keys as text; not looked at where they are bytes, or where the key comes from the record."""
    plan = draft.plan
    if plan.key_fields or plan.key_converter.kind is ConverterKind.BYTES or keys.null_count == len(keys):
        return pa.nulls(len(keys), pa.string())
    text = read_utf8(keys)
    for at in np.flatnonzero(text.is_invalid):
        _refuse(draft, int(at), Rejection(Reason.INVALID_UTF8, "key: expected UTF-8", Stage.KEY_CONVERTER))
    return text.column


def _refuse_large(draft: _Draft) -> None:
    limit = draft.plan.record_bytes_max
    for at in np.flatnonzero(is_larger(draft.payloads, bytes_max=limit)):
        _refuse(draft, int(at), Rejection(Reason.TOO_LARGE, f"record: expected at most {limit} bytes"))


def _refuse(draft: _Draft, at: int, rejection: Rejection) -> None:
    payload = draft.payloads[at].as_py() if draft.plan.dedupe_fields else None
    draft.rows[at] = Verdict(rejection, dedupe=None if payload is None else payload_hash(payload))


def _without(draft: _Draft, text: ArrowColumn, unsure: np.ndarray) -> ArrowColumn:
    """The payloads without those already refused or left to the exact path, so that Spark does not read them."""
    is_left_out = unsure.copy()
    is_left_out[list(draft.rows)] = True
    if not is_left_out.any():
        return text
    return pc.if_else(pa.array(is_left_out), pa.scalar(None, text.type), text)


def _take_written(draft: _Draft, written: pa.Table) -> np.ndarray:
    """Put the job's columns into the draft; gives the verdicts."""
    for name, column in _WRITTEN.items():
        if column in written.column_names:
            values = _whole(written, column)
            draft.columns[name] = pc.coalesce(values, draft.columns[name]) if name == "timestamp" else values
    return np.array(_whole(written, VERDICT), dtype=np.int32)


def _keep_tombstones(draft: _Draft, keys: ArrowColumn, is_tombstone: np.ndarray) -> None:
    """A tombstone's key can only come from its page; where keys are records it must be one already."""
    plan = draft.plan
    if not plan.key_fields:
        return
    for at in map(int, np.flatnonzero(is_tombstone)):
        key = keys[at].as_py()
        rejection = None if key is None else _tombstone_key_rejection(plan, key)
        if key is not None and is_reshaped(plan, Side.KEY):
            message = "key: expected a value to take key.fields from, which are transformed"
            rejection = Rejection(Reason.UNREPRESENTABLE, message, Stage.TRANSFORMATION)
        stamp = draft.columns["timestamp"][at].as_py()
        draft.rows[at] = Verdict(rejection, key=key, timestamp=stamp)


def _tombstone_key_rejection(plan: ConversionPlan, key: bytes) -> Rejection | None:
    kind = plan.key_converter
    if kind.kind in {ConverterKind.STRING, ConverterKind.BYTES}:
        return None
    if kind.kind is ConverterKind.AVRO or kind.is_schema_enveloped:
        message = "key: expected a value to take key.fields from"
        return Rejection(Reason.UNREPRESENTABLE, message, Stage.KEY_CONVERTER)
    try:
        parse(key)
    except RejectedPayload as refusal:
        return Rejection(refusal.rejection.reason, "key: expected JSON", Stage.KEY_CONVERTER)
    return None


def _judge(session: SparkSession, compiled: CompiledPlan, draft: _Draft, verdicts: np.ndarray) -> None:
    """Rejections by rule, and the exact path for the suspicious."""
    canonical: dict[int, Verdict] = {}
    for at in map(int, np.flatnonzero(verdicts != VALID)):
        if at in draft.rows:
            continue
        if verdicts[at] >= FIRST_RULE:
            dedupe = draft.columns["dedupe"][at].as_py() if "dedupe" in draft.columns else None
            draft.rows[at] = Verdict(_rule_rejection(compiled.plan, int(verdicts[at])), dedupe=dedupe)
            continue
        verdict = exact_verdict(compiled.plan, draft.payloads[at].as_py())
        if verdicts[at] == RAISED and verdict.rejection is None:
            draft.rows[at] = Verdict(_rule_rejection(compiled.plan, RAISED), dedupe=verdict.dedupe)
        elif verdict.canonical is None:
            draft.rows[at] = _completed(draft, at, verdict)
        else:
            canonical[at] = verdict
    if canonical and compiled.canonical is not None:
        _run_canonical(session, compiled, draft, canonical)


def _rule_rejection(plan: ConversionPlan, verdict: int) -> Rejection:
    if verdict == RAISED:
        return Rejection(Reason.RULE_FAILED, "rules: expected no error while they are evaluated")
    rules = plan.contract.rules if plan.contract is not None else ()
    name = rules[verdict - FIRST_RULE].name
    return Rejection(Reason.RULE_FAILED, f"rule {name}: expected to be true")


def _completed(draft: _Draft, at: int, verdict: Verdict) -> Verdict:
    """What the exact path does not write comes from the page."""
    if verdict.rejection is not None:
        return verdict
    stamp = draft.columns["timestamp"][at].as_py() if verdict.timestamp is None else verdict.timestamp
    key = verdict.key if draft.plan.key_fields else draft.columns["key"][at].as_py()
    return Verdict(value=verdict.value, key=key, timestamp=stamp, dedupe=verdict.dedupe)


def _run_canonical(
    session: SparkSession,
    compiled: CompiledPlan,
    draft: _Draft,
    judged: dict[int, Verdict],
) -> None:
    ordinals = pa.array(list(judged), pa.int32())
    texts = pa.array([verdict.canonical for verdict in judged.values()], pa.string())
    assert compiled.canonical is not None  # noqa: S101 - told to the type checker
    frame = pa.table({ORDINAL: ordinals, PAYLOAD: texts})
    if compiled.has_timestamps:
        frame = frame.append_column(STAMP, draft.page_timestamps.take(ordinals))
    written = run_job(session, compiled.canonical, frame, has_rules=compiled.has_rules)
    for row in written.to_pylist():
        at = row[ORDINAL]
        dedupe = judged[at].dedupe
        if row[VERDICT] == SUSPICIOUS:
            rejection = Rejection(Reason.UNREPRESENTABLE, "record: valid, but Spark cannot express it")
            draft.rows[at] = Verdict(rejection, dedupe=dedupe)
        elif row[VERDICT] != VALID:
            draft.rows[at] = Verdict(_rule_rejection(compiled.plan, row[VERDICT]), dedupe=dedupe)
        else:
            value = row[VALUE] if is_value_written(compiled.plan) else judged[at].value
            found = Verdict(value=value, key=row.get(KEY), timestamp=row.get(TIMESTAMP), dedupe=dedupe)
            draft.rows[at] = _completed(draft, at, found)


def _refuse_early_timestamps(draft: _Draft) -> None:
    """Kafka has no record timestamps before 1970."""
    if draft.plan.timestamp_field is None:
        return
    rejection = Rejection(
        Reason.OUT_OF_RANGE,
        f"{draft.plan.timestamp_field}: expected no time before 1970",
        Stage.TRANSFORMATION,
    )
    early = np.flatnonzero(np.asarray(pc.fill_null(draft.columns["timestamp"], 0)) < 0)
    for at in map(int, early):
        if at not in draft.rows:
            dedupe = draft.columns["dedupe"][at].as_py() if "dedupe" in draft.columns else None
            draft.rows[at] = Verdict(rejection, dedupe=dedupe)
    for at, row in draft.rows.items():
        if row.rejection is None and (row.timestamp or 0) < 0:
            draft.rows[at] = Verdict(rejection, dedupe=row.dedupe)


def _column(draft: _Draft, name: str, kind: ArrowColumn) -> ArrowColumn:
    column = draft.columns.get(name)
    return pa.nulls(len(draft.payloads), kind) if column is None else column.cast(kind)


def _topics(draft: _Draft) -> ArrowColumn:
    """Where records are routed to; null where they stay."""
    plan, count = draft.plan, len(draft.payloads)
    if not plan.transformations:
        return pa.nulls(count, pa.string())
    values, tombstones = (
        pa.scalar(None if topic == plan.topic else topic, pa.string())
        for topic in (plan.track().topic, plan.track(is_tombstone=True).topic)
    )
    return pc.if_else(draft.payloads.is_null(), tombstones, values)


def _assembled(draft: _Draft) -> pa.Table:
    count = len(draft.payloads)
    picks = np.arange(count, dtype=np.int64)
    places = np.fromiter(draft.rows, dtype=np.int64, count=len(draft.rows))
    picks[places] = count + np.arange(len(places))
    rows = list(draft.rows.values())
    indices: ArrowColumn = pa.array(picks)
    columns: dict[str, ArrowColumn] = {"ordinal": pa.array(np.arange(count, dtype=np.int32))}
    for name, kind in _TYPES.items():
        base = _column(draft, name, kind)
        shown = [None if r.rejection is not None and name in {"key", "value"} else getattr(r, name) for r in rows]
        columns[name] = pa.concat_arrays([base, pa.array(shown, kind)]).take(indices) if rows else base
    columns["topic"] = _topics(draft)
    for name in ("stage", "reason", "message"):
        shown = [None if row.rejection is None else str(getattr(row.rejection, name)) for row in rows]
        base = pa.nulls(count, pa.string())
        columns[name] = pa.concat_arrays([base, pa.array(shown, pa.string())]).take(indices) if rows else base
    return pa.table([columns[name] for name in OUTCOME_SCHEMA.names], schema=OUTCOME_SCHEMA)
