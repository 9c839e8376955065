"""The outcome of a micro-batch in the making: what is refused before a payload is judged, and how all is put together.

Shared by the conversion in Spark and the one by the exact path alone, so that they can differ in the judging only.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_batch.avro_types import Record
from spark_batch.errors import ConversionFatal
from spark_batch.exact.fields import payload_hash
from spark_batch.exact.verdicts import Verdict
from spark_batch.literals.reading import RejectedPayload, parse
from spark_batch.outcome import OUTCOME_SCHEMA, ArrowColumn, Reason, Rejection, Stage
from spark_batch.plan import ConversionPlan, ConverterKind, PayloadFormat
from spark_batch.plan_misfits import misfits
from spark_batch.plan_transforms import is_page_key_written, is_reshaped
from spark_batch.prepass import is_larger, pc, read_utf8
from spark_batch.row_columns import FittedRows, RowsMisfit, fitted_rows
from spark_batch.transforms.applied import AppliedSteps
from spark_batch.transforms.catalog import Side, Sql, TimestampRouter
from spark_batch.transforms.timestamp_router import routed_topics

_WRITTEN = ("value", "key", "headers")
"""Of what is rejected there is none."""
_TYPES = {name: OUTCOME_SCHEMA.field(name).type for name in (*_WRITTEN, "timestamp", "dedupe", "coerced")}

UNREADABLE = "record: valid, but Spark cannot express it"


@dataclass
class Draft:
    """The outcome in the making: whole columns, and single rows that stand in their place."""

    plan: ConversionPlan
    columns: dict[str, ArrowColumn]
    payloads: ArrowColumn
    page_keys: ArrowColumn
    page_timestamps: ArrowColumn
    rows: dict[int, Verdict] = field(default_factory=dict)
    text: ArrowColumn = None
    """The payloads as UTF-8 text, null where they are none; the payloads themselves where they are bytes."""
    key_text: ArrowColumn = None
    """The same of the page's keys; nulls where they are not looked at."""
    dropped: set[int] = field(default_factory=set)
    """Of the single rows, those that a transformation drops."""


def begun(plan: ConversionPlan, batch: pa.Table) -> Draft:
    """The draft of a micro-batch, with what is refused before any payload is judged: by size, and what is no text."""
    payloads, keys, timestamps = (whole(batch, name) for name in ("value", "key", "timestamp"))
    draft = Draft(plan, {"timestamp": timestamps}, payloads, keys, timestamps)
    draft.text = payloads if _is_binary(plan) else _read_payloads(draft)
    draft.key_text = _read_keys(draft, keys)
    _refuse_large(draft)
    draft.columns |= {"value": payloads, "key": keys}
    return draft


def unfit_outcome(plan: ConversionPlan, batch: pa.Table) -> pa.Table | None:
    """Every record rejected, where with their headers the plan's transformations do not fit them; else None.

    What does not fit records without headers is told when the config is checked; headers come with records.
    """
    found = _misfits_of_headers(plan) if plan.headers else []
    if not found:
        return None
    key, _, expected = found[0]
    rejection = Rejection(Reason.WRONG_TYPE, f"record: {key} expected {expected}", Stage.TRANSFORMATION)
    payloads, keys, timestamps = (whole(batch, name) for name in ("value", "key", "timestamp"))
    draft = Draft(plan, {"timestamp": timestamps}, payloads, keys, timestamps)
    draft.rows = {at: Verdict(rejection) for at in range(len(payloads))}
    return assembled(draft)


@lru_cache(maxsize=64)
def _misfits_of_headers(plan: ConversionPlan) -> list[tuple[str, str, str]]:
    return misfits(plan)


@dataclass
class RowDraft(Draft):
    """Rows and their keys, fitted into what their schemas say."""

    records: ArrowColumn = None
    keys: ArrowColumn = None
    """Structs, or text; None where the job writes none."""


def begun_rows(plan: ConversionPlan, batch: pa.Table) -> RowDraft:
    """The draft of a micro-batch of rows, with what does not fit its schema.

    Raises ConversionFatal where a whole column is of a type that can never fit.
    """
    rows, keys, timestamps = (whole(batch, name) for name in ("value", "key", "timestamp"))
    draft = RowDraft(plan, {"timestamp": timestamps}, rows, keys, timestamps)
    assert plan.record is not None  # noqa: S101 - told to the type checker: plans are not compiled without
    fitted = _fitted(plan.record, rows, is_finite=plan.value_converter.kind is ConverterKind.JSON)
    draft.records = fitted.records
    draft.rows |= {at: Verdict(rejection) for at, rejection in fitted.rejected.items()}
    if plan.key_record is not None:
        _fit_keys(draft, plan.key_record)
    elif is_page_key_written(plan):
        draft.keys = _read_keys(draft, keys)
    if plan.key_record is None and not plan.key_fields:
        draft.columns["key"] = keys
    if plan.key_fields and not plan.has_keys_of_fields:
        _refuse_keyed_tombstones(draft)
    return draft


def _refuse_keyed_tombstones(draft: RowDraft) -> None:
    """A key from the fields of a row cannot be had where there is no row, nor a key with those fields."""
    is_keyed = np.asarray(pc.and_(draft.payloads.is_null(), draft.page_keys.is_valid()))
    message = "key: expected a value, or a key of its own, to take key.fields from"
    for at in np.flatnonzero(is_keyed):
        rejection = Rejection(Reason.UNREPRESENTABLE, message, Stage.KEY_CONVERTER)
        draft.rows.setdefault(int(at), Verdict(rejection))


def _fit_keys(draft: RowDraft, record: Record) -> None:
    fitted = _fitted(record, draft.page_keys, is_finite=draft.plan.key_converter.kind is ConverterKind.JSON)
    draft.keys = fitted.records
    for at, rejection in fitted.rejected.items():
        message = f"key: {rejection.message}"
        draft.rows.setdefault(at, Verdict(replace(rejection, message=message, stage=Stage.KEY_CONVERTER)))


def _fitted(record: Record, rows: ArrowColumn, *, is_finite: bool) -> FittedRows:
    try:
        return fitted_rows(record, rows, is_finite=is_finite)
    except RowsMisfit as misfit:
        raise ConversionFatal(f"rows of {record.name} are not of their schema: {misfit}") from misfit


def refuse_large_values(draft: Draft) -> None:
    """Rows have no bytes before they are written."""
    limit = draft.plan.record_bytes_max
    if "value" not in draft.columns:
        return
    for at in np.flatnonzero(is_larger(draft.columns["value"], bytes_max=limit)):
        rejection = Rejection(Reason.TOO_LARGE, f"record: expected at most {limit} bytes as it is written")
        dedupe = draft.columns["dedupe"][int(at)].as_py() if "dedupe" in draft.columns else None
        draft.rows.setdefault(int(at), Verdict(rejection, dedupe=dedupe))


def _is_binary(plan: ConversionPlan) -> bool:
    return plan.payload_format is PayloadFormat.BYTES and not plan.is_json


def whole(batch: pa.Table, name: str) -> ArrowColumn:
    """A column of a table in one piece."""
    column = batch.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _read_payloads(draft: Draft) -> ArrowColumn:
    text = read_utf8(draft.payloads)
    for at in np.flatnonzero(text.is_invalid):
        _refuse(draft, int(at), Rejection(Reason.INVALID_UTF8, "record: expected UTF-8"))
    return text.column


def _read_keys(draft: Draft, keys: ArrowColumn) -> ArrowColumn | None:
    """Page keys as text; not looked at where they are bytes, or where the key comes from the record."""
    plan = draft.plan
    is_unread = plan.key_fields or plan.has_key_of_value or plan.key_converter.kind is ConverterKind.BYTES
    if is_unread or keys.null_count == len(keys):
        return pa.nulls(len(keys), pa.string())
    number = plan.key_converter.kind.number
    if number is not None and not is_page_key_written(plan):
        message = f"key: expected none, or one that is made of fields: a text is no {number.connect_type}"
        for at in np.flatnonzero(keys.is_valid()):
            _refuse(draft, int(at), Rejection(Reason.WRONG_TYPE, message, Stage.KEY_CONVERTER))
        return pa.nulls(len(keys), pa.string())
    text = read_utf8(keys)
    for at in np.flatnonzero(text.is_invalid):
        _refuse(draft, int(at), Rejection(Reason.INVALID_UTF8, "key: expected UTF-8", Stage.KEY_CONVERTER))
    return text.column


def _refuse_large(draft: Draft) -> None:
    limit = draft.plan.record_bytes_max
    for at in np.flatnonzero(is_larger(draft.payloads, bytes_max=limit)):
        _refuse(draft, int(at), Rejection(Reason.TOO_LARGE, f"record: expected at most {limit} bytes"))


def _refuse(draft: Draft, at: int, rejection: Rejection) -> None:
    payload = draft.payloads[at].as_py() if draft.plan.dedupe_fields else None
    draft.rows[at] = Verdict(rejection, dedupe=None if payload is None else payload_hash(payload))


def keep_tombstones(draft: Draft, is_tombstone: np.ndarray) -> None:
    """A tombstone's key can only come from its page; where keys are records it must be one already."""
    plan = draft.plan
    if not plan.key_fields and not plan.has_key_of_value:
        return
    if refuse_valueless(draft, is_tombstone):
        return
    for at in map(int, np.flatnonzero(is_tombstone)):
        key = draft.page_keys[at].as_py()
        rejection = None if key is None else _tombstone_key_rejection(plan, key)
        if key is not None and plan.key_fields and is_reshaped(plan, Side.KEY):
            message = "key: expected a value to take key.fields from, which are transformed"
            rejection = Rejection(Reason.UNREPRESENTABLE, message, Stage.TRANSFORMATION)
        stamp = draft.columns["timestamp"][at].as_py()
        draft.rows[at] = Verdict(rejection, key=key, timestamp=stamp)


def refuse_valueless(draft: Draft, is_tombstone: np.ndarray) -> bool:
    """Tombstones have no fields to make a key of, where a transformation is to make one; whether it is."""
    applied = draft.plan.applied_steps(is_tombstone=True)
    if applied.is_dropped or not applied.has_key_of_value:
        return False
    rejection = Rejection(Reason.WRONG_TYPE, "key: expected a value to make it of", Stage.TRANSFORMATION)
    for at in map(int, np.flatnonzero(is_tombstone)):
        draft.rows.setdefault(at, Verdict(rejection))
    return True


def _tombstone_key_rejection(plan: ConversionPlan, key: bytes) -> Rejection | None:
    kind = plan.key_converter
    if kind.kind in {ConverterKind.STRING, ConverterKind.BYTES}:
        return None
    if kind.kind is ConverterKind.AVRO or kind.is_schema_enveloped or kind.kind.number is not None:
        message = "key: expected a value to take key.fields from"
        return Rejection(Reason.UNREPRESENTABLE, message, Stage.KEY_CONVERTER)
    try:
        parse(key)
    except RejectedPayload as refusal:
        return Rejection(refusal.rejection.reason, "key: expected JSON", Stage.KEY_CONVERTER)
    return None


def completed(draft: Draft, at: int, verdict: Verdict) -> Verdict:
    """What the exact path does not write comes from the page."""
    if verdict.rejection is not None:
        return verdict
    stamp = draft.columns["timestamp"][at].as_py() if verdict.timestamp is None else verdict.timestamp
    is_own = draft.plan.key_fields or draft.plan.has_key_of_value
    key = verdict.key if is_own else draft.columns["key"][at].as_py()
    return replace(verdict, key=key, timestamp=stamp)


def refuse_early_timestamps(draft: Draft) -> None:
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


def transformation_failed(plan: ConversionPlan) -> Rejection:
    """Of a record on which an expression of `Sql` raises, or what it makes cannot be written."""
    names = ", ".join(step.name for step in plan.transformations if isinstance(step.transformation, Sql))
    message = f"transformation {names}: expected a record on which no expression fails"
    return Rejection(Reason.EXPRESSION_FAILED, message, Stage.TRANSFORMATION)


def _column(draft: Draft, name: str, kind: ArrowColumn) -> ArrowColumn:
    column = draft.columns.get(name)
    return pa.nulls(len(draft.payloads), kind) if column is None else column.cast(kind)


def _topics(draft: Draft) -> ArrowColumn:
    """Where records are routed to; null where they stay. What has no time for a router of time is refused."""
    plan, count = draft.plan, len(draft.payloads)
    if not plan.transformations:
        return pa.nulls(count, pa.string())
    values, tombstones = plan.applied_steps(), plan.applied_steps(is_tombstone=True)
    is_null = draft.payloads.is_null()
    if values.routers or tombstones.routers:
        return _timed_topics(draft, values, tombstones)
    own, of_nulls = (
        pa.scalar(None if each.topic == plan.topic else each.topic, pa.string()) for each in (values, tombstones)
    )
    return pc.if_else(is_null, of_nulls, own)


def _timed_topics(draft: Draft, values: AppliedSteps, tombstones: AppliedSteps) -> ArrowColumn:
    is_null = draft.payloads.is_null()
    stamps = _column(draft, "timestamp", pa.int64()).to_pylist()
    for at, row in draft.rows.items():
        stamps[at] = None if row.rejection is not None else row.timestamp
    timestamps = pa.array(stamps, pa.int64())
    topics = [_routed(each, timestamps) for each in (values, tombstones)]
    found = pc.if_else(is_null, topics[1], topics[0])
    rejection = Rejection(Reason.NULL_NOT_ALLOWED, "timestamp: expected a time to route by", Stage.TRANSFORMATION)
    for at in map(int, np.flatnonzero(np.asarray(found.is_null()))):
        known = draft.rows.get(at)
        if known is not None and known.rejection is None:
            draft.rows[at] = Verdict(rejection, dedupe=known.dedupe)
        elif known is None:
            dedupe = draft.columns["dedupe"][at].as_py() if "dedupe" in draft.columns else None
            draft.rows[at] = Verdict(rejection, dedupe=dedupe)
    return found


def _routed(applied: AppliedSteps, timestamps: ArrowColumn) -> ArrowColumn:
    """The topics that routers make, with the time of each record; dropped records go nowhere, and need no time."""
    topics: ArrowColumn = pa.repeat(pa.scalar(applied.topic, pa.string()), len(timestamps))
    for router in () if applied.is_dropped else applied.routers:
        if isinstance(router, TimestampRouter):
            topics = routed_topics(router, topics, timestamps)
        else:
            encoded = topics.dictionary_encode()
            names = pa.array([router.routed(topic) for topic in encoded.dictionary.to_pylist()], pa.string())
            topics = names.take(encoded.indices)
    return topics


def _is_dropped(draft: Draft) -> ArrowColumn:
    """Where a filter drops the record."""
    plan, count = draft.plan, len(draft.payloads)
    if not plan.transformations:
        return pa.nulls(count, pa.bool_())
    values, tombstones = plan.applied_steps(), plan.applied_steps(is_tombstone=True).is_dropped
    is_dropped: ArrowColumn = pa.scalar(values.is_dropped)
    if values.events is not None and isinstance(draft, RowDraft):
        is_dropped = pa.array(values.events.dropped(draft.records, plan.record))
    found = pc.if_else(draft.payloads.is_null(), tombstones, is_dropped)
    return found if "is_dropped" not in draft.columns else pc.or_(found, pa.array(_told_dropped(draft)))


def _told_dropped(draft: Draft) -> np.ndarray:
    """Where the job's column says so, or the set where another row stands in the place of the job's."""
    told = np.array(pc.fill_null(draft.columns["is_dropped"], False))  # noqa: FBT003 - a literal
    told[list(draft.rows)] = False
    told[list(draft.dropped)] = True
    return told


def assembled(draft: Draft) -> pa.Table:
    """All columns as OUTCOME_SCHEMA, single rows in their places.

    A record that was dropped leaves no hash: an equal one that is not dropped is no duplicate of it.
    """
    count, topics = len(draft.payloads), _topics(draft)
    picks = np.arange(count, dtype=np.int64)
    places = np.fromiter(draft.rows, dtype=np.int64, count=len(draft.rows))
    picks[places] = count + np.arange(len(places))
    rows = list(draft.rows.values())
    indices: ArrowColumn = pa.array(picks)
    columns: dict[str, ArrowColumn] = {"ordinal": pa.array(np.arange(count, dtype=np.int32))}
    for name, kind in _TYPES.items():
        base = _column(draft, name, kind)
        shown = [None if r.rejection is not None and name in _WRITTEN else getattr(r, name) for r in rows]
        is_told = base.null_count < count or any(value is not None for value in shown)
        columns[name] = pa.concat_arrays([base, pa.array(shown, kind)]).take(indices) if rows and is_told else base
    columns["topic"] = topics
    for name in ("stage", "reason", "message"):
        shown = [None if row.rejection is None else str(getattr(row.rejection, name)) for row in rows]
        base = pa.nulls(count, pa.string())
        columns[name] = pa.concat_arrays([base, pa.array(shown, pa.string())]).take(indices) if rows else base
    columns["is_dropped"] = pc.and_(_is_dropped(draft), columns["reason"].is_null())
    if pc.any(columns["is_dropped"]).as_py():
        columns["dedupe"] = pc.if_else(columns["is_dropped"], pa.scalar(None, pa.binary()), columns["dedupe"])
    return pa.table([columns[name] for name in OUTCOME_SCHEMA.names], schema=OUTCOME_SCHEMA)
