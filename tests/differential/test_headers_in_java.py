"""Headers that a source's transformations make, in the form of each header converter, beside Kafka Connect's classes.

Without broker, worker and Spark, as `test_records_in_java`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from service.config.converters import read_header_converter
from service.config.transformations import read_transformations
from service.sinks.headers import HeaderReader
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.differential.java_transforms import JavaRecord, JavaStep, JavaTransforms, needs_compiler
from tests.differential.test_records_in_java import (
    ENVELOPED,
    JSON,
    LITERALS,
    PAYLOADS,
    SCHEMA,
    STAMPS,
    STRUCTURED_LITERALS,
    VALUED,
    as_java_says,
    asked,
    at_a_source,
    decoded_at_a_sink,
    properties,
    table,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

JSON_HEADERS = "org.apache.kafka.connect.json.JsonConverter"
CONVERTED = {
    "json": (JSON_HEADERS, {}),
    "json-plain": (JSON_HEADERS, {"schemas.enable": "false"}),
    "string": ("org.apache.kafka.connect.storage.StringConverter", {}),
}
"""Converters of headers besides SimpleHeaderConverter, and their settings."""
WITHOUT_HEADERS: list[tuple[tuple[str, bytes | None], ...]] = [()] * 4
"""What a page brings is bytes already, which no converter writes again."""


@pytest.mark.parametrize("has_schemas", [True, False])
@pytest.mark.parametrize("converter", CONVERTED)
def test_headers_in_the_form_of_their_converter(
    java_transforms: JavaTransforms, converter: str, *, has_schemas: bool
) -> None:
    """What `HeaderFrom` and `InsertHeader` make is written as Java's converter writes it."""
    name, settings = CONVERTED[converter]
    fields = ("id,name,price", "a,b,c") if converter == "string" else ("id,name,price,at", "a,b,c,d")
    chain = (
        asked("HeaderFrom$Value", VALUED, negate=True, fields=fields[0], headers=fields[1], operation="copy"),
        asked("InsertHeader", header="x", value_literal="7"),
        asked("HeaderFrom$Value", VALUED, negate=True, fields="name", headers="moved", operation="move"),
    )
    given = {"header.converter": name} | {f"header.converter.{key}": value for key, value in settings.items()}
    form = read_header_converter(given, {})
    reading = read_transformations(properties(chain), header_form=form.form)
    assert (form.findings, reading.findings) == ((), ())
    spec = ENVELOPED if has_schemas else JSON
    contract = Contract(json.dumps(SCHEMA)) if has_schemas else None
    plain = ConversionPlan(PayloadFormat.JSON, contract, value_converter=spec, key_converter=spec, topic="t")
    values = [*(row["value"] for row in convert_exactly(plain, table(PAYLOADS)).to_pylist()), None]
    steps = [
        JavaStep(each.name, each.config, each.predicate, each.predicate_config or {}, each.is_negated) for each in chain
    ]
    records = [JavaRecord(value, timestamp=stamp) for value, stamp in zip(values, STAMPS, strict=True)]
    java = java_transforms.applied(
        steps, records, has_schemas=has_schemas, header_converter=name, header_config=settings
    )
    plan = ConversionPlan(**{**vars(plain), "transformations": reading.steps})
    assert plan_findings(plan) == []
    found = at_a_source(plan, [*PAYLOADS, None], headers=WITHOUT_HEADERS)
    expected = [as_java_says(each) for each in java]
    if converter != "string":
        # Numbers of JSON keep the digits that they came with, in headers as in values.
        found, expected = ([(*each[:3], read_headers(each[3])) for each in side] for side in (found, expected))
    assert found == expected
    assert len(found[0][3]) > 3


def read_headers(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, Any]]:
    """Their JSON read."""
    return [(name, None if text is None else json.loads(text)) for name, text in headers]


@pytest.mark.parametrize("literal", [*LITERALS, *STRUCTURED_LITERALS, " true ", "300", "70000", "-32769"])
@pytest.mark.parametrize("converter", CONVERTED)
def test_literals_in_the_form_of_their_converter(java_transforms: JavaTransforms, literal: str, converter: str) -> None:
    """With the schema that `Values.parseString` has given the literal."""
    name, settings = CONVERTED[converter]
    form = ConverterSpec(
        ConverterKind.STRING if converter == "string" else ConverterKind.JSON,
        is_schema_enveloped=converter == "json",
    )
    chain = (asked("InsertHeader", header="x", value_literal=literal),)
    reading = read_transformations(properties(chain), header_form=form)
    if reading.findings:
        assert converter == "string"
        assert re.search(r"\d-\d\d-\d|Z$", literal)
        return
    step = JavaStep("InsertHeader", {"header": "x", "value.literal": literal})
    (java,) = java_transforms.applied(
        [step], [JavaRecord(None)], has_schemas=False, header_converter=name, header_config=settings
    )
    plan = ConversionPlan(PayloadFormat.JSON, value_converter=JSON, transformations=reading.steps, topic="t")
    assert at_a_source(plan, [None], headers=[()]) == [as_java_says(java)]


TEXTS: list[bytes | None] = [
    b"7", b"x", None, b"", b"[1,40000]", b'{"a":1.5}', b"2024-02-29", b"12:34:56.789Z", b"true", b" null ",
    b'"q"', b"a,b",
]  # fmt: skip
ENVELOPES: list[bytes | None] = [
    b'{"schema":{"type":"int64","optional":false},"payload":7}',
    b'{"schema":{"type":"int32","optional":true,"name":"org.apache.kafka.connect.data.Date","version":1},"payload":null}',
    b'{"schema":null,"payload":{"a":[1,"b",null]}}',
    b'{"schema":{"type":"struct","fields":[{"field":"a","type":"string","optional":true}],"optional":false},"payload":{"a":"x"}}',
    None,
]
PLAIN: list[bytes | None] = [b"7", b'"x"', b"null", b'{"a":[1.5,null]}', b"true", None]
BYTES: list[bytes | None] = [b"\x00\xff", b"", None]
READ: dict[str, tuple[str, dict[str, str], list[bytes | None]]] = {
    "simple": ("org.apache.kafka.connect.storage.SimpleHeaderConverter", {}, TEXTS),
    "string": ("org.apache.kafka.connect.storage.StringConverter", {}, TEXTS),
    "bytes": ("org.apache.kafka.connect.converters.ByteArrayConverter", {}, BYTES),
    "json": (JSON_HEADERS, {}, ENVELOPES),
    "json-plain": (JSON_HEADERS, {"schemas.enable": "false"}, PLAIN),
}
"""Every header converter, and headers that it reads."""
CHAINS_OF_HEADERS = {
    "none": (),
    "asked": (asked("Filter", "HasHeaderKey h2"), asked("DropHeaders", "HasHeaderKey h1", headers="h0,h1")),
    "made": (
        asked("InsertHeader", header="number", value_literal="007"),
        asked("InsertHeader", header="list", value_literal='["7", "x"]'),
        asked("InsertHeader", header="nothing", value_literal="null"),
        asked("HeaderFrom$Value", VALUED, negate=True, fields="id,name,price,at", headers="a,b,c,d", operation="copy"),
        asked("HeaderFrom$Value", VALUED, negate=True, fields="name", headers="h0", operation="move"),
        asked("DropHeaders", "HasHeaderKey h1", headers="number"),
    ),
}


@pytest.mark.parametrize("has_schemas", [True, False])
@pytest.mark.parametrize("chain", CHAINS_OF_HEADERS)
@pytest.mark.parametrize("converter", READ)
def test_headers_that_a_sink_is_handed(
    java_transforms: JavaTransforms, converter: str, chain: str, *, has_schemas: bool
) -> None:
    """With the schemas and values that Connect's converter has read, and those that its transformations have made."""
    name, settings, headers = READ[converter]
    given = {"header.converter": name} | {f"header.converter.{key}": value for key, value in settings.items()}
    form = read_header_converter(given, {})
    reading = read_transformations(properties(CHAINS_OF_HEADERS[chain]), is_sink=True)
    assert (form.findings, reading.findings) == ((), ())
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), value_converter=ENVELOPED)
    rows = convert_exactly(plan, table(PAYLOADS)).to_pylist()
    values = [*(row["value"] for row in rows), None] if has_schemas else [*PAYLOADS, None]
    # Each record has a few of the headers, one of them none.
    lists = [[(f"h{at % 4}", text) for at, text in enumerate(headers)][start::3] for start in range(3)] + [[]]
    steps = [
        JavaStep(each.name, each.config, each.predicate, each.predicate_config or {}, each.is_negated)
        for each in CHAINS_OF_HEADERS[chain]
    ]
    records = [
        JavaRecord(value, timestamp=stamp, headers=tuple(own))
        for value, stamp, own in zip(values, STAMPS, lists, strict=True)
    ]
    java = java_transforms.applied(
        steps,
        records,
        has_schemas=has_schemas,
        is_sink=True,
        header_converter=name,
        header_config=settings,
        are_headers_told=True,
    )
    found = decoded_at_a_sink(
        reading.steps,
        [(None, value) for value in values],
        has_schemas=has_schemas,
        stamps=STAMPS,
        headers=lists,
        header_reader=HeaderReader(form.form),
    )
    found = [
        each if isinstance(each, str) else [(own, told_as_java(header)) for own, header in each[3]] for each in found
    ]
    assert found == [
        as_java_says(each) if each.is_dropped or each.refusal else read_headers(each.headers) for each in java
    ]
    assert chain == "asked" or any(len(each) > 0 for each in found)


def told_as_java(header: dict[str, str | None]) -> Any:
    """A header that a sink is handed, as JsonConverter's envelope; None where there is neither schema nor value."""
    schema, value = (None if header[key] is None else json.loads(header[key] or "") for key in ("schema", "value"))
    return None if schema is None and value is None else {"schema": schema, "payload": value}
