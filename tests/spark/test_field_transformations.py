"""Transformations of fields in Spark's columns beside the exact path, which is compared with Connect's own classes."""

from __future__ import annotations

import json
from typing import Any

from service.config.transformations import read_transformations
from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import Reason, Stage
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.spark.engines import Engine, table

PACKAGE = "org.apache.kafka.connect.transforms."
ENVELOPED = ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)
AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=7)
TARGETS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
SOURCES: dict[str, tuple[Any, list[Any]]] = {
    "small": ("int", [0, -1, 127, 128, 65_536, -(2**31)]),
    "big": ("long", [0, 2**53 + 1, -(2**63), 2**63 - 1, 16_777_217]),
    "single": ("float", [0, 1.5, -0.25, 3e38, 16_777_216, -129.9]),
    "double": ("double", [0, 1.5, -0.25, 1e10, 1e-7, -129.9, 3e9]),
    "flag": ("boolean", [True, False]),
    "day": ({"type": "int", "logicalType": "date"}, [0, 19_000, -1, -719_162]),
    "time": ({"type": "int", "logicalType": "time-millis"}, [0, 86_399_999]),
    "at": ({"type": "long", "logicalType": "timestamp-millis"}, [0, -1, 1_700_000_000_123, 86_400_000]),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, [0, -1_001, 1_700_000_000_123_456]),
    "price": ({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}, [0, 12.34, -0.5, 9e9]),
}
DIGITS = [
    "0",
    "+7",
    "-128",
    "128",
    "32768",
    "2147483648",
    "9223372036854775808",
    "1.5",
    " 3",
    "1e3",
    "12f",
    "",
    "x",
    "\u0661",
]
MOMENTS = [
    "2024-02-29 12:34:56",
    "2024-13-45 25:61:61",
    "1969-12-31 00:00:00",
    "1582-10-10 00:00:00",
    "no",
    "24-2-9 1:2:3",
]
PATTERN = "yyyy-MM-dd HH:mm:ss"


def plan_of(
    fields: dict[str, Any], *steps: dict[str, str], value: ConverterSpec = ENVELOPED, form: str = "json"
) -> ConversionPlan:
    """A plan of these steps over records of these fields, all of which may be null; without fields over lines."""
    properties = {"transforms": ",".join(map(str, range(len(steps))))}
    for number, step in enumerate(steps):
        own = {"type": PACKAGE + step["type"], **{key: text for key, text in step.items() if key != "type"}}
        properties |= {f"transforms.{number}.{key}": text for key, text in own.items()}
    reading = read_transformations(properties)
    assert reading.findings == ()
    listed = [{"name": name, "type": ["null", kind], "default": None} for name, kind in fields.items()]
    contract = Contract(json.dumps({"type": "record", "name": "R", "fields": listed})) if fields else None
    plan = ConversionPlan(
        PayloadFormat(form), contract, value_converter=value, transformations=reading.steps, topic="t"
    )
    assert plan_findings(plan) == []
    return plan


def assert_same(engine: Engine, plan: ConversionPlan, payloads: list[bytes | None]) -> None:
    """Row by row; suspicious payloads, which Spark reads in their canonical form, as well."""
    doubted = [payload and payload.replace(b"{", b'{"\\u0061\\\\":"\\ud83d\\ude00",', 1) for payload in payloads]
    batch = table(payloads + (doubted if plan.is_json else []), timestamps=None)
    ours, exact = engine.convert(plan, batch).to_pylist(), convert_exactly(plan, batch).to_pylist()
    for seen, wanted in zip(ours, exact, strict=True):
        assert seen == wanted


def test_casts_of_values_that_have_a_type(local_engine: Engine) -> None:
    """Numbers, booleans, dates and decimals, in one record; Avro, since texts of floating point are the JVM's own."""
    pairs = [
        *(("small", target) for target in ("int8", "boolean", "string", "float32")),
        *(("big", target) for target in ("int16", "float32", "float64")),
        *(("single", target) for target in ("int8", "int64")),
        *(("double", target) for target in ("int32", "float32", "boolean")),
        *(("flag", target) for target in ("int8", "float64", "string")),
        *(("day", target) for target in ("string", "int64")),
        *(
            ("time", "string"),
            ("at", "string"),
            ("at", "int32"),
            ("micros", "string"),
            ("price", "string"),
            ("price", "int8"),
        ),
    ]
    fields = {f"{name}_{target}": SOURCES[name][0] for name, target in pairs}
    spec = ",".join(f"{name}_{target}:{target}" for name, target in pairs)
    plan = plan_of(fields, {"type": "Cast$Value", "spec": spec}, value=AVRO)
    payloads: list[bytes | None] = [b"{}", None]
    for number in range(max(len(values) for _, values in SOURCES.values())):
        listed = {f"{name}_{target}": SOURCES[name][1] for name, target in pairs}
        payloads.append(json.dumps({name: values[number % len(values)] for name, values in listed.items()}).encode())
    assert_same(local_engine, plan, payloads)


def test_casts_of_texts(local_engine: Engine) -> None:
    """A text that its type's parser does not take rejects the record, whatever the path."""
    fields = {f"d_{target}": "string" for target in TARGETS}
    plan = plan_of(fields, {"type": "Cast$Value", "spec": ",".join(f"d_{t}:{t}" for t in TARGETS)}, value=AVRO)
    payloads: list[bytes | None] = [json.dumps({name: text}).encode() for name in fields for text in DIGITS]
    assert_same(local_engine, plan, payloads)
    outcome = local_engine.convert(plan, table([b'{"d_int8":"128"}'])).to_pylist()[0]
    assert (outcome["stage"], outcome["reason"]) == (Stage.TRANSFORMATION, Reason.OUT_OF_RANGE)


def test_instants(local_engine: Engine) -> None:
    """Texts, numbers, dates and times to each other; lenient dates and those before 1600 take the exact path."""
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "moment": ("string", MOMENTS),
        "big": ("long", [0, -1, 1_700_000_000_123, -62_135_596_800_000, 2**62]),
        **{name: SOURCES[name] for name in ("day", "time", "at")},
    }
    pairs = [
        *(("moment", "Timestamp"), ("moment", "string"), ("big", "Date"), ("big", "string"), ("day", "string")),
        *(("day", "unix"), ("time", "string"), ("at", "Time"), ("at", "Date")),
    ]
    fields = {f"{name}_{target}": kinds[name][0] for name, target in pairs}
    steps = [
        {"type": "TimestampConverter$Value", "field": name, "target.type": name.partition("_")[2], "format": PATTERN}
        for name in fields
    ]
    payloads: list[bytes | None] = [
        json.dumps({name: value}).encode() for name in fields for value in kinds[name.partition("_")[0]][1]
    ]
    assert_same(local_engine, plan_of(fields, *steps), payloads)


def test_fields_that_are_left_out_named_masked_and_flattened(local_engine: Engine) -> None:
    """One behind the other; a record inside that is null has fields that are null."""
    home = {
        "type": "record",
        "name": "Home",
        "fields": [{"name": "city", "type": "string"}, {"name": "n", "type": "int"}],
    }
    fields = {
        "home": home,
        "list": {"type": "array", "items": "int"},
        "map": {"type": "map", "values": "int"},
        **{name: kind for name, (kind, _) in SOURCES.items()},
    }
    plan = plan_of(
        fields,
        {"type": "MaskField$Value", "fields": f"list,map,{','.join(SOURCES)}"},
        {"type": "ReplaceField$Value", "exclude": "map,flag", "renames": "small:tiny"},
        {"type": "Flatten$Value", "delimiter": "_"},
        {"type": "MaskField$Value", "fields": "home_city,home_n,tiny", "replacement": "-7"},
        {"type": "SetSchemaMetadata$Value", "schema.name": "a.B", "schema.version": "2"},
    )
    first = {name: values[1] for name, (_, values) in SOURCES.items()}
    full = {**first, "home": {"city": "K", "n": 3}, "list": [1], "map": {"a": 1}}
    assert_same(local_engine, plan, [json.dumps(full).encode(), b"{}", b'{"home":null,"small":5}', None])


def test_lines_and_their_keys(local_engine: Engine) -> None:
    """Text that no contract describes: a line that cannot be cast is rejected, and so is one whose key cannot."""
    plan = plan_of(
        {}, {"type": "HoistField$Value", "field": "n"}, {"type": "Cast$Value", "spec": "n:int16"}, form="text"
    )
    assert_same(local_engine, plan, [b"7", b"70000", b"+8", b"x", None])
    keys = plan_of({}, {"type": "Cast$Key", "spec": "int32"}, form="text")
    batch = table([b"a", b"b", b"c", None, None], keys=[b"1", b"x", None, b"2", b"y"])
    ours = local_engine.convert(keys, batch).to_pylist()
    assert ours == convert_exactly(keys, batch).to_pylist()
    assert [row["key"] for row in ours] == [b"1", None, None, b"2", None]
    assert [row["stage"] for row in ours] == [None, Stage.TRANSFORMATION, None, None, Stage.TRANSFORMATION]
