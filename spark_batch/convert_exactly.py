"""One micro-batch through a plan by the exact path alone: the outcome that Spark's job gives, without Spark.

For samples of a few thousand records: each is looked at singly. What is equal, and how that is known: the tests of
`tests/spark/test_exactly.py` put the same records through both.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
import pyarrow as pa

from spark_batch.avro_types import SCHEMAS_MAX, AvroType, JsonValue, Record, Temporal
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
    refuse_valueless,
    unfit_outcome,
)
from spark_batch.exact.verdicts import HeaderTexts, Verdict, exact_verdict, told_headers
from spark_batch.exact.writing import LENGTH_READABLE, is_readable_by_spark, typed_value, written_value
from spark_batch.literals.reading import Number
from spark_batch.literals.rows import canonical_row, row_hash
from spark_batch.outcome import OUTCOME_SCHEMA, Reason, Rejection, Stage
from spark_batch.plan import ConversionPlan, ConverterSpec, PayloadFormat
from spark_batch.plan_transforms import (
    has_sql,
    is_page_key_written,
    is_value_written,
    plain_key_shape,
    plain_value_shape,
)
from spark_batch.transforms.applied import AppliedStep
from spark_batch.transforms.catalog import ExtractNewRecordState, HeaderFrom, Side
from spark_batch.transforms.form import ExactRow, Inapplicable
from spark_batch.transforms.shape import Shape


class RulesNeedSparkError(ValueError):
    """The plan's contract has rules, or it has an `Sql`: expressions of Spark SQL."""


def is_judged_exactly(plan: ConversionPlan) -> bool:
    """Whether `convert_exactly` takes the plan."""
    return (plan.contract is None or not plan.contract.rules) and not has_sql(plan)


def convert_exactly(plan: ConversionPlan, batch: pa.Table) -> pa.Table:
    """The outcome of a micro-batch (INPUT_SCHEMA), as OUTCOME_SCHEMA.

    Raises RulesNeedSparkError, and ValueError where an Avro plan has no schema id; never for a bad record. Blocking,
    about 20,000 small records a second. `service.preview` and whoever else judges samples calls it.
    """
    if not is_judged_exactly(plan):
        raise RulesNeedSparkError("rules and Sql are evaluated by Spark: expected a plan without them")
    if not batch.num_rows:
        return OUTCOME_SCHEMA.empty_table()
    unfit = unfit_outcome(plan, batch)
    if unfit is not None:
        return unfit
    if plan.is_of_rows:
        return _convert_rows(plan, batch)
    draft = begun(plan, batch)
    is_tombstone = np.asarray(draft.payloads.is_null())
    keep_tombstones(draft, is_tombstone)
    if is_page_key_written(plan):
        _write_page_keys(draft, is_tombstone)
    for at in map(int, np.flatnonzero(~is_tombstone)):
        if at not in draft.rows:
            draft.rows[at] = transformed_verdict(draft, at)
    refuse_early_timestamps(draft)
    return assembled(draft)


def _convert_rows(plan: ConversionPlan, batch: pa.Table) -> pa.Table:
    """The outcome of rows; raises ConversionFatal where a column can never fit their schema."""
    draft = begun_rows(plan, batch)
    assert plan.record is not None  # noqa: S101 - told to the type checker: the draft was begun with it
    if plan.has_key_of_value:
        refuse_valueless(draft, np.asarray(draft.payloads.is_null()))
    keys = [None] * len(draft.payloads) if draft.keys is None else draft.keys.to_pylist()
    for at, (row, key) in enumerate(zip(draft.records.to_pylist(), keys, strict=True)):
        if at not in draft.rows:
            draft.rows[at] = transformed_row(draft, at, row, key)
    refuse_early_timestamps(draft)
    return assembled(draft)


def transformed_row(draft: RowDraft, at: int, row: JsonValue, key: JsonValue) -> Verdict:
    """On a row and its key that fit their schemas, as pyarrow gives them to Python, without the plan's rules."""
    try:
        return _row_verdict(draft, at, row, key)
    except Inapplicable as error:
        plan = draft.plan
        is_hashed = row is not None and bool(plan.dedupe_fields)
        dedupe = row_hash(plan.dedupe_fields, plan.record, canonical_row(plan.record, row)) if is_hashed else None
        return Verdict(Rejection(error.reason, error.message, Stage.TRANSFORMATION), dedupe=dedupe)


def _row_verdict(draft: RowDraft, at: int, row: JsonValue, key: JsonValue) -> Verdict:
    """Raises Inapplicable."""
    plan, record = draft.plan, draft.plan.record
    value = None if row is None else canonical_row(record, row)
    stamp = draft.page_timestamps[at].as_py()
    own = None if plan.timestamp_field is None or value is None else record_timestamp(plan, plan.timestamp_field, value)
    told = stamp if own is None else own
    dedupe = None if value is None or not plan.dedupe_fields else row_hash(plan.dedupe_fields, record, value)
    texts: HeaderTexts = {}
    written = None if value is None else _written(plan, Side.VALUE, value, told, texts)
    if written is not None and len(written) > plan.record_bytes_max:
        message = f"record: expected at most {plan.record_bytes_max} bytes as it is written"
        return Verdict(Rejection(Reason.TOO_LARGE, message), dedupe=dedupe)
    own_key = key if plan.key_record is None or key is None else canonical_row(plan.key_record, key)
    if plan.key_fields:
        source = value if value is not None else own_key if plan.has_keys_of_fields else None
        own_key = None if source is None else _key_of(plan, source)
        made = _written_key(plan, own_key, told, texts)
    elif plan.has_key_of_value:
        made = _written_key(plan, value, told, texts)
    elif draft.keys is not None:
        made = _written_key(plan, own_key, told, texts)
    else:
        made = draft.page_keys[at].as_py()
    return Verdict(value=written, key=made, timestamp=told, dedupe=dedupe, headers=told_headers(plan, texts))


def _write_page_keys(draft: Draft, is_tombstone: np.ndarray) -> None:
    """Keys of tombstones; those of other records are written with their values, which tell the timestamp."""
    draft.columns["key"] = pa.nulls(len(draft.payloads), pa.binary())
    write_tombstone_keys(draft, np.flatnonzero(is_tombstone))


def write_tombstone_keys(draft: Draft, rows: np.ndarray) -> None:
    """Keys of tombstones, or why they cannot be transformed."""
    for at in map(int, rows):
        if at in draft.rows:
            continue
        stamp = draft.page_timestamps[at].as_py()
        try:
            texts: HeaderTexts = {}
            key = _page_key(draft, at, stamp, texts)
            draft.rows[at] = Verdict(key=key, timestamp=stamp, headers=told_headers(draft.plan, texts))
        except Inapplicable as error:
            draft.rows[at] = Verdict(Rejection(error.reason, error.message, Stage.TRANSFORMATION))


def _page_key(draft: Draft, at: int, timestamp: int | None, texts: HeaderTexts) -> bytes | None:
    return _written_key(draft.plan, draft.key_text[at].as_py(), timestamp, texts)


def _written_key(plan: ConversionPlan, key: JsonValue, timestamp: int | None, texts: HeaderTexts) -> bytes | None:
    """As `_written`; a key that is not there stays so, unless headers are to be made of it."""
    if key is not None:
        return _written(plan, Side.KEY, key, timestamp, texts)
    for step, form in plan.applied_steps().header_steps:
        if form.side is Side.KEY:
            raise Inapplicable(Reason.NULL_NOT_ALLOWED, f"transformation {step.name}: expected a key")
    return None


def transformed_verdict(draft: Draft, at: int) -> Verdict:
    """On a payload that is there, and of a size and an encoding that is allowed; of a plan without rules."""
    try:
        return _verdict(draft, at)
    except Inapplicable as error:
        return Verdict(Rejection(error.reason, error.message, Stage.TRANSFORMATION), dedupe=_dedupe(draft, at))


def transformed_record(draft: Draft, at: int, judged: Verdict) -> Verdict:
    """Of a record whose payload is judged: written with its key, or rejected since it cannot be transformed."""
    try:
        if judged.canonical is not None:
            stamp = draft.page_timestamps[at].as_py()
            judged = _record_verdict(draft.plan, judged, judged.canonical, stamp)
        return _with_key(draft, at, judged)
    except Inapplicable as error:
        rejection = Rejection(error.reason, error.message, Stage.TRANSFORMATION)
        return Verdict(rejection, dedupe=judged.dedupe)


def _with_key(draft: Draft, at: int, judged: Verdict) -> Verdict:
    """With what comes from the page. Raises Inapplicable."""
    if judged.rejection is not None:
        return judged
    found = completed(draft, at, judged)
    if not is_page_key_written(draft.plan):
        return found
    texts: HeaderTexts = {}
    key = _page_key(draft, at, found.timestamp, texts)
    own = told_headers(draft.plan, texts)
    if own is not None and found.headers is not None:
        # Each is of the key or of the value.
        own = tuple(of_value if of_key is None else of_key for of_key, of_value in zip(own, found.headers, strict=True))
    return replace(found, key=key, headers=found.headers if own is None else own)


def _dedupe(draft: Draft, at: int) -> bytes | None:
    plan = draft.plan
    return exact_verdict(plan, draft.payloads[at].as_py()).dedupe if plan.is_json and plan.dedupe_fields else None


def _verdict(draft: Draft, at: int) -> Verdict:
    """Raises Inapplicable."""
    plan = draft.plan
    stamp = draft.page_timestamps[at].as_py()
    if plan.is_json:
        found = exact_verdict(plan, draft.payloads[at].as_py())
        if found.canonical is not None:
            found = _record_verdict(plan, found, found.canonical, stamp)
    else:
        texts: HeaderTexts = {}
        value = _plain_value(draft, at, stamp, texts)
        key = _key_of_plain_value(draft, at, stamp, texts)
        found = Verdict(value=value, key=key, headers=told_headers(plan, texts))
    return _with_key(draft, at, found)


def _plain_value(draft: Draft, at: int, stamp: int | None, texts: HeaderTexts) -> bytes | None:
    """Text or bytes that no contract describes."""
    payload: bytes = draft.payloads[at].as_py()
    if not is_value_written(draft.plan):
        return payload
    return _written(draft.plan, Side.VALUE, _text_of(draft, at), stamp, texts)


def _text_of(draft: Draft, at: int) -> str:
    """Text as it is, bytes in base64."""
    is_binary = draft.plan.payload_format is PayloadFormat.BYTES
    text: str = base64.b64encode(draft.payloads[at].as_py()).decode() if is_binary else draft.text[at].as_py()
    return text


def _key_of_plain_value(draft: Draft, at: int, stamp: int | None, texts: HeaderTexts) -> bytes | None:
    return _written(draft.plan, Side.KEY, _text_of(draft, at), stamp, texts) if draft.plan.has_key_of_value else None


def _record_verdict(plan: ConversionPlan, judged: Verdict, canonical: str, stamp: int | None) -> Verdict:
    """A valid record of a contract, written."""
    record = typed_value(canonical)
    assert plan.record is not None  # noqa: S101 - told to the type checker: only contracts have canonical texts
    if len(canonical) > LENGTH_READABLE and not is_readable_by_spark(plan.record, record):
        return Verdict(Rejection(Reason.UNREPRESENTABLE, UNREADABLE), dedupe=judged.dedupe)
    own = None if plan.timestamp_field is None else record_timestamp(plan, plan.timestamp_field, record)
    told = stamp if own is None else own
    texts: HeaderTexts = {}
    value = _written(plan, Side.VALUE, record, told, texts) if is_value_written(plan) else judged.value
    key = _written_key(plan, _key_of(plan, record), told, texts) if plan.key_fields else None
    if plan.has_key_of_value:
        key = _written(plan, Side.KEY, record, told, texts)
    headers = told_headers(plan, texts)
    return replace(judged, canonical=None, value=value, key=key, timestamp=own, headers=headers)


def _key_of(plan: ConversionPlan, record: JsonValue) -> JsonValue:
    if plan.key_converter.kind.is_single:
        return record[plan.key_fields[0]]
    return {name: record[name] for name in plan.key_fields}


def record_timestamp(plan: ConversionPlan, path: str, record: JsonValue) -> int | None:
    """Milliseconds since the epoch, or None where a record on the way or the field itself is null."""
    kind: AvroType | None = plan.record
    for name in path.split("."):
        if record is None or not isinstance(kind, Record):
            return None
        field = next(each for each in kind.fields if each.json_name == name)
        kind, record = field.slot.type, record[field.name]
    if record is None:
        return None
    return int(record) // 1000 if kind is Temporal.TIMESTAMP_MICROS else int(record)


def _written(  # noqa: PLR0917 - all of them, each time
    plan: ConversionPlan, side: Side, value: JsonValue, timestamp: int | None, /, texts: HeaderTexts
) -> bytes | None:
    """A key or value after its transformations, in the form of its converter; `texts` gets headers made of it.

    Raises Inapplicable.
    """
    way = _way(plan, side)
    stamp = None if timestamp is None else Number(timestamp)
    for step, shape in way.steps:
        try:
            if isinstance(step.reshaping, HeaderFrom):
                if step.reshaping.side is side:
                    texts[step.name] = _headers_made(step.reshaping, shape, value)
                continue
            value = step.reshaping.canonical(shape, value, ExactRow(step.topic, stamp))
        except Inapplicable as error:
            raise Inapplicable(error.reason, f"transformation {step.name}: {error.message}") from error
        if value is None and isinstance(step.reshaping, ExtractNewRecordState):
            # A delete leaves nothing to write: its value is a tombstone, whatever the converter.
            return None
    return written_value(way.shape, value, plan.value_converter if side is Side.VALUE else plan.key_converter)


def _headers_made(form: HeaderFrom, shape: Shape, value: JsonValue) -> list[bytes | None]:
    """Raises Inapplicable."""
    if form.is_text or value is None:
        return form.canonical_texts(shape, value)
    spec = cast("ConverterSpec", form.form)
    return [written_value(own, value[name], spec) for name, own in form.field_shapes(shape)]


@dataclass(frozen=True)
class _Way:
    """What values, or keys, of one plan go through, and what they are at its end."""

    steps: tuple[tuple[AppliedStep, Shape], ...]
    """With the shape before each."""
    shape: Shape


@lru_cache(maxsize=SCHEMAS_MAX)
def _way(plan: ConversionPlan, side: Side) -> _Way:
    steps = plan.applied_steps().of(side) if plan.transformations else ()
    shape = plain_value_shape(plan) if side is Side.VALUE else plain_key_shape(plan)
    assert shape is not None  # noqa: S101 - told to the type checker; what is loose is written by the exact path itself
    found = []
    for step in steps:
        found.append((step, shape))
        shape = step.reshaping.reshaped(step.name, shape)
    return _Way(tuple(found), shape)
