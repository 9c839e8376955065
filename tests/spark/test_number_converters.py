"""Single numbers and booleans as Kafka's converters write them: keys, values and headers, the same on each path."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest

from spark_batch.avro_types import Narrow
from spark_batch.outcome import Reason, Stage
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.cast import To
from spark_batch.transforms.catalog import Cast, ExtractField, HeaderFrom, Side, Step
from tests.spark.engines import Engine, rows, table

NARROW = {"type": "int", "connect.type": "int16"}
FIELDS: dict[ConverterKind, tuple[Any, str, list[Any]]] = {
    ConverterKind.INTEGER: ("int", ">i", [7, -(2**31)]),
    ConverterKind.LONG: ("long", ">q", [-7, 2**63 - 1]),
    ConverterKind.SHORT: (NARROW, ">h", [-1, 32767]),
    ConverterKind.FLOAT: ("float", ">f", [0.5, -0.25]),
    ConverterKind.DOUBLE: ("double", ">d", [0.1, -1e300]),
    ConverterKind.BOOLEAN: ("boolean", ">?", [True, False]),
}
JSON = ConverterSpec(ConverterKind.JSON)
EXTRACTED = (Step("x", ExtractField(Side.VALUE, ("f",))),)


def case(kind: ConverterKind) -> tuple[ConversionPlan, list[bytes], list[bytes | None]]:
    """A plan whose records have one field, their payloads, and what is written of the field; the last is null."""
    avro, layout, values = FIELDS[kind]
    fields = [{"name": "f", "type": ["null", avro], "default": None}]
    # As that of rows, whose database holds narrow numbers to their bits.
    contract = Contract(json.dumps({"type": "record", "name": "R", "fields": fields}), is_of_rows=True)
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON, topic="t")
    payloads = [json.dumps({"f": value}).encode() for value in [*values, None]]
    return plan, payloads, [*(struct.pack(layout, value) for value in values), None]


@pytest.mark.parametrize("kind", FIELDS)
def test_keys_values_and_headers(engine: Engine, kind: ConverterKind) -> None:
    """Of a field of the record, big-endian; a null is null."""
    plan, payloads, written = case(kind)
    spec = ConverterSpec(kind)
    keyed = replace(plan, key_fields=("f",), key_converter=spec)
    valued = replace(plan, value_converter=spec, transformations=EXTRACTED)
    headed = replace(
        plan,
        transformations=(Step("h", HeaderFrom(Side.VALUE, ("f",), ("h",), is_moved=False, form=spec)),),
    )
    for each in (keyed, valued, headed):
        assert plan_findings(each) == []
    assert engine.convert(keyed, table(payloads)).column("key").to_pylist() == written
    assert engine.convert(valued, table(payloads)).column("value").to_pylist() == written
    assert engine.convert(headed, table(payloads)).column("headers").to_pylist() == [[each] for each in written]


def test_a_contract_holds_no_number_to_16_bits() -> None:
    """So a finding says what does, before a record has a number that is longer."""
    plan, *_ = case(ConverterKind.SHORT)
    assert plan.contract is not None
    contract = Contract(plan.contract.schema)
    keyed = replace(plan, contract=contract, key_fields=("f",), key_converter=ConverterSpec(ConverterKind.SHORT))
    assert [finding.key for finding in plan_findings(keyed)] == ["contract.schema"]


def test_an_int_of_a_contract_is_made_a_short_by_a_cast() -> None:
    """What the finding asks for, for keys and for values; without the cast Kafka's converter has no Short to write."""
    fields = [{"name": "f", "type": "int"}]
    contract = Contract(json.dumps({"type": "record", "name": "R", "fields": fields}))
    spec = ConverterSpec(ConverterKind.SHORT)
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON, topic="t")
    keyed = replace(plan, key_fields=("f",), key_converter=spec)
    valued = replace(plan, value_converter=spec, transformations=EXTRACTED)
    assert [finding.key for finding in plan_findings(keyed)] == ["key.converter"]
    assert [finding.key for finding in plan_findings(valued)] == ["value.converter"]
    steps = {side: Step("c", Cast(side, all_to=To(Narrow(16)))) for side in Side}
    assert plan_findings(replace(keyed, transformations=(steps[Side.KEY],))) == []
    assert plan_findings(replace(valued, transformations=(*EXTRACTED, steps[Side.VALUE]))) == []


@pytest.mark.parametrize("kind", [ConverterKind.LONG, ConverterKind.BOOLEAN])
def test_a_page_key_that_is_a_text_is_no_number(engine: Engine, kind: ConverterKind) -> None:
    """Its record is refused, as Connect does; a record without a key is not."""
    plan = ConversionPlan(PayloadFormat.TEXT, key_converter=ConverterSpec(kind))
    first, second = rows(engine.convert(plan, table([b"a", b"b"], keys=[b"12345678", None])))
    assert (first["reason"], first["stage"]) == (Reason.WRONG_TYPE, Stage.KEY_CONVERTER)
    assert second["value"] == b'"b"'
