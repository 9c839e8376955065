"""`HeaderFrom` of structs, lists and maps beside Kafka Connect's own class, for sources and sinks.

Without broker, worker and Spark, as `test_records_in_java`. Java keeps a map's entries in the order of its hashes; the
names in these maps, and in objects without a schema, are single letters in an order that is the same there.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from service.config.converters import read_header_converter
from service.config.transformations import read_transformations
from service.sinks.avro_columns import avro_shape
from service.sinks.converters import avro_reading
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.headers import HeaderReader
from service.sinks.readings import Column, Reading
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.differential.java_transforms import JavaRecord, JavaStep, JavaTransforms, needs_compiler
from tests.differential.test_headers_in_java import JSON_HEADERS, read_headers, told_as_java
from tests.differential.test_records_in_java import (
    ENVELOPED,
    HEADERS_TYPE,
    JSON,
    VALUED,
    Asked,
    as_java_says,
    asked,
    at_a_source,
    decoded_at_a_sink,
    properties,
    table,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

CONVERTERS: dict[str, tuple[str, dict[str, str]]] = {
    "simple": ("org.apache.kafka.connect.storage.SimpleHeaderConverter", {}),
    "string": ("org.apache.kafka.connect.storage.StringConverter", {}),
    "json": (JSON_HEADERS, {"replace.null.with.default": "false"}),
    "json-plain": (JSON_HEADERS, {"schemas.enable": "false", "replace.null.with.default": "false"}),
}
"""What a source gives as null JsonConverter writes so here, whatever it is told of defaults."""
OPTIONAL = {"default": None}


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    """An Avro record."""
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    """A field of one."""
    return {"name": name, "type": kind, **more}


def nullable(name: str, kind: Any) -> dict[str, Any]:
    """A field that may be null."""
    return field(name, ["null", kind], **OPTIONAL)


PLACE = record(
    "Place",
    field("a", "double"),
    field("b", "float"),
    nullable("c", "string"),
    field("d", {"type": "array", "items": ["null", "string"]}),
    field("e", {"type": "map", "values": "long"}),
)
"""All of whose fields have a text that every converter writes."""
MOMENTS = record(
    "Moments",
    field("a", {"type": "int", "logicalType": "date"}),
    nullable("b", {"type": "int", "logicalType": "time-millis"}),
    field("c", {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}}),
    field("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
    nullable("e", "bytes"),
    field("f", {"type": "map", "values": ["null", "boolean"]}),
    field("g", ["string", "null"], default='of "old"'),
)
"""Of the rest Java has a text of its own class."""
SCHEMA = {
    **record(
        "Order",
        field("place", PLACE),
        nullable("none", record("Empty", field("a", "int"))),
        field("tags", {"type": "array", "items": "string"}),
        field("grid", {"type": "array", "items": {"type": "array", "items": ["null", "int"]}}),
        field("counts", {"type": "map", "values": "int"}),
        field("places", {"type": "array", "items": "Place"}),
        field("by_name", {"type": "map", "values": ["null", "Place"]}),
        field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
        field("moments", MOMENTS),
        field("several", {"type": "map", "values": {"type": "array", "items": "Moments"}}),
    ),
    "namespace": "org.example",
}
TEXTS = ("place", "none", "tags", "grid", "counts", "places", "by_name", "kind")
FIELDS = (*TEXTS, "moments", "several")


def place(number: int, text: str | None) -> dict[str, Any]:
    """A value of that record; what an older Java writes otherwise is left out."""
    tags = [] if number == 2 else ['"', "\\", None, text]
    return {"a": number + 0.5, "b": 0.25 * number, "c": text, "d": tags, "e": {"a": number, "b": -7}}


def moments(number: int, *, has_all: bool = True) -> dict[str, Any]:
    """A value of the other."""
    return {
        "a": number * 365,
        "b": 3_600_001 if has_all else None,
        "c": [1_700_000_000_123, 86_400_000 * number, 5],
        "d": 3.1,
        "e": "AQI=" if has_all else None,
        "f": {"a": True, "b": None},
        "g": "new" if has_all else None,
    }


def order(number: int, text: str | None) -> dict[str, Any]:
    """A payload."""
    return {
        "place": place(number, text),
        "none": None if number == 1 else {"a": 7},
        "tags": [text or "", "two words", "a,b:c"][:number],
        "grid": [[], [1, None], [-3] * number],
        "counts": {} if number == 2 else {"a": 1, "b": 40_000},
        "places": [place(1, "x"), place(number, text)][number - 1 :],
        "by_name": {"a": place(number, "y"), "b": None, "c": place(2, None)},
        "kind": "B",
        "moments": moments(number, has_all=number != 2),
        "several": {"a": [], "b": [moments(2)], "c": [moments(3, has_all=False), moments(1)]},
    }


PAYLOADS: list[bytes | None] = [
    json.dumps(order(number, text)).encode() for number, text in ((1, "a"), (2, None), (3, 'é "x" \\ y'))
]
LOOSE: list[bytes | None] = [
    *PAYLOADS[1:],
    b'{"place":[1,"a",null,{"a":1.50,"b":[]},true,-0.5,1e22],"tags":{},"counts":[[],[[]],{"a":{"b":{"c":"\\"{[:,"}}}]}',
    b'{"place":"plain","tags":7,"by_name":null}',
]
"""Without a schema an item may be of any type, and any field may be absent."""


def header_from(*fields: str, side: str = "Value", operation: str = "copy") -> Asked:
    """Headers of the names of their fields, but of records alone."""
    names = ",".join(fields)
    return asked(
        f"HeaderFrom${side}", VALUED, negate=True, fields=names, headers=names, operation=operation,
        replace_null_with_default="true",
    )  # fmt: skip


def steps_of(chain: tuple[Asked, ...]) -> list[JavaStep]:
    """As Java is given them."""
    return [
        JavaStep(each.name, each.config, each.predicate, each.predicate_config or {}, each.is_negated) for each in chain
    ]


def enveloped(payloads: list[bytes | None]) -> list[bytes | None]:
    """With their schema."""
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), value_converter=ENVELOPED)
    return [row["value"] for row in convert_exactly(plan, table(payloads)).to_pylist()]


@pytest.mark.parametrize("has_schemas", [True, False])
@pytest.mark.parametrize("operation", ["copy", "move"])
@pytest.mark.parametrize("converter", CONVERTERS)
def test_nested_fields_at_a_source(
    java_transforms: JavaTransforms, converter: str, operation: str, *, has_schemas: bool
) -> None:
    """In the form of each header converter, to the byte; JSON keeps the digits that a number came with."""
    name, settings = CONVERTERS[converter]
    chain = (header_from(*(TEXTS if converter == "string" and has_schemas else FIELDS), operation=operation),)
    given = {"header.converter": name} | {f"header.converter.{key}": value for key, value in settings.items()}
    form = read_header_converter(given, {})
    reading = read_transformations(properties(chain), header_form=form.form)
    assert (form.findings, reading.findings) == ((), ())
    spec = ENVELOPED if has_schemas else JSON
    contract = Contract(json.dumps(SCHEMA)) if has_schemas else None
    plan = ConversionPlan(
        PayloadFormat.JSON, contract, value_converter=spec, key_converter=spec, topic="t", transformations=reading.steps
    )
    payloads = PAYLOADS if has_schemas else LOOSE
    assert plan_findings(plan) == []
    values = enveloped(payloads) if has_schemas else payloads
    java = java_transforms.applied(
        steps_of(chain),
        [JavaRecord(value, timestamp=0) for value in values],
        has_schemas=has_schemas,
        header_converter=name,
        header_config=settings,
    )
    assert not any(each.refusal for each in java)
    found = at_a_source(plan, payloads, headers=[()] * len(payloads))
    expected = [as_java_says(each) for each in java]
    if name == JSON_HEADERS:
        found, expected = ([(*each[:2], read_headers(each[3])) for each in side] for side in (found, expected))
    else:
        found, expected = ([each[3] for each in side] for side in (found, expected))
    assert found == expected


def test_nested_fields_of_keys(java_transforms: JavaTransforms) -> None:
    """As of values."""
    chain = (asked("ValueToKey", fields="place,tags"), header_from("tags", "place", side="Key", operation="move"))
    reading = read_transformations(properties(chain))
    plan = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(SCHEMA)),
        value_converter=ENVELOPED,
        key_converter=ENVELOPED,
        topic="t",
        transformations=reading.steps,
    )
    assert (reading.findings, plan_findings(plan)) == ((), [])
    java = java_transforms.applied(
        steps_of(chain), [JavaRecord(value, timestamp=0) for value in enveloped(PAYLOADS)], has_schemas=True
    )
    found = at_a_source(plan, PAYLOADS, headers=[()] * len(PAYLOADS))
    assert [(each[1], each[3]) for each in found] == [(as_java_says(each)[1], each.headers) for each in java]


MAPPED = {
    "type": "struct",
    "optional": False,
    "fields": [
        {
            "field": "m",
            "type": "map",
            "keys": {"type": "int32", "optional": False},
            "values": {"type": "string", "optional": True},
            "optional": False,
        },
        {
            "field": "s",
            "type": "struct",
            "optional": True,
            "fields": [
                {"field": "a", "type": "int8", "optional": True, "default": 5},
                {"field": "b", "type": "string", "optional": True},
                {"field": "c", "type": "double", "optional": False},
                {"field": "d", "type": "float", "optional": True},
            ],
        },
    ],
}
MAPPED_VALUES: list[bytes | None] = [
    json.dumps({"schema": MAPPED, "payload": payload}).encode()
    for payload in (
        {"m": [[1, "a"], [2, None]], "s": {"b": "x", "c": 1.5}},
        {"m": [], "s": {"a": None, "c": 7, "d": 0.1}},
        {"m": [[7, "é"]]},
    )
]
"""What JsonConverter reads, and no contract of a source says: keys that are no texts, fields that are not there."""


@pytest.mark.parametrize("case", ["contract", "mapped", "loose"])
@pytest.mark.parametrize("operation", ["copy", "move"])
def test_nested_fields_at_a_sink(java_transforms: JavaTransforms, case: str, operation: str) -> None:
    """The sink is handed what JsonConverter writes of each header, and SimpleHeaderConverter's text."""
    has_schemas = case != "loose"
    values = {"contract": enveloped(PAYLOADS), "mapped": MAPPED_VALUES, "loose": LOOSE}[case]
    chain = (header_from(*(("m", "s") if case == "mapped" else FIELDS), operation=operation),)
    assert_handed_as_in_java(java_transforms, chain, values, has_schemas=has_schemas)


def assert_handed_as_in_java(
    java: JavaTransforms, chain: tuple[Asked, ...], values: list[bytes | None], *, has_schemas: bool
) -> None:
    """Both forms of each header."""
    reading = read_transformations(properties(chain), is_sink=True)
    assert reading.findings == ()
    records = [JavaRecord(value, timestamp=0) for value in values]
    for is_told in (True, False):
        of_java = java.applied(
            steps_of(chain), records, has_schemas=has_schemas, is_sink=True, is_null_defaulted=True,
            are_headers_told=is_told,
        )  # fmt: skip
        assert not any(each.refusal for each in of_java)
        found = decoded_at_a_sink(
            reading.steps,
            [(None, value) for value in values],
            has_schemas=has_schemas,
            header_reader=HeaderReader() if is_told else None,
        )
        own = [[(name, told_as_java(header) if is_told else header) for name, header in each[3]] for each in found]
        expected = [read_headers(each.headers) if is_told else list(each.headers) for each in of_java]
        assert own == expected


class FramedReader:
    """AvroConverter of records of one schema, which no registry has to be asked for."""

    async def read(self, column: Column) -> Reading:
        """Typed columns."""
        return avro_reading(column, {1: avro_shape(json.dumps(SCHEMA))})


@pytest.mark.parametrize("operation", ["copy", "move"])
async def test_nested_fields_of_avro_at_a_sink(java_transforms: JavaTransforms, operation: str) -> None:
    """Of typed columns the header's schema and value are those of the same records in JSON."""
    chain = (header_from(*FIELDS, operation=operation),)
    spec = ConverterSpec(ConverterKind.AVRO)
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), value_converter=spec, topic="t")
    payloads = [*PAYLOADS, None]
    values = [row["value"] for row in convert_exactly(plan.with_schema_ids(value=1), table(payloads)).to_pylist()]
    polled = pa.table(
        {
            "topic": pa.array(["t"] * len(values), pa.string()),
            "partition": pa.array([0] * len(values), pa.int32()),
            "offset": pa.array(range(len(values)), pa.int64()),
            "timestamp": pa.array([0] * len(values), pa.int64()),
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([()] * len(values), HEADERS_TYPE),
        }
    )
    steps = read_transformations(properties(chain), is_sink=True).steps
    keys, of_values = SideReader(FramedReader(), "K", KEY_STAGE), SideReader(FramedReader(), "V", VALUE_STAGE)
    decoded = await Decoding(keys, of_values, "Sink", steps, header_reader=HeaderReader()).decode(
        polled, refuse=lambda _: None
    )
    (batch,) = decoded.batches
    java = java_transforms.applied(
        steps_of(chain),
        [JavaRecord(value, timestamp=0) for value in enveloped(PAYLOADS)],
        has_schemas=True,
        is_sink=True,
        is_null_defaulted=True,
        are_headers_told=True,
    )
    found = [
        [(header.pop("name"), told_as_java(header)) for header in own or ()]
        for own in batch.connect_headers().to_pylist()
    ]
    assert found == [*(read_headers(each.headers) for each in java), []]
