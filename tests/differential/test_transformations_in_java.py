"""Transformations of sources beside Kafka Connect's own classes: generated records through both, byte by byte.

Without broker, worker and Spark: our side is the exact path, and other tests show that Spark's columns do the same. A
record that Java refuses is rejected at the stage TRANSFORMATION; where a plan is refused, Java fails as well.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from service.config.transformations import read_transformations
from service.sinks.batch import Form, ValueType
from service.sinks.converters import EnvelopeReader, JsonReader
from service.sinks.readings import of_one_type, runs
from service.sinks.transforms.stage import transformed
from spark_batch.convert_exactly import convert_exactly
from spark_batch.outcome import INPUT_SCHEMA, Reason, Stage
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.differential.java_transforms import JavaRecord, JavaStep, JavaTransforms, needs_compiler

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

ENVELOPED = ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)
PLAIN = ConverterSpec(ConverterKind.JSON)
SINGLE_DIGITS_MAX = 9
HEADERS_TYPE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
TIMESTAMP_MS = 1_700_000_000_123


def logical(kind: str, name: str, **more: object) -> dict[str, object]:
    """An Avro type with a logical one."""
    return {"type": kind, "logicalType": name, **more}


TYPES: dict[str, Any] = {
    "flag": "boolean",
    "small": "int",
    "big": "long",
    "single": "float",
    "double": "double",
    "text": "string",
    "digits": "string",
    "moment": "string",
    "bytes": "bytes",
    "price": logical("bytes", "decimal", precision=12, scale=2),
    "day": logical("int", "date"),
    "time": logical("int", "time-millis"),
    "at": logical("long", "timestamp-millis"),
    "micros": logical("long", "timestamp-micros"),
    "list": {"type": "array", "items": "int"},
    "map": {"type": "map", "values": "string"},
    "home": {
        "type": "record",
        "name": "Home",
        "fields": [
            {"name": "city", "type": "string"},
            {"name": "floor", "type": ["null", "int"], "default": None},
            {"name": "where", "type": {"type": "record", "name": "Where", "fields": [{"name": "x", "type": "double"}]}},
        ],
    },
}
FIELDS = [{"name": name, "type": kind} for name, kind in TYPES.items()]
NULLABLE = [
    {"name": f"{name}0", "type": ["null", kind if name != "home" else "Home"], "default": None}
    for name, kind in TYPES.items()
]
SCHEMA = {"type": "record", "name": "org.example.All", "fields": FIELDS + NULLABLE}


def schema_of(*names: str) -> dict[str, Any]:
    """The schema with only these fields, and those of the same names that may be null."""
    wanted = {each for name in names or TYPES for each in (name, f"{name}0")}
    if "home0" in wanted:
        wanted.add("home")
    return {**SCHEMA, "fields": [field for field in FIELDS + NULLABLE if field["name"] in wanted]}


def value_of(name: str, chance: random.Random) -> Any:
    """A payload's value for a field; odd ones are as likely as plain ones."""
    numbers = {
        "small": 31, "big": 63, "micros": 47, "at": 42, "time": 26,
    }  # fmt: skip
    if name in numbers:
        bits = chance.randrange(1, numbers[name] + 1)
        number = chance.randrange(-(1 << bits), 1 << bits)
        return abs(number) if name == "time" else number
    odd: dict[str, Callable[[], Any]] = {
        "flag": lambda: chance.random() < 0.5,
        "single": lambda: chance.choice([0, 1.5, -0.25, 3.0e38, 7, 1e-7, 16777217, chance.uniform(-300, 300)]),
        "double": lambda: chance.choice([0, 1.5, -0.25, 1e300, 1e10, 1e-7, -129.9, chance.uniform(-1e6, 1e6)]),
        "text": lambda: chance.choice(["", "true", "TRUE", "é", 'a "b"', "no"]),
        "digits": lambda: chance.choice(
            ["0", "12", "+7", "-128", "128", "32768", "2147483648", "9223372036854775808", "1.5", " 3", " 4.5 ", "1e3",
             "12f", "0x1p3", ".5", "5.", "", "abc", "1_0", "٣"]
        ),
        "moment": lambda: chance.choice(
            ["2024-02-29 12:34:56", "2024-13-45 25:61:61", "1970-01-01 00:00:00", "2024-02-29 12:34:56 and more",
             "24-2-9 1:2:3", "2023-02-29 00:00:00", " 2024-02-29 12:34:56", "no", "", "0999-01-01 00:00:00",
             "1582-10-10 00:00:00", "9999-12-31 23:59:59", "2024-02-29", "2024-02-29  12:34:56"]
        ),
        "bytes": lambda: base64.b64encode(chance.randbytes(chance.randrange(4))).decode(),
        "price": lambda: chance.choice([0, 12.34, -0.5, 129, 9999999999.99, -32769, 0.01]),
        "day": lambda: chance.choice([0, 19000, -1, -719162, 2932896, -141428, -141427]),
        "list": lambda: [chance.randrange(9) for _ in range(chance.randrange(3))],
        "map": lambda: dict.fromkeys("ab"[: chance.randrange(3)], "v"),
        "home": lambda: {"city": "K", "floor": chance.choice([None, 3]), "where": {"x": 1.5}},
    }  # fmt: skip
    return odd[name]()


def payloads(count: int, seed: int, *names: str) -> list[bytes]:
    """Records with these fields, or with all."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        record = {name: value_of(name, chance) for name in names or TYPES}
        record |= {f"{name}0": None if chance.random() < 0.4 else value_of(name, chance) for name in names or TYPES}
        found.append(json.dumps(record).encode())
    return found


def both(name: str, **config: str) -> tuple[str, dict[str, str]]:
    """A transformation of values and its keys."""
    return name, {key.replace("_", "."): value for key, value in config.items()}


ALL = [name for field in TYPES for name in (field, f"{field}0")]
MASKABLE = [name for name in ALL if not name.startswith(("bytes", "home", "price"))]
CASTABLE = [name for name in TYPES if name not in {"list", "map", "home", "bytes"}]
TARGETS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
INSTANTS = ("string", "unix", "Date", "Time", "Timestamp")
NUMBERS = ["small", "small0", "big", "big0", "single", "double0", "text", "micros", "micros0"]
PATTERN = "yyyy-MM-dd HH:mm:ss"
WIDE = "EEEE, d MMMM yy h:m:s.S a K k 'o''clock' XXX Z z"
Chain = tuple[tuple[str, dict[str, str]], ...]
CONFIGS: dict[str, Chain] = {
    "replace": (both("ReplaceField$Value", exclude="flag,home,zz", renames="small:tiny,text:t,none:x"),),
    "replace-include": (both("ReplaceField$Value", include="home,home0,at,day", exclude="day", renames="home:house"),),
    "replace-all": (both("ReplaceField$Value", include="none"),),
    "replace-twice": (both("ReplaceField$Value", renames="text:digits"),),
    "mask": (both("MaskField$Value", fields=",".join([*MASKABLE, "zz"])),),
    "mask-number": (both("MaskField$Value", fields=",".join(NUMBERS), replacement="-7"),),
    "mask-price": (both("MaskField$Value", fields="price,price0", replacement="12.50"),),
    "mask-text": (both("MaskField$Value", fields="text,text0,digits", replacement="***"),),
    "mask-wrong": (both("MaskField$Value", fields="small", replacement="***"),),
    "mask-flag": (both("MaskField$Value", fields="flag", replacement="1"),),
    "mask-bytes": (both("MaskField$Value", fields="bytes"),),
    "cast-bytes": (both("Cast$Value", spec="bytes:string,bytes0:string"),),
    "cast-bytes-wrong": (both("Cast$Value", spec="bytes:int8"),),
    "cast-list": (both("Cast$Value", spec="list:string"),),
    "cast-whole": (both("ExtractField$Value", field="digits"), both("Cast$Value", spec="int32")),
    "cast-again": (
        both("Cast$Value", spec="big:int8,small:int16"),
        both("Cast$Value", spec="big:string,small:float64"),
        both("MaskField$Value", fields="big"),
    ),
    "cast-record": (both("Cast$Value", spec="int32"),),
    "metadata": (both("SetSchemaMetadata$Value", schema_name="other.Name", schema_version="7"),),
    "metadata-version": (both("SetSchemaMetadata$Value", schema_version="2"),),
    "metadata-hoisted": (both("HoistField$Value", field="all"), both("SetSchemaMetadata$Value", schema_name="N")),
    "time-wide": (both("TimestampConverter$Value", field="at", target_type="string", format=WIDE),),
    "time-back": (
        both("TimestampConverter$Value", field="at", target_type="string", format="d MMM yyyy HHmmssSSS XX"),
        both("TimestampConverter$Value", field="at", target_type="Timestamp", format="d MMM yyyy HHmmssSSS XX"),
    ),
    "time-whole": (
        both("ExtractField$Value", field="moment"),
        both("TimestampConverter$Value", target_type="Timestamp", format=PATTERN),
    ),
    "time-small": (both("TimestampConverter$Value", field="small", target_type="Date"),),
    "flatten-map": (both("Flatten$Value"),),
    "flatten": (both("ReplaceField$Value", exclude="map,map0"), both("Flatten$Value", delimiter="_")),
    "flatten-then": (
        both("ReplaceField$Value", exclude="map,map0"),
        both("Flatten$Value"),
        both("Cast$Value", spec="home.where.x:string,home0.floor:int8"),
        both("MaskField$Value", fields="home0.city"),
    ),
}


def properties(chain: Chain) -> dict[str, str]:
    """The chain as a connector's config has it."""
    found = {"transforms": ",".join(f"x{number}" for number in range(len(chain)))}
    for number, (name, config) in enumerate(chain):
        found[f"transforms.x{number}.type"] = f"org.apache.kafka.connect.transforms.{name}"
        found |= {f"transforms.x{number}.{key}": value for key, value in config.items()}
    return found


def table(values: list[bytes]) -> pa.Table:
    """A micro-batch of them."""
    columns = {name: pa.nulls(len(values), INPUT_SCHEMA.field(name).type) for name in INPUT_SCHEMA.names}
    columns |= {"value": pa.array(values, pa.binary()), "timestamp": pa.array([TIMESTAMP_MS] * len(values), pa.int64())}
    return pa.table(columns, schema=INPUT_SCHEMA)


def converted(plan: ConversionPlan, values: list[bytes]) -> list[dict[str, Any]]:
    """The outcome, row by row."""
    return convert_exactly(plan, table(values)).to_pylist()


def plan_of(chain: Chain, schema: Mapping[str, Any] | None) -> ConversionPlan:
    """A source's."""
    reading = read_transformations(properties(chain))
    assert reading.findings == ()
    contract = None if schema is None else Contract(json.dumps(schema))
    spec = PLAIN if schema is None else ENVELOPED
    return ConversionPlan(PayloadFormat.JSON, contract, value_converter=spec, transformations=reading.steps, topic="t")


def is_beyond(message: str, record: JavaRecord) -> bool:
    """What only Java takes: numbers that become infinite, and dates that are no dates of Python's."""
    return "years 1 to 9999" in message or b"Infinity" in (record.value or b"") or b"NaN" in (record.value or b"")


CONVERTER = re.compile("Conversion error|java.util.Date does not have")
"""What JsonConverter cannot write; a sink is handed it all the same, and without a schema a date is a number here."""


_FLOATING = re.compile(rb"(?<=[:\[,\"])-?[0-9]+\.[0-9]+(?:E-?[0-9]+)?(?=[,\]}\"])")


def same(value: bytes | None) -> bytes | None:
    """With numbers of floating point in one form: before Java 19 some have more digits than they need (JDK-4511638)."""
    return None if value is None else _FLOATING.sub(_nearest, value)


def _nearest(found: re.Match[bytes]) -> bytes:
    """The number of single precision that a text of at most nine digits means, of double precision for others."""
    digits = found[0].partition(b"E")[0].strip(b"-0").replace(b".", b"")
    with np.errstate(over="ignore"):
        single = float(np.float32(found[0]))
    is_single = len(digits) <= SINGLE_DIGITS_MAX and math.isfinite(single)
    return repr(single if is_single else float(found[0])).encode()


def assert_equal(java: JavaTransforms, chain: Chain, *names: str, count: int = 30) -> None:
    """Records of the schema, or of these fields of it."""
    given = payloads(count, len(str(chain)), *names)
    before = [row["value"] for row in converted(plan_of((), schema_of(*names)), given)]
    records = [JavaRecord(value, timestamp=TIMESTAMP_MS) for value in before]
    expected = java.applied([JavaStep(name, config) for name, config in chain], records, has_schemas=True)
    plan = plan_of(chain, schema_of(*names))
    if plan_findings(plan):
        assert any(record.refusal for record in expected), plan_findings(plan)
        return
    for payload, row, record in zip(given, converted(plan, given), expected, strict=True):
        if row["reason"] == Reason.OUT_OF_RANGE and is_beyond(row["message"], record):
            continue
        seen = (same(row["value"]), row["stage"])
        wanted = (None, Stage.TRANSFORMATION) if record.refusal else (same(record.value), None)
        assert seen == wanted, (chain, payload, row["message"], record.refusal)


@pytest.mark.parametrize("name", CONFIGS)
def test_records_of_a_contract(java_transforms: JavaTransforms, name: str) -> None:
    """To the byte; what the plan finds unfit, Java refuses for a record that has everything."""
    assert_equal(java_transforms, CONFIGS[name], count=12)


def casts(target: str) -> Iterator[tuple[Chain, str]]:
    """From every type, texts that are almost numbers and numbers that are too large among them; and of which field."""
    for name in CASTABLE:
        yield (both("Cast$Value", spec=f"{name}:{target},{name}0:{target}"),), name


def instants(target: str) -> Iterator[tuple[Chain, str]]:
    """From texts, numbers in every unit, dates and times; and of which field."""
    for name in ("moment", "big", "day", "time", "at", "micros"):
        for unit in ("seconds", "milliseconds", "microseconds", "nanoseconds"):
            if unit == "milliseconds" or target == "unix" or name in {"big", "micros"}:
                keys = {"target_type": target, "format": PATTERN, "unix_precision": unit}
                yield (both("TimestampConverter$Value", field=name, **keys),), name


@pytest.mark.parametrize("target", TARGETS)
def test_casts(java_transforms: JavaTransforms, target: str) -> None:
    """To one type from all that have a way to it."""
    for chain, name in casts(target):
        assert_equal(java_transforms, chain, name)


@pytest.mark.parametrize("target", INSTANTS)
def test_instants(java_transforms: JavaTransforms, target: str) -> None:
    """To one form of instants from all others."""
    for chain, name in instants(target):
        assert_equal(java_transforms, chain, name, count=20)


def without_nulls(value: Any) -> Any:
    """A payload whose null fields are not there: to a struct both are the same."""
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, (list, tuple)) else value


def at_a_sink(chain: Chain, values: list[bytes | None], *, has_schemas: bool) -> dict[int, Any]:
    """What a sink is handed, by row: the payload, and before it the schema where there is one."""
    steps = read_transformations(properties(chain), is_sink=True).steps
    reader = EnvelopeReader() if has_schemas else JsonReader()
    reading = asyncio.run(reader.read(pa.array(values, pa.binary())))
    keys = of_one_type(pa.nulls(len(values), pa.string()), ValueType(Form.TEXT))
    polled = pa.table(
        {
            "topic": pa.array(["t"] * len(values), pa.string()),
            "partition": pa.array([0] * len(values), pa.int32()),
            "offset": pa.array(range(len(values)), pa.int64()),
            "timestamp": pa.array([TIMESTAMP_MS] * len(values), pa.int64()),
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.nulls(len(values), HEADERS_TYPE),
        }
    )
    after = transformed(steps, polled, keys, reading)
    found: dict[int, Any] = {}
    for run in runs(after.keys, after.values):
        schema = run.value_type.schema
        for row, text in zip(run.rows.tolist(), run.values.to_pylist(), strict=True):
            payload = None if text is None else json.loads(same(text.encode()) or b"null")
            found[row] = (None if schema is None or text is None else json.loads(schema), without_nulls(payload))
    return found


def expected_at_a_sink(record: JavaRecord, *, has_schemas: bool) -> Any:
    """The same of Java's record."""
    document = None if record.value is None else json.loads(same(record.value) or b"null")
    if document is None:
        return None, None
    if not has_schemas:
        return None, without_nulls(document)
    payload = without_nulls(document["payload"])
    return None if payload is None else document["schema"], payload


# A null passes where Java learns only from a value that its type cannot be converted.
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "time-small"])
def test_texts_with_a_schema_at_a_sink(java_transforms: JavaTransforms, name: str) -> None:
    """The same schema and the same fields; a tombstone, and a null that has a schema, are among them."""
    given = [row["value"] for row in converted(plan_of((), SCHEMA), payloads(8, seed=1))]
    nothing = json.dumps({**json.loads(given[0]), "payload": None}).replace(
        '"optional": false, "name": "org', '"optional": true, "name": "org'
    )
    values: list[bytes | None] = [*given, None, nothing.encode()]
    steps = [JavaStep(each, config) for each, config in CONFIGS[name]]
    records = [JavaRecord(value, timestamp=TIMESTAMP_MS) for value in values]
    java = java_transforms.applied(steps, records, has_schemas=True, is_sink=True, is_null_defaulted=True)
    ours = at_a_sink(CONFIGS[name], values, has_schemas=True)
    for row, record in enumerate(java):
        if not record.refusal:
            assert ours.get(row) == expected_at_a_sink(record, has_schemas=True), (values[row], CONFIGS[name])
        elif not CONVERTER.search(record.refusal):
            assert row not in ours, (CONFIGS[name], record.refusal, values[row])


LOOSE = [
    b'{"small":1,"big":5000000000,"double":1.5,"text":"true","digits":"12","home":{"where":{"x":1}},"list":[1],"at":5}',
    b'{"digits":"x","moment":"2024-02-29 12:34:56","home":{"a":null},"map":{"a":{"b":[1,{"c":2}]}}}',
    b'{"moment":"no","small":null,"flag":true,"text":"","at":1700000000123}',
    b"{}",
]


@pytest.mark.parametrize(
    "name", [name for name in CONFIGS if name != "replace-twice" and not name.startswith("metadata")]
)
def test_objects_without_a_schema(java_transforms: JavaTransforms, name: str) -> None:
    """At a source and at a sink."""
    chain = CONFIGS[name]
    steps = [JavaStep(each, config) for each, config in chain]
    values = [*LOOSE, b'"text"', b"12", b"[1]"]
    java = java_transforms.applied(steps, [JavaRecord(value) for value in values], has_schemas=False)
    at_sink = at_a_sink(chain, list(values), has_schemas=False)
    rows = converted(plan_of(chain, None), values)
    for row, record in enumerate(java):
        wanted = expected_at_a_sink(record, has_schemas=False)
        if CONVERTER.search(record.refusal):
            continue
        assert (row in at_sink) != bool(record.refusal), (values[row], record.refusal)
        if not record.refusal:
            assert at_sink[row] == wanted, values[row]
        if rows[row]["reason"] == Reason.MISSING_FIELD:
            # A field that ExtractField does not find rejects a source's record, where Connect makes a tombstone of it.
            assert record.value is None
            continue
        assert (rows[row]["stage"] == Stage.TRANSFORMATION) == bool(record.refusal), (values[row], record.refusal)
        if not record.refusal:
            assert expected_at_a_sink(JavaRecord(rows[row]["value"]), has_schemas=False) == wanted, values[row]
