"""Transformations of whole records beside Kafka Connect's own classes: topics, keys, headers, and what is dropped.

Without broker, worker and Spark, as `test_transformations_in_java`: a source's side is the exact path with the headers
that its pages get, a sink's side is the stage that decodes and transforms. Each is compared with `Filter`,
`ValueToKey`, `TimestampRouter`, `InsertHeader`, `DropHeaders`, `HeaderFrom` and the predicate `HasHeaderKey` of Java.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from fetchers.sdk import Page
from service.config.transformations import read_transformations
from service.pipeline.batching import CloseReason, MicroBatch
from service.pipeline.converting import ConvertedBatch, input_table, shares_of
from service.sinks.converters import EnvelopeReader, JsonReader
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.headers import HeaderReader
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.catalog import Step
from tests.differential.java_transforms import PACKAGE, JavaRecord, JavaStep, JavaTransforms, needs_compiler
from tests.unit.pipeline.fakes import queued

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

JSON, ENVELOPED = ConverterSpec(ConverterKind.JSON), ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)
HEADERS_TYPE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
SCHEMA = {
    "type": "record",
    "name": "org.example.Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
ORDER = {"id": 1, "name": "a", "price": 1.5, "at": 1_700_000_000_123}
TOMBSTONE: list[bytes | None] = [None]
PAYLOADS: list[bytes | None] = [
    json.dumps({**ORDER, "id": number, "name": name, "price": price}).encode()
    for number, name, price in ((1, "a", 1.5), (2, None, 1e10), (-3, 'é "x"', -0.25))
]
STAMPS = [1_700_000_000_123, 0, 86_399_999, 1_709_251_199_999]
HEADERS: list[tuple[tuple[str, bytes | None], ...]] = [
    (("h", b"1"), ("i", b"x"), ("h", b"2")), (), (("i", None),), (("other", b"y"), ("h", b"z")),
]  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """A transformation with its keys, and for which records."""

    name: str
    config: Mapping[str, str]
    predicate: str | None = None
    predicate_config: Mapping[str, str] | None = None
    is_negated: bool = False


def asked(name: str, predicate: str | None = None, *, negate: bool = False, **config: str) -> Asked:
    """One; the name of a header or the pattern of topics follows the predicate's name after a blank."""
    predicate, _, text = (predicate or "").partition(" ")
    key = {"HasHeaderKey": "name", "TopicNameMatches": "pattern"}.get(predicate)
    keys = {key.replace("_", "."): value for key, value in config.items()}
    return Asked(name, keys, predicate or None, {key: text} if key else {}, negate)


VALUED = "RecordIsTombstone"
CHAINS: dict[str, tuple[Asked, ...]] = {
    "filter-all": (asked("Filter"),),
    "filter-header": (asked("Filter", "HasHeaderKey h"),),
    "filter-no-header": (asked("Filter", "HasHeaderKey h", negate=True),),
    "filter-tombstones": (asked("Filter", "RecordIsTombstone"),),
    "filter-topic": (asked("Filter", "TopicNameMatches t.*"), asked("InsertHeader", header="x", value_literal="1")),
    "filter-inserted": (
        asked("InsertHeader", "HasHeaderKey h", header="x", value_literal="1"),
        asked("Filter", "HasHeaderKey x", negate=True),
    ),
    "filter-dropped": (asked("DropHeaders", headers="h"), asked("Filter", "HasHeaderKey h")),
    "drop-some": (asked("DropHeaders", headers="h,none"),),
    "drop-where": (asked("DropHeaders", "HasHeaderKey other", headers="h,other"),),
    "insert-again": (
        asked("InsertHeader", header="h", value_literal="new"),
        asked("DropHeaders", "RecordIsTombstone", headers="h"),
        asked("InsertHeader", header="late", value_literal="007"),
    ),
    "route-day": (asked("TimestampRouter"),),
    "route-hour": (asked("TimestampRouter", topic_format="${topic}_${timestamp}_x", timestamp_format="yyyy-MM-dd-HH"),),
    "route-milli": (asked("TimestampRouter", timestamp_format="HHmmssSSSa"),),
    "route-then": (
        asked("TimestampRouter", "HasHeaderKey h", timestamp_format="yyyyMM"),
        asked("RegexRouter", regex="t-(.*)", replacement="$1-t"),
    ),
    "route-header": (asked("RegexRouter", "HasHeaderKey i", regex="t", replacement="u"),),
    "key": (asked("ValueToKey", VALUED, negate=True, fields="id,name"),),
    "key-field": (
        asked("ValueToKey", VALUED, negate=True, fields="id"),
        asked("ExtractField$Key", VALUED, negate=True, field="id"),
    ),
    "key-changed": (
        asked("Cast$Value", spec="id:string,price:int32"),
        asked("ValueToKey", VALUED, negate=True, fields="price,id"),
        asked("Cast$Value", spec="id:int64"),
        asked("ReplaceField$Key", renames="id:identity"),
    ),
    "key-of-nothing": (asked("ValueToKey", fields="id"),),
    "copy": (
        asked("HeaderFrom$Value", VALUED, negate=True, fields="id,name,price,at", headers="a,b,c,d", operation="copy"),
    ),
    "move": (asked("HeaderFrom$Value", VALUED, negate=True, fields="id,price", headers="h,h", operation="move"),),
    "copy-missing": (asked("HeaderFrom$Value", VALUED, negate=True, fields="none", headers="h", operation="copy"),),
    "copy-key": (
        asked("ValueToKey", VALUED, negate=True, fields="id,name"),
        asked("HeaderFrom$Key", VALUED, negate=True, fields="name", headers="from", operation="move"),
        asked("Filter", "HasHeaderKey from", negate=True),
    ),
    "copy-asked": (
        asked("InsertHeader", header="first", value_literal="1"),
        asked("HeaderFrom$Value", VALUED, negate=True, fields="name,id", headers="h,made", operation="copy"),
        asked("DropHeaders", "HasHeaderKey made", headers="i"),
        asked("InsertHeader", "HasHeaderKey made", negate=True, header="unmade", value_literal="x"),
    ),
    "copy-changed": (
        asked("Cast$Value", spec="id:string,price:int32"),
        asked("HeaderFrom$Value", VALUED, negate=True, fields="price,id", headers="a,b", operation="move"),
        asked("DropHeaders", headers="a"),
        asked("ReplaceField$Value", renames="name:n"),
    ),
}  # fmt: skip
AT_SINKS: dict[str, tuple[Asked, ...]] = {
    **CHAINS,
    "key-missing": (asked("ValueToKey", VALUED, negate=True, fields="id,none"),),
    "move-nothing": (asked("HeaderFrom$Value", fields="id", headers="h", operation="move"),),
}  # fmt: skip


def properties(chain: Sequence[Asked]) -> dict[str, str]:
    """The chain as a connector's config has it."""
    names = [f"x{number}" for number in range(len(chain))]
    found = {"transforms": ",".join(names)}
    found["predicates"] = ",".join(f"p{name}" for name, each in zip(names, chain, strict=True) if each.predicate)
    for name, each in zip(names, chain, strict=True):
        found[f"transforms.{name}.type"] = PACKAGE + each.name
        found |= {f"transforms.{name}.{key}": value for key, value in each.config.items()}
        if each.predicate:
            found |= {f"transforms.{name}.predicate": f"p{name}", f"transforms.{name}.negate": str(each.is_negated)}
            found[f"predicates.p{name}.type"] = f"{PACKAGE}predicates.{each.predicate}"
            found |= {f"predicates.p{name}.{key}": value for key, value in (each.predicate_config or {}).items()}
    return found


def in_java(
    java: JavaTransforms,
    chain: Sequence[Asked],
    values: Sequence[bytes | None],
    *,
    has_schemas: bool,
    is_sink: bool = False,
) -> list[JavaRecord]:
    """The records after Java's classes."""
    steps = [
        JavaStep(each.name, each.config, each.predicate, each.predicate_config or {}, each.is_negated) for each in chain
    ]
    given = [
        JavaRecord(value, timestamp=stamp, offset=row, headers=headers)
        for row, (value, stamp, headers) in enumerate(zip(values, STAMPS, HEADERS, strict=True))
    ]
    return java.applied(steps, given, has_schemas=has_schemas, is_sink=is_sink, is_null_defaulted=is_sink)


def shown(value: bytes | None) -> Any:
    """A payload, with its schema where it has one; a null field is a field that is not there."""
    found = None if value is None else json.loads(value)
    if isinstance(found, dict) and set(found) == {"schema", "payload"}:
        return found["schema"], without_nulls(found["payload"])
    return without_nulls(found)


def without_nulls(value: Any) -> Any:
    """Objects without their null fields."""
    return {name: item for name, item in value.items() if item is not None} if isinstance(value, dict) else value


def at_a_source(plan: ConversionPlan, values: Sequence[bytes | None], headers: Sequence[Any] = HEADERS) -> list[Any]:
    """Each record as Java's is shown: dropped, refused, or where it ends, its key, value and headers."""
    page = Page(list(values), {"position": 1}, topic="t", timestamps_ms=STAMPS[: len(values)], headers=headers)
    batch = MicroBatch((queued(page),), CloseReason.COUNT, 0.0)
    records = input_table(batch)
    shares = shares_of(batch, plan, lambda _: plan)
    outcomes: dict[int, pa.Table] = {}
    for share in shares:
        outcomes |= share.cut(convert_exactly(share.plan, share.of(records)))
    outcome = pa.concat_tables([outcomes[start] for start in sorted(outcomes)])
    after = ConvertedBatch(batch, records, outcome, tuple(shares)).headers() or [()] * len(values)
    return [
        "dropped" if row["is_dropped"] else "refused" if row["reason"] else
        (row["topic"] or "t", shown(row["key"]), shown(row["value"]), tuple(own))
        for row, own in zip(outcome.to_pylist(), after, strict=True)
    ]  # fmt: skip


def as_java_says(record: JavaRecord) -> Any:
    """The same of Java's record."""
    if record.is_dropped or record.refusal:
        return "dropped" if record.is_dropped else "refused"
    return record.topic, shown(record.key), shown(record.value), record.headers


@pytest.mark.parametrize("has_schemas", [True, False])
@pytest.mark.parametrize("name", CHAINS)
def test_records_of_a_source(java_transforms: JavaTransforms, name: str, *, has_schemas: bool) -> None:
    """With a contract and without; keys are only made of values that a contract describes."""
    chain, spec = CHAINS[name], ENVELOPED if has_schemas else JSON
    reading = read_transformations(properties(chain))
    assert reading.findings == ()
    plain = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(SCHEMA)) if has_schemas else None,
        value_converter=spec,
        key_converter=spec,
        topic="t",
    )
    values = [*(row["value"] for row in convert_exactly(plain, table(PAYLOADS)).to_pylist()), None]
    expected = [as_java_says(each) for each in in_java(java_transforms, chain, values, has_schemas=has_schemas)]
    plan = ConversionPlan(**{**vars(plain), "transformations": reading.steps})
    if has_schemas and name == "copy-missing":
        assert [finding.key for finding in plan_findings(plan)] == ["transforms.x0.fields"]
        return
    if not has_schemas and "ValueToKey" in str(reading.steps):
        assert [finding.key for finding in plan_findings(plan)] == ["key.fields"]
        return
    assert plan_findings(plan) == []
    assert at_a_source(plan, [*PAYLOADS, None]) == expected


def table(values: Sequence[bytes | None]) -> pa.Table:
    """A micro-batch of them."""
    page = Page(list(values), {"position": 1})
    return input_table(MicroBatch((queued(page),), CloseReason.COUNT, 0.0))


def at_a_sink(chain: Sequence[Asked], values: Sequence[bytes | None], *, has_schemas: bool) -> list[Any]:
    """Each record as the sink is handed it."""
    reading = read_transformations(properties(chain), is_sink=True)
    assert reading.findings == ()
    records = [(None, value) for value in values]
    return decoded_at_a_sink(reading.steps, records, has_schemas=has_schemas, stamps=STAMPS, headers=HEADERS)


def decoded_at_a_sink(
    steps: tuple[Step, ...],
    pairs: Sequence[tuple[bytes | None, bytes | None]],
    *,
    has_schemas: bool = True,
    stamps: Sequence[int] | None = None,
    headers: Sequence[Any] | None = None,
    header_reader: HeaderReader | None = None,
) -> list[Any]:
    """Keys and values as a sink is handed them after the steps; headers with their schemas where there is a reader."""
    reader = EnvelopeReader() if has_schemas else JsonReader()
    count = len(pairs)
    polled = pa.table(
        {
            "topic": pa.array(["t"] * count, pa.string()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array(stamps or [0] * count, pa.int64()),
            "key": pa.array([key for key, _ in pairs], pa.binary()),
            "value": pa.array([value for _, value in pairs], pa.binary()),
            "headers": pa.array(headers or [()] * count, HEADERS_TYPE),
        }
    )
    keys, of_values = SideReader(reader, "K", KEY_STAGE), SideReader(reader, "V", VALUE_STAGE)
    decoding = Decoding(keys, of_values, "Sink", steps, header_reader=header_reader or HeaderReader())
    decoded = asyncio.run(decoding.decode(polled, refuse=lambda _: None))
    found: list[Any] = ["dropped"] * count
    for refusal in decoded.refusals:
        found[refusal.row] = "refused"
    assert decoded.filtered == found.count("dropped") - sum(len(rows) for rows in decoded.rows)
    for batch, rows in zip(decoded.batches, decoded.rows, strict=True):
        lists: Any = batch.records.column("headers") if header_reader is None else batch.connect_headers()
        told = (
            tuple((item.pop("name"), item["value"] if header_reader is None else item) for item in own or ())
            for own in lists.to_pylist()
        )
        for row, record, own in zip(rows.tolist(), batch.records.to_pylist(), told, strict=True):
            key, value = (
                handed(text, schema, has_schemas=has_schemas)
                for text, schema in ((record["key"], batch.key.schema), (record["value"], batch.value.schema))
            )
            found[row] = (record["topic"], key, value, own)
    return found


def handed(text: str | None, schema: str | None, *, has_schemas: bool) -> Any:
    """A text with its schema as `shown` has it."""
    payload = None if text is None else without_nulls(json.loads(text))
    return (json.loads(schema or "null"), payload) if has_schemas and payload is not None else payload


@pytest.mark.parametrize("has_schemas", [True, False])
@pytest.mark.parametrize("name", AT_SINKS)
def test_records_of_a_sink(java_transforms: JavaTransforms, name: str, *, has_schemas: bool) -> None:
    """What the sink is handed, and what it is not."""
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), value_converter=ENVELOPED)
    rows = convert_exactly(plan, table(PAYLOADS)).to_pylist()
    values = [*(row["value"] for row in rows), None] if has_schemas else [*PAYLOADS, None]
    chain = AT_SINKS[name]
    java = in_java(java_transforms, chain, values, has_schemas=has_schemas, is_sink=True)
    expected = [as_java_says(each) for each in java]
    assert at_a_sink(chain, values, has_schemas=has_schemas) == expected


LITERALS = [
    "x", "two words", "", " ", "true", "false", "True", "null", "0", "007", "-1", "+5", "127", "128", "40000",
    "9223372036854775807", "1.0", "1.50", "0.1", "-2.75", "1e3", "1E-3", "123456.789", "2024-02-29", "-.5", "+.5",
    "2024-02-29T12:34:56.789Z", "12:34:56.789Z", "0x10", "5 apples", "v1.2.3", "a:b", "a,b", "http://h:1/x", "é",
    "NaN", "text [1]", " padded ", "1_000", "-", ".5", "5.", "1d", "true story", "null and void",
]  # fmt: skip


STRUCTURED_LITERALS = [
    "[1,2]", '{"a": 1}', '"quoted"', "1,2", "99999999999999999999", "1.5e300", "a\\b", '["a\\"b", "c"]', "[1, 40000]",
    '{"a":[1.5,2],"b":[]}', "[null]", "{1:true,2:false}", "[2024-02-29]", "2024-13-45", "1970-01-01",
]  # fmt: skip


@pytest.mark.parametrize("literal", [*LITERALS, *STRUCTURED_LITERALS])
def test_literals(java_transforms: JavaTransforms, literal: str) -> None:
    """As SimpleHeaderConverter writes what Java has read in them."""
    chain = (asked("InsertHeader", header="x", value_literal=literal),)
    reading = read_transformations(properties(chain))
    java = in_java(java_transforms, chain, [None] * len(HEADERS), has_schemas=False)
    assert not reading.findings
    plan = ConversionPlan(PayloadFormat.JSON, value_converter=JSON, transformations=reading.steps, topic="t")
    assert at_a_source(plan, [None] * len(HEADERS)) == [as_java_says(each) for each in java]
