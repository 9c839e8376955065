"""One micro-batch through a plan without a Spark session: verdicts, and the valid records as rows of a DataFrame.

For the Python processes of Spark's executors, where there is no session to run a job on. Arrow proves what it can
(`proof`), in whole columns; the exact path judges the others, one by one. Both are the same here as in the service's
conversion, and so are their verdicts: the tests of `tests/spark/test_judge_rows.py` put the same records through both.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from spark_batch.avro_types import AvroType, Field, Primitive, Record, Slot, Temporal
from spark_batch.convert_exactly import record_timestamp
from spark_batch.draft import UNREADABLE, Draft, assembled, begun, completed, refuse_early_timestamps
from spark_batch.exact.verdicts import Verdict, exact_verdict
from spark_batch.exact.writing import LENGTH_READABLE, is_readable_by_spark, typed_value
from spark_batch.outcome import ArrowColumn, Reason, Rejection
from spark_batch.payload_fields import DedupeField, dedupe_fields
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec
from spark_batch.prepass import is_unsure, pc
from spark_batch.proof import Proof, ProofShape, proof_shape, prove
from spark_batch.row_types import carried_records, row_type, shown_records, with_defaults

_JSON, _BYTES = ConverterSpec(ConverterKind.JSON), ConverterSpec(ConverterKind.BYTES)
_NOTHING = Record("Any", (Field("nothing", secrets.token_hex(16), Slot(Primitive.STRING, is_nullable=True)),))
"""What is asked of an object of which nothing is known: that it is JSON. Its only field is never there."""


@dataclass(frozen=True)
class JudgedRows:
    """Verdicts and records of a micro-batch.

    `outcome`: as OUTCOME_SCHEMA, without what converters write. `records`: a struct for each row, null where there is
    none (a rejected record, a tombstone); None for plans without a contract.
    """

    outcome: pa.Table
    records: ArrowColumn | None


def plan_for_rows(plan: ConversionPlan) -> ConversionPlan:
    """The plan without what only Kafka's records have: converters, keys made of fields, transformations."""
    return replace(
        plan, key_fields=(), key_converter=_BYTES, value_converter=_JSON, transformations=(), topic=""
    ).with_schema_ids()


def judge_rows(plan: ConversionPlan, batch: pa.Table) -> JudgedRows:
    """The verdicts on a micro-batch (INPUT_SCHEMA) by a plan of `plan_for_rows` without rules, and its records.

    Blocking; never raises for a bad record. Called where a data source reads.
    """
    draft = begun(plan, batch)
    draft.columns["value"] = pa.nulls(batch.num_rows, pa.binary())  # nothing is written, and payloads need no copy
    found = _Found(np.zeros(batch.num_rows, dtype=bool), None, {})
    if plan.is_json and batch.num_rows:
        found = _found(draft)
    refuse_early_timestamps(draft)
    outcome = assembled(draft)
    record = plan.record
    return JudgedRows(outcome, None if record is None else _rows(record, found, outcome.column("reason")))


@dataclass(frozen=True)
class _Found:
    """The typed records of a micro-batch, by how they were read."""

    is_proven: np.ndarray
    proven: ArrowColumn | None
    """Those of the proven rows, in order; None without a contract."""
    exact: dict[int, object]
    """By row, as the exact path writes them canonically."""


def _found(draft: Draft) -> _Found:
    """Judge every payload; verdicts go into the draft."""
    plan = draft.plan
    is_left = np.asarray(draft.payloads.is_valid()).copy()
    is_left[list(draft.rows)] = False
    is_asked = is_left & ~is_unsure(draft.text)
    shape = _shape(plan)
    text = draft.text if is_asked.all() else pc.if_else(pa.array(is_asked), draft.text, pa.scalar(None, pa.string()))
    proof = None if shape is None else prove(text, shape)
    is_proven = np.zeros(len(is_left), dtype=bool) if proof is None else proof.is_proven
    if proof is not None and plan.record is not None:
        _tell_of_proven(draft, plan.record, proof)
    exact = {}
    for at in map(int, np.flatnonzero(is_left & ~is_proven)):
        verdict, record = _exactly(plan, draft.payloads[at].as_py())
        draft.rows[at] = replace(completed(draft, at, verdict), value=None)
        if record is not None:
            exact[at] = record
    return _Found(is_proven, None if proof is None else proof.records, exact)


@lru_cache(maxsize=64)
def _shape(plan: ConversionPlan) -> ProofShape | None:
    """What Arrow is to prove; None where everything is for the exact path."""
    if plan.record is not None:
        return proof_shape(plan)
    if plan.dedupe_fields or plan.timestamp_field is not None:
        return None
    is_nothing = pa.struct([(_NOTHING.fields[0].json_name, pa.string())])
    return ProofShape(_NOTHING, is_nothing, is_unknown_refused=False, told_apart=(), hashed=())


def _exactly(plan: ConversionPlan, payload: bytes) -> tuple[Verdict, object | None]:
    """The exact path's verdict, and the canonical record of a valid one of a contract."""
    verdict = exact_verdict(plan, payload)
    if verdict.canonical is None or plan.record is None:
        return verdict, None
    record = typed_value(verdict.canonical)
    if len(verdict.canonical) > LENGTH_READABLE and not is_readable_by_spark(plan.record, record):
        return Verdict(Rejection(Reason.UNREPRESENTABLE, UNREADABLE), dedupe=verdict.dedupe), None
    stamp = None if plan.timestamp_field is None else record_timestamp(plan, plan.timestamp_field, record)
    return replace(verdict, canonical=None, timestamp=stamp), record


def _tell_of_proven(draft: Draft, record: Record, proof: Proof) -> None:
    """Timestamps, hashes and coercions of the proven records, as whole columns of the draft."""
    plan = draft.plan
    rows: ArrowColumn = pa.array(np.cumsum(proof.is_proven) - 1, mask=~proof.is_proven)

    def spread(column: ArrowColumn) -> ArrowColumn:
        return column if proof.is_proven.all() else column.take(rows)

    if plan.timestamp_field is not None:
        stamps = spread(_timestamps(record, plan.timestamp_field, proof.records))
        draft.columns["timestamp"] = pc.coalesce(stamps, draft.columns["timestamp"])
    if plan.dedupe_fields:
        draft.columns["dedupe"] = spread(_hashes(dedupe_fields(plan.dedupe_fields, record), proof.records))
    if plan.coerced_fields:
        draft.columns["coerced"] = spread(pa.array(proof.coerced, mask=proof.coerced == 0))


def _timestamps(record: Record, path: str, records: ArrowColumn) -> ArrowColumn:
    """Milliseconds at a path of payload names, null where there is nothing."""
    kind: AvroType = record
    names = []
    for name in path.split("."):
        assert isinstance(kind, Record)  # noqa: S101 - told to the type checker; `plan_findings` refuses other paths
        field = next(each for each in kind.fields if each.json_name == name)
        names.append(field.name)
        kind = field.slot.type
    column = pc.struct_field(records, names).cast(pa.int64())
    if kind is not Temporal.TIMESTAMP_MICROS:
        return column
    micros = np.asarray(column.fill_null(0))
    return pa.array(np.floor_divide(micros, 1000), mask=np.asarray(column.is_null()))


def _hashes(fields: tuple[DedupeField, ...], records: ArrowColumn) -> ArrowColumn:
    """The hashes that `payload_fields.typed_dedupe_hash` makes of the same records in Spark."""
    parts = [_hashed_text(field, pc.struct_field(records, list(field.avro_names))) for field in fields]
    text = pc.binary_join_element_wise("F", *parts, "").cast(pa.binary())
    # Arrow has no cryptographic hash: one call of C for each record, 0.5 µs.
    md5 = hashlib.md5
    return pa.array([md5(each, usedforsecurity=False).digest() for each in text.to_pylist()], pa.binary())


def _hashed_text(field: DedupeField, column: ArrowColumn) -> ArrowColumn:
    if field.kind in {Primitive.BOOLEAN, Primitive.INT, Primitive.LONG}:
        letter = "b" if field.kind is Primitive.BOOLEAN else "i"
        text = pc.binary_join_element_wise(letter, column.cast(pa.string()), ";", "")
    else:
        text = pc.binary_join_element_wise("s", pc.binary_length(column).cast(pa.string()), ":", column, "")
    return pc.coalesce(text, "m")


def _rows(record: Record, found: _Found, reasons: ArrowColumn) -> ArrowColumn:
    """Every row's record, null where it is rejected or there is none."""
    parts = [pa.nulls(0, row_type(record))]
    places = np.full(len(found.is_proven), -1, dtype=np.int64)
    if found.proven is not None:
        parts.append(shown_records(record, with_defaults(record, found.proven)))
        places[found.is_proven] = np.arange(len(found.proven))
    if found.exact:
        places[list(found.exact)] = len(parts[-1]) + np.arange(len(found.exact))
        parts.append(shown_records(record, carried_records(record, list(found.exact.values()))))
    places[np.asarray(reasons.is_valid())] = -1
    if found.is_proven.all() and not found.exact and (places >= 0).all():
        return parts[-1]
    return pa.concat_arrays(parts).take(pa.array(places, mask=places < 0))
