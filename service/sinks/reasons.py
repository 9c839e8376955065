"""Why a sink refuses a record, in a word for metrics and logs; the message says the rest."""

from __future__ import annotations

from enum import StrEnum


class RefusalReason(StrEnum):
    """Of converters first, then of transformations."""

    INVALID_UTF8 = "invalid_utf8"
    MALFORMED_JSON = "malformed_json"
    TOO_DEEP = "too_deep"
    NO_ENVELOPE = "no_envelope"
    NOT_AVRO = "not_avro"
    NO_SCHEMA = "no_schema"
    WRONG_TYPE = "wrong_type"
    MISSING_FIELD = "missing_field"
    DUPLICATE_FIELD = "duplicate_field"
    MISSING_TIMESTAMP = "missing_timestamp"
    UNUSABLE_DEFAULT = "unusable_default"
