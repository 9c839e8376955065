"""Converters of single numbers and booleans, and of bytes, beside the Java classes: what they read, and write."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import struct
from typing import Any

import pyarrow as pa
import pytest

from service.config.converters import read_converter
from service.config.transformations import read_transformations
from service.sinks.batch import Form
from service.sinks.converters import column_reader
from service.sinks.json_columns import json_texts
from spark_batch.convert_exactly import convert_exactly
from spark_batch.number_forms import NUMBER_FORMS
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.differential.java_transforms import JavaTransforms, needs_compiler
from tests.differential.test_records_in_java import ENVELOPED, asked, properties, table

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

BYTES_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
BODIES: list[bytes | None] = [
    None, b"", b"\x00", b"\x01", b"\x02", b"\xff", b"\x00\x01", b"\xff\xfe", b"\x80\x00", b"abc", b"\x00" * 4,
    b"\xff" * 4, b"\x80\x00\x00\x00", b"\x7f\xff\xff\xff", b"abcde", b"\x00" * 8, b"\xff" * 8, b"\x80" + b"\x00" * 7,
    struct.pack(">f", 0.1), struct.pack(">f", -0.0), struct.pack(">f", math.inf), struct.pack(">f", math.nan),
    struct.pack(">d", 0.1), struct.pack(">d", -0.0), struct.pack(">d", -math.inf), struct.pack(">d", 1e300), b"x" * 9,
]  # fmt: skip
FIELDS: dict[str, tuple[Any, list[Any]]] = {
    "integer": ("int", [0, -1, 2**31 - 1, -(2**31), None]),
    "long": ("long", [0, -1, 2**63 - 1, -(2**63), None]),
    "short": ({"type": "int", "connect.type": "int16"}, [0, -1, 2**15 - 1, -(2**15), None]),
    "float": ("float", [0.1, -0.25, 3.4028234663852886e38, 1e-45, None]),
    "double": ("double", [0.1, -0.25, 1.7976931348623157e308, 5e-324, None]),
    "boolean": ("boolean", [True, False, None]),
    "string": ("string", ["x", None]),
}
"""Fields by the word of the converter that writes them."""


@pytest.mark.parametrize("class_name", [*(form.class_name for form in NUMBER_FORMS.values()), BYTES_CONVERTER])
def test_bytes_of_a_topic_at_a_sink(java_transforms: JavaTransforms, class_name: str) -> None:
    """The same values, and the same reason for each that is none."""
    converter = read_converter("value", {"value.converter": class_name}, {}).converter
    assert converter is not None
    reading = asyncio.run(column_reader(converter, None).read(pa.array(BODIES, pa.binary())))
    found = [
        reading.refused[row][1] if row in reading.refused else json.loads(text or "null")
        for row, text in enumerate(texts_of(reading.columns[0], reading.types[0].form).to_pylist())
    ]
    java = java_transforms.converted(class_name, BODIES, is_read=True)
    expected = [each if isinstance(each, str) else json.loads(each or b"null") for each in java]
    assert found == [each["payload"] if isinstance(each, dict) else each for each in expected]
    kind = "bytes" if class_name == BYTES_CONVERTER else converter.spec.kind.number.connect_type  # type: ignore[union-attr]
    schemas = [each["schema"] for each in expected if isinstance(each, dict)]
    assert schemas
    assert all(each == {"type": kind, "optional": True} for each in schemas)


def texts_of(column: Any, form: Form) -> Any:
    """As JsonConverter writes payloads."""
    if form is Form.BYTES:
        texts = [None if each is None else json.dumps(base64.b64encode(each).decode()) for each in column.to_pylist()]
        return pa.array(texts, pa.string())
    return json_texts(column)


@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("word", NUMBER_FORMS)
def test_a_field_of_a_record_at_a_source(java_transforms: JavaTransforms, word: str, field: str, side: str) -> None:
    """The same bytes; where Java refuses each record that has a value, a finding says so before the first."""
    kind, values = FIELDS[field]
    schema = {"type": "record", "name": "R", "fields": [{"name": "f", "type": ["null", kind], "default": None}]}
    payloads: list[bytes | None] = [json.dumps({"f": value}).encode() for value in values]
    contract = Contract(json.dumps(schema), is_of_rows=True)
    enveloped = ConversionPlan(PayloadFormat.JSON, contract, value_converter=ENVELOPED)
    connect = json.loads(convert_exactly(enveloped, table(payloads)).to_pylist()[0]["value"])["schema"]["fields"][0]
    connect.pop("default", None)
    connect = {name: item for name, item in connect.items() if name != "field"}
    envelopes = [json.dumps({"schema": connect, "payload": value}).encode() for value in values]
    java = java_transforms.converted(NUMBER_FORMS[word].class_name, envelopes, is_read=False)
    spec = ConverterSpec(ConverterKind(word))
    plan = ConversionPlan(
        PayloadFormat.JSON,
        contract,
        key_fields=("f",),
        key_converter=spec if side == "key" else ENVELOPED,
        value_converter=ENVELOPED,
    )
    if side == "value":
        plan = extracted(plan, spec)
    if any(isinstance(each, str) for each in java):
        assert {each.key for each in plan_findings(plan)} == {f"{side}.converter"}
        return
    assert plan_findings(plan) == []
    assert [row[side] for row in convert_exactly(plan, table(payloads)).to_pylist()] == java


def extracted(plan: ConversionPlan, spec: ConverterSpec) -> ConversionPlan:
    """The plan with the field as its value."""
    reading = read_transformations(properties((asked("ExtractField$Value", field="f"),)))
    assert reading.findings == ()
    changed = {"key_fields": (), "value_converter": spec, "transformations": reading.steps}
    return ConversionPlan(**{**vars(plan), **changed})
