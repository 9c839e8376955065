"""The transformations and predicates there are, and a step of a config made of them."""

from __future__ import annotations

from dataclasses import dataclass

from spark_batch.transforms.by_logical_table_router import ByLogicalTableRouter
from spark_batch.transforms.cast import Cast
from spark_batch.transforms.drop_headers import DropHeaders
from spark_batch.transforms.extract_field import ExtractField
from spark_batch.transforms.extract_new_record_state import ExtractNewRecordState
from spark_batch.transforms.filter import Filter
from spark_batch.transforms.flatten import Flatten
from spark_batch.transforms.form import Side
from spark_batch.transforms.header_from import HeaderFrom
from spark_batch.transforms.hoist_field import HoistField
from spark_batch.transforms.insert_field import FieldName, InsertField
from spark_batch.transforms.insert_header import InsertHeader
from spark_batch.transforms.mask_field import MaskField
from spark_batch.transforms.predicates import HasHeaderKey, Predicate, RecordIsTombstone, TopicNameMatches
from spark_batch.transforms.regex_router import RegexRouter
from spark_batch.transforms.replace_field import ReplaceField
from spark_batch.transforms.set_schema_metadata import SetSchemaMetadata
from spark_batch.transforms.sql import Sql
from spark_batch.transforms.timestamp_converter import TimestampConverter
from spark_batch.transforms.timestamp_router import TimestampRouter
from spark_batch.transforms.value_to_key import ValueToKey

__all__ = [
    "PREDICATES",
    "RESHAPINGS",
    "ROUTERS",
    "WHOLE",
    "ByLogicalTableRouter",
    "Cast",
    "DropHeaders",
    "ExtractField",
    "ExtractNewRecordState",
    "FieldName",
    "Filter",
    "Flatten",
    "HasHeaderKey",
    "HeaderFrom",
    "HoistField",
    "InsertField",
    "InsertHeader",
    "MaskField",
    "Predicate",
    "RecordIsTombstone",
    "RegexRouter",
    "ReplaceField",
    "ReshapingForm",
    "SetSchemaMetadata",
    "Side",
    "Sql",
    "Step",
    "TimestampConverter",
    "TimestampRouter",
    "TopicNameMatches",
    "Transformation",
    "ValueToKey",
]

ReshapingForm = (
    Cast
    | ExtractField
    | Flatten
    | HoistField
    | InsertField
    | MaskField
    | ReplaceField
    | SetSchemaMetadata
    | TimestampConverter
)
Router = RegexRouter | TimestampRouter
HeaderEdit = DropHeaders | InsertHeader
OfDebezium = ByLogicalTableRouter | ExtractNewRecordState
Transformation = ReshapingForm | Router | HeaderEdit | Filter | HeaderFrom | Sql | ValueToKey | OfDebezium
RESHAPINGS: tuple[type[ReshapingForm], ...] = (
    Cast,
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    TimestampConverter,
)
"""Transformations of keys or values; Connect has two classes of each, `$Key` and `$Value`."""
ROUTERS: tuple[type[Router], ...] = (RegexRouter, TimestampRouter)
"""Transformations of topics."""
HEADER_EDITS: tuple[type[HeaderEdit], ...] = (DropHeaders, InsertHeader)
"""Transformations of headers that do not look at the record."""
WHOLE: tuple[type[Router | HeaderEdit | Filter | ValueToKey | OfDebezium], ...] = (
    ByLogicalTableRouter,
    ExtractNewRecordState,
    Filter,
    *HEADER_EDITS,
    *ROUTERS,
    ValueToKey,
)
"""Transformations of whole records, which are one class in Connect."""
PREDICATES: tuple[type[Predicate], ...] = (HasHeaderKey, RecordIsTombstone, TopicNameMatches)


@dataclass(frozen=True)
class Step:
    """One transformation under its name in the config, and for which records."""

    name: str
    transformation: Transformation
    predicate: Predicate | None = None
    is_negated: bool = False
