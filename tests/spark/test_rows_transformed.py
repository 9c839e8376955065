"""Transformations of the fields of rows: what a database's columns say of themselves goes with them, or is replaced."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

from service.config.transformations import read_transformations
from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import Stage
from spark_batch.plan import ConversionPlan, Rule
from tests.spark.engines import Engine
from tests.spark.test_rows import BASE, JSON, KINDS, batch, plan_of

FULL: dict[str, Any] = dict.fromkeys([field.name for field in KINDS])
ENVELOPED = replace(JSON, is_schema_enveloped=True)
FAR = 400_000_000_000_000_000
"""Microseconds to a year beyond 9999."""


def transformed(*steps: dict[str, str], base: ConversionPlan = BASE, has_key: bool = False) -> ConversionPlan:
    """A plan of rows with these steps."""
    properties = {"transforms": ",".join(map(str, range(len(steps))))}
    for number, step in enumerate(steps):
        properties |= {f"transforms.{number}.{key}": text for key, text in step.items()}
        properties[f"transforms.{number}.type"] = f"org.apache.kafka.connect.transforms.{step['type']}"
    reading = read_transformations(properties)
    assert reading.findings == ()
    return plan_of(replace(base, transformations=reading.steps), has_key=has_key)


def types_of(value: bytes) -> dict[str, str]:
    """The types that an envelope tells."""
    return {field["field"]: field["type"] for field in json.loads(value)["schema"]["fields"]}


def test_casts_of_rows_are_those_of_the_exact_path(local_engine: Engine) -> None:
    """Of decimals and dates that Spark has no type or no text for as well, and of the narrow integers of a database."""
    cast = {"type": "Cast$Value", "spec": "small:int32,id:int16,money:string,wide:string,at:string,day:string,yes:int8"}
    mask = {"type": "MaskField$Value", "fields": "micros"}
    plan = transformed(cast, mask, base=replace(BASE, value_converter=ENVELOPED))
    rows: list[dict[str, Any] | None] = [
        {**FULL, "id": 70_000, "small": -5, "money": Decimal("1.5"), "wide": Decimal(10) ** 54, "yes": True},
        {**FULL, "id": 1, "at": FAR, "day": 2**31 - 1, "micros": 7},
        {**FULL, "id": 2, "at": 0, "day": -(2**31), "wide": Decimal("-0.5")},
        None,
    ]
    found = local_engine.convert(plan, batch(rows))
    assert found.to_pydict() == convert_exactly(plan, batch(rows)).to_pydict()
    assert found["reason"].null_count == 4
    values = [json.loads(value)["payload"] for value in found["value"].to_pylist() if value is not None]
    assert (values[0]["id"], values[0]["small"], values[0]["yes"]) == (4464, -5, 1)
    assert (values[0]["money"], values[0]["wide"]) == ("1.5000000000", f"1{'0' * 54}.00000")
    assert (values[1]["at"][:5], values[1]["micros"], values[2]["wide"]) == ("14645", 0, "-0.50000")
    types = types_of(found["value"][0].as_py())
    assert [types[name] for name in ("small", "id", "yes", "wide")] == ["int32", "int16", "int8", "string"]


def test_a_narrow_integer_stays_narrow_where_nothing_casts_it(local_engine: Engine) -> None:
    """Renamed, masked or taken out of the row it is what Connect's schema says; numbers keep their lowest bits."""
    base = replace(BASE, value_converter=ENVELOPED)
    mask = {"type": "MaskField$Value", "fields": "small", "replacement": "300"}
    rename = {"type": "ReplaceField$Value", "include": "small", "renames": "small:tiny"}
    row: list[dict[str, Any] | None] = [{**FULL, "id": 1, "small": 9}]
    found = local_engine.convert(transformed(mask, rename, base=base), batch(row))["value"][0].as_py()
    assert (types_of(found), json.loads(found)["payload"]) == ({"tiny": "int8"}, {"tiny": 44})
    taken = {"type": "ExtractField$Value", "field": "small"}
    whole = json.loads(local_engine.convert(transformed(taken, base=base), batch(row))["value"][0].as_py())
    assert whole == {"schema": {"type": "int8", "optional": True}, "payload": 9}


def test_another_name_and_a_version_replace_those_of_the_table(local_engine: Engine) -> None:
    """Also where Connect's name of the schema is none that Avro has."""
    step = {"type": "SetSchemaMetadata$Value", "schema.name": "shop.User", "schema.version": "3"}
    plan = transformed(step, base=replace(BASE, value_converter=ENVELOPED))
    rows: list[dict[str, Any] | None] = [{**FULL, "id": 1}]
    schema = json.loads(local_engine.convert(plan, batch(rows))["value"][0].as_py())["schema"]
    assert (schema["name"], schema["version"]) == ("shop.User", 3)


def test_rules_judge_a_row_before_what_its_transformation_leaves_to_the_exact_path(local_engine: Engine) -> None:
    """A text that Spark is not sure of is read exactly, one that is no number is rejected, and no rule is passed by."""
    base = replace(BASE, rules_of_rows=(Rule("low", "id < 100"),))
    cast = {"type": "Cast$Value", "spec": "name:int64"}
    names = ["7", "+0000000000000000000000008", "x", "+0000000000000000000000008", "x", "5"]
    ids = [1, 2, 3, 400, 500, 600]
    rows: list[dict[str, Any] | None] = [{**FULL, "id": at, "name": name} for at, name in zip(ids, names, strict=True)]
    base = replace(base, value_converter=JSON)
    found = local_engine.convert(transformed(cast, base=base), batch([*rows, None]))
    assert [value and json.loads(value)["name"] for value in found["value"].to_pylist()] == [7, 8, *[None] * 5]
    broken = ["rule low: expected to be true"] * 3
    assert found["message"].to_pylist()[3:] == [*broken, None]
    assert found["stage"].to_pylist()[:3] == [None, None, Stage.TRANSFORMATION.value]


def test_keys_of_rows_and_of_their_tombstones_are_cast_alike(local_engine: Engine) -> None:
    """Where the columns are sure and where they are not; a key that cannot be cast rejects its record."""
    plan = transformed({"type": "Cast$Key", "spec": "name:int64"}, base=replace(BASE, key_converter=JSON), has_key=True)
    names = ["7", "+0000000000000000000000008", "x"]
    keys: list[dict[str, Any] | None] = [{"id": 1, "name": name} for name in names for _ in range(2)]
    table = batch([{**FULL, "id": 1}, None] * 3, keys)
    found = local_engine.convert(plan, table)
    assert found.to_pydict() == convert_exactly(plan, table).to_pydict()
    written = [b'{"id":1,"name":7}'] * 2 + [b'{"id":1,"name":8}'] * 2 + [None] * 2
    assert found["key"].to_pylist() == written
    assert found["reason"].null_count == 4
