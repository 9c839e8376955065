"""Fields with defaults beside Kafka Connect's own classes: what each transformation takes a null for, at a sink.

With `replace.null.with.default`, of the transformation and of JsonConverter, each true and false.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pyarrow as pa
import pytest

from service.config.transformations import read_transformations
from service.sinks.batch import Form, ValueType
from service.sinks.converters import EnvelopeReader
from service.sinks.readings import of_one_type, runs
from service.sinks.transforms.stage import transformed
from tests.differential.java_transforms import JavaRecord, JavaStep, JavaTransforms, needs_compiler
from tests.differential.test_records_in_java import HEADERS_TYPE
from tests.differential.test_transformations_in_java import (
    CONVERTER,
    PATTERN,
    TIMESTAMP_MS,
    Chain,
    both,
    properties,
    without_nulls,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

DATA = "org.apache.kafka.connect.data"


def field(named: str, kind: str, **more: Any) -> dict[str, Any]:
    """One that may be null, with a default where there is one."""
    return {"field": named, "type": kind, "optional": True, **more}


CITY = {"field": "city", "type": "string", "optional": False}
FIELDS = [
    field("small", "int32", default=7),
    field("none", "int32"),
    {**field("needed", "int32", default=3), "optional": False},
    field("text", "string", default="12"),
    field("flag", "boolean", default=True),
    field("at", "int64", name=f"{DATA}.Timestamp", version=1, default=1_000_000_000_000),
    field("day", "int32", name=f"{DATA}.Date", version=1, default=19_000),
    field("price", "bytes", name=f"{DATA}.Decimal", version=1, parameters={"scale": "2"}, default="BOI="),
    field("list", "array", items={"type": "int32", "optional": False}, default=[1, 2]),
    field("home", "struct", name="Home", fields=[CITY, field("floor", "int32", default=4)]),
    field("flat", "struct", name="Flat", fields=[CITY, field("floor", "int32", default=4)]),
]
SCHEMA = {"type": "struct", "optional": False, "name": "org.example.All", "fields": FIELDS}
FULL = {
    "small": 1, "none": 2, "needed": 5, "text": "34", "flag": False, "at": 1_700_000_000_123, "day": 1,
    "price": "AQ==", "list": [3], "home": {"city": "B", "floor": 1}, "flat": {"city": "B", "floor": None},
}  # fmt: skip
NULLS = {**dict.fromkeys(FULL), "needed": 5}
KEPT = [FULL, NULLS, {"needed": 4}, {**NULLS, "flat": {"city": "C"}, "home": {"city": "D", "floor": None}}]
DEFAULTED = [*KEPT, {"needed": None}, {}]
"""A null that is kept in a field that takes none is refused by JsonConverter itself."""
CONFIGS: dict[str, Chain] = {
    "none": (),
    "cast": (both("Cast$Value", spec="small:string,text:int32,flag:int8,at:string,none:string,needed:int8"),),
    "cast-twice": (both("Cast$Value", spec="small:int64"), both("Cast$Value", spec="small:string")),
    "extract-default": (both("ExtractField$Value", field="small"),),
    "extract-struct": (both("ExtractField$Value", field="home"),),
    "extract-within": (both("ExtractField$Value", field="flat.floor", field_syntax_version="V2"),),
    "flatten": (both("Flatten$Value"),),
    "hoist": (both("HoistField$Value", field="all"),),
    "insert": (both("InsertField$Value", static_field="s", static_value="x", topic_field="topic?"),),
    "mask": (both("MaskField$Value", fields="small,text,at,list,needed"),),
    "mask-replaced": (both("MaskField$Value", fields="text,small", replacement="99"),),
    "replace": (both("ReplaceField$Value", exclude="list", renames="small:tiny,home:house"),),
    "metadata": (both("SetSchemaMetadata$Value", schema_name="other", schema_version="2"),),
    "time": (both("TimestampConverter$Value", field="at", target_type="string", format=PATTERN),),
    "time-day": (both("TimestampConverter$Value", field="day", target_type="unix"),),
    "hoist-flatten": (both("HoistField$Value", field="all"), both("Flatten$Value", delimiter="_")),
    "extract-then": (both("ExtractField$Value", field="home"), both("Cast$Value", spec="floor:string")),
}
FILLED = {"flatten", "metadata", "hoist-flatten"}
"""Java's classes put defaults there whatever is told; here a null that JsonConverter was told to keep is kept."""
KEYED = ("Cast$", "ExtractField$", "InsertField$", "MaskField$", "ReplaceField$", "TimestampConverter$")
"""Which have the key; those of `HeaderFrom` and of change events are compared elsewhere."""


def keyed(chain: Chain, *, is_replaced: bool) -> Chain:
    """With the key of each transformation that has it."""
    own = {"replace.null.with.default": str(is_replaced).lower()}
    return tuple((name, {**config, **(own if name.startswith(KEYED) else {})}) for name, config in chain)


def at_a_sink(chain: Chain, values: list[bytes], *, is_null_kept: bool) -> dict[int, Any]:
    """What a sink is handed, by row: the schema and the payload."""
    steps = read_transformations(properties(chain), is_sink=True).steps
    count = len(values)
    reading = asyncio.run(EnvelopeReader(is_null_kept=is_null_kept).read(pa.array(values, pa.binary())))
    keys = of_one_type(pa.nulls(count, pa.string()), ValueType(Form.TEXT))
    columns = {
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([TIMESTAMP_MS] * count, pa.int64()),
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.nulls(count, HEADERS_TYPE),
    }
    after = transformed(steps, pa.table(columns), keys, reading)
    found: dict[int, Any] = {}
    for run in runs(after.keys, after.values):
        schema = run.value_type.schema
        for row, text in zip(run.rows.tolist(), run.values.to_pylist(), strict=True):
            found[row] = (
                json.loads((schema or "null").replace("headrace.default", "default")),
                None if text is None else json.loads(text),
            )
    return found


def filled(payload: Any, schema: Any, *, is_null_kept: bool) -> Any:
    """As a sink reads a payload: defaults in place of nulls, unless they are kept; null fields left out."""
    if payload is None and not is_null_kept and schema is not None and schema.get("default") is not None:
        payload = schema["default"]
    if isinstance(payload, dict) and schema is not None and schema["type"] == "struct":
        payload = {
            each["field"]: filled(payload.get(each["field"]), each, is_null_kept=is_null_kept)
            for each in schema["fields"]
        }
    return without_nulls(payload)


@pytest.mark.parametrize("name", CONFIGS)
def test_nulls_that_are_kept_stay_nulls(name: str) -> None:
    """Whatever key a transformation has, where JsonConverter's own says so."""
    values = [json.dumps({"schema": SCHEMA, "payload": payload}).encode() for payload in KEPT]
    replaced, left = (
        at_a_sink(keyed(CONFIGS[name], is_replaced=is_replaced), values, is_null_kept=True)
        for is_replaced in (True, False)
    )
    assert replaced == left
    assert len(replaced) == len(KEPT)


@pytest.mark.parametrize(
    ("name", "is_replaced", "is_null_kept"),
    [
        (name, is_replaced, is_null_kept)
        for name in CONFIGS
        for is_replaced, is_null_kept in ((True, False), (False, False), (False, True))
        if not (is_null_kept and name in FILLED)
    ],
)
def test_nulls_with_defaults(
    java_transforms: JavaTransforms, name: str, *, is_replaced: bool, is_null_kept: bool
) -> None:
    """The same payload and schema as after Java's classes, or refused as well."""
    chain = keyed(CONFIGS[name], is_replaced=is_replaced)
    payloads = KEPT if is_null_kept else DEFAULTED
    values = [json.dumps({"schema": SCHEMA, "payload": payload}).encode() for payload in payloads]
    steps = [JavaStep(each, config) for each, config in chain]
    java = java_transforms.applied(
        steps,
        [JavaRecord(value, timestamp=TIMESTAMP_MS) for value in values],
        has_schemas=True,
        is_sink=True,
        is_null_defaulted=not is_null_kept,
    )
    ours = at_a_sink(chain, values, is_null_kept=is_null_kept)
    for row, record in enumerate(java):
        if CONVERTER.search(record.refusal):
            continue
        assert (row in ours) != bool(record.refusal), (payloads[row], record.refusal, ours.get(row))
        if record.refusal:
            continue
        document = json.loads(record.value or b"null") or {"schema": None, "payload": None}
        schema, payload = ours[row]
        assert filled(payload, schema, is_null_kept=is_null_kept) == filled(
            document["payload"], document["schema"], is_null_kept=is_null_kept
        ), (payloads[row], payload, document["payload"])
        if payload is not None:
            assert without_converted_default(name, schema) == document["schema"], payloads[row]


def without_converted_default(name: str, schema: Any) -> Any:
    """Java's TimestampConverter forgets the default of the field; here it is converted as well."""
    field_name = {"time": "at", "time-day": "day"}.get(name)
    for each in schema["fields"] if field_name else ():
        if each["field"] == field_name:
            each.pop("default", None)
    return schema
