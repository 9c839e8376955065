"""Shapes of what goes into a conversion and what comes out of it, and the bounded vocabulary of rejections."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

ArrowColumn = Any
"""An Arrow array. The stubs of pyarrow know too little of its arrays to help a reader or a checker."""


class Stage(StrEnum):
    """Where a record was rejected: Kafka Connect's stage names."""

    VALUE_CONVERTER = "VALUE_CONVERTER"
    KEY_CONVERTER = "KEY_CONVERTER"
    TRANSFORMATION = "TRANSFORMATION"


class Reason(StrEnum):
    """Why a record was rejected; bounded, so that it may label a metric."""

    MALFORMED_JSON = "malformed_json"
    INVALID_UTF8 = "invalid_utf8"
    LONE_SURROGATE = "lone_surrogate"
    DUPLICATE_KEY = "duplicate_key"
    TOO_DEEP = "too_deep"
    TOO_LARGE = "too_large"
    WRONG_TYPE = "wrong_type"
    OUT_OF_RANGE = "out_of_range"
    MISSING_FIELD = "missing_field"
    NULL_NOT_ALLOWED = "null_not_allowed"
    UNKNOWN_FIELD = "unknown_field"
    UNKNOWN_SYMBOL = "unknown_symbol"
    RULE_FAILED = "rule_failed"
    EXPRESSION_FAILED = "expression_failed"
    UNREPRESENTABLE = "unrepresentable"


@dataclass(frozen=True)
class Rejection:
    """One record's rejection. The message names the field and what was expected, never the value."""

    reason: Reason
    message: str
    stage: Stage = Stage.VALUE_CONVERTER


_INPUT: dict[str, pa.DataType] = {"key": pa.binary(), "value": pa.binary(), "timestamp": pa.int64()}
_OUTCOME: dict[str, pa.DataType] = {
    "ordinal": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "timestamp": pa.int64(),
    "dedupe": pa.binary(),
    "coerced": pa.int64(),
    "headers": pa.list_(pa.binary()),
    "topic": pa.string(),
    "is_dropped": pa.bool_(),
    "stage": pa.string(),
    "reason": pa.string(),
    "message": pa.string(),
}
INPUT_SCHEMA = pa.schema(_INPUT)
"""Raw payloads as fetched; a null value is a tombstone; timestamps are milliseconds since the epoch."""

OUTCOME_SCHEMA = pa.schema(_OUTCOME)
"""One row for each input row, in the input's order.

`reason` null means valid; a rejected row has neither key nor value (the caller holds the original bytes). `dedupe` is a
16-byte hash where the plan names fields for it; `coerced` has a bit for each field in which a text was taken for its
value (`ConversionPlan.coerced_fields`; null: none); `headers` are the texts of those that `HeaderFrom` makes of the
record, in the order of `AppliedSteps.header_steps` of records with values (null: none); `topic` null means the
configured one; `is_dropped` is true of records that a filter has dropped, which are neither rejected nor written
(null: false).
"""
