"""Transformations of JSON that no contract describes: objects as they are, digits and the order of fields kept."""

from __future__ import annotations

from collections.abc import Iterable

from spark_batch.avro_types import JsonValue
from spark_batch.exact.fields import json_text
from spark_batch.exact.json_text import RejectedPayload
from spark_batch.outcome import Reason
from spark_batch.transforms.kinds import ExtractField, HoistField, InsertField
from spark_batch.transforms.tracks import Leg


def loosely_transformed(legs: Iterable[Leg], value: JsonValue) -> bytes | None:
    """The value's JSON text after all of them; raises RejectedPayload where one cannot be applied.

    A value that has become null is no value at all, as in Connect: without a schema it has no form.
    """
    for leg in legs:
        value = _applied(leg, value)
    return None if value is None else json_text(value, number=str).encode()


def _applied(leg: Leg, value: JsonValue) -> JsonValue:
    reshaping = leg.reshaping
    if isinstance(reshaping, HoistField):
        return {reshaping.field: value}
    if isinstance(reshaping, ExtractField):
        return _extracted(leg.name, reshaping, value)
    if not isinstance(value, dict):
        raise RejectedPayload(Reason.WRONG_TYPE, f"transformation {leg.name}: expected an object")
    return {**value, **_inserted(reshaping, leg.topic)}


def _inserted(insert: InsertField, topic: str) -> dict[str, JsonValue]:
    """As in Connect, what is added takes the place of a field that has its name."""
    topics = {} if insert.topic is None else {insert.topic.name: topic}
    static = {} if insert.static is None else {insert.static.name: insert.static_value}
    return {**topics, **static}


def _extracted(name: str, extract: ExtractField, value: JsonValue) -> JsonValue:
    """A field that is missing is not null: Connect would make a tombstone of the record."""
    for step in extract.path:
        if not isinstance(value, dict):
            raise RejectedPayload(Reason.WRONG_TYPE, f"transformation {name}: expected an object")
        if step not in value:
            raise RejectedPayload(Reason.MISSING_FIELD, f"transformation {name}: expected field {step[:100]}")
        value = value[step]
    return value
