"""The exact path over the suspicious payloads of a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from spark_batch.exact.fields import dedupe_hash, loose_key, loose_timestamp, payload_hash
from spark_batch.exact.judge import canonical_record
from spark_batch.exact.keep import is_kept_whole, kept_payload
from spark_batch.literals.reading import RejectedPayload, parse
from spark_batch.literals.writing import json_text
from spark_batch.outcome import Reason, Rejection, Stage
from spark_batch.plan import ConversionPlan, ConverterKind, UnknownFields
from spark_batch.plan_transforms import is_reshaped
from spark_batch.transforms.catalog import HeaderFrom, Side
from spark_batch.transforms.form import Inapplicable

if TYPE_CHECKING:
    from spark_batch.avro_types import JsonValue


@dataclass(frozen=True)
class Verdict:
    """What the exact path says of one payload.

    With `canonical` the canonical job still has to write it; otherwise `value` is the value as it goes out.
    """

    rejection: Rejection | None = None
    canonical: str | None = None
    value: bytes | None = None
    key: bytes | None = None
    timestamp: int | None = None
    dedupe: bytes | None = None
    coerced: int | None = None
    """Bits of the fields in which a text was taken for their value (`ConversionPlan.coerced_fields` names them)."""
    headers: tuple[bytes | None, ...] | None = None
    """As in an outcome."""


HeaderTexts: TypeAlias = "dict[str, list[bytes | None]]"
"""What each `HeaderFrom` makes of one record, by its alias."""


def told_headers(plan: ConversionPlan, texts: HeaderTexts) -> tuple[bytes | None, ...] | None:
    """The texts as an outcome tells them."""
    steps = plan.applied_steps().header_steps if texts else ()
    if not steps:
        return None
    return tuple(text for step, form in steps for text in texts.get(step.name, [None] * len(form.fields)))


def exact_verdict(plan: ConversionPlan, payload: bytes) -> Verdict:
    """The verdict on one payload of a plan that reads JSON; never raises for a bad payload."""
    whole = payload_hash(payload) if plan.dedupe_fields else None
    try:
        value = parse(payload)
        dedupe = dedupe_hash(plan.dedupe_fields, value, payload) if plan.dedupe_fields else None
    except RejectedPayload as refusal:
        return Verdict(refusal.rejection, dedupe=whole)
    except RecursionError:
        return Verdict(
            Rejection(Reason.TOO_DEEP, "a field of dedupe.fields nests too deep to be compared"), dedupe=whole
        )
    try:
        return _judged(plan, payload, value, dedupe)
    except RejectedPayload as refusal:
        return Verdict(refusal.rejection, dedupe=dedupe)
    except RecursionError:
        return Verdict(Rejection(Reason.TOO_DEEP, "record: nests too deep to be written again"), dedupe=dedupe)


def _judged(plan: ConversionPlan, payload: bytes, value: JsonValue, dedupe: bytes | None) -> Verdict:
    if plan.record is not None and plan.contract is not None:
        policy = plan.contract.unknown_fields
        canonical = canonical_record(plan.record, value, is_unknown_refused=policy is UnknownFields.REJECT)
        is_rewritten = policy is UnknownFields.KEEP and not is_kept_whole(plan.record)
        kept = kept_payload(plan.record, value) if is_rewritten else payload
        return Verdict(canonical=canonical.text, value=kept, dedupe=dedupe, coerced=canonical.coerced or None)
    timestamp = None
    if plan.timestamp_field is not None:
        try:
            timestamp = loose_timestamp(plan.timestamp_field, value)
        except RejectedPayload as refusal:
            rejection = Rejection(refusal.rejection.reason, refusal.rejection.message, Stage.TRANSFORMATION)
            return Verdict(rejection, dedupe=dedupe)
    written: bytes | None = payload
    texts: HeaderTexts = {}
    if is_reshaped(plan, Side.VALUE):
        try:
            written = _loosely_transformed(plan, value, texts)
        except Inapplicable as refusal:
            return Verdict(Rejection(refusal.reason, refusal.message, Stage.TRANSFORMATION), dedupe=dedupe)
    spec = plan.value_converter
    if written is not None and spec.kind is ConverterKind.JSON and spec.is_schema_enveloped:
        written = b'{"schema":null,"payload":' + written + b"}"
    headers = told_headers(plan, texts)
    return Verdict(value=written, key=_loose_key(plan, value), timestamp=timestamp, dedupe=dedupe, headers=headers)


def _loosely_transformed(plan: ConversionPlan, value: JsonValue, texts: HeaderTexts) -> bytes | None:
    """The value's JSON text after all transformations, digits and the order of fields kept; raises Inapplicable.

    A value that has become null is no value at all, as in Connect: without a schema it has no form.
    """
    for step in plan.applied_steps().of(Side.VALUE):
        if isinstance(step.reshaping, HeaderFrom):
            texts[step.name] = step.reshaping.exact_texts(value)
        value = step.reshaping.exact(step.name, step.topic, value)
    return None if value is None else json_text(value, number=str).encode()


def _loose_key(plan: ConversionPlan, value: JsonValue) -> bytes | None:
    if not plan.key_fields:
        return None
    if plan.key_converter.kind is not ConverterKind.JSON:
        text = loose_key(plan.key_fields[0], value)
        return None if text is None else text.encode()
    fields = value if isinstance(value, dict) else {}
    return json_text({name: fields.get(name) for name in plan.key_fields}).encode()
