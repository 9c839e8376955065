"""What each converter writes, byte for byte: values, keys, timestamps, tombstones."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_batch.outcome import OUTCOME_SCHEMA, Reason, Stage
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.plan_findings import plan_findings
from spark_batch.transforms.catalog import ExtractField, Side, Step
from tests.spark.engines import Engine, rows, table

JSON, ENVELOPED = ConverterSpec(ConverterKind.JSON), ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True)
STRING, BYTES = ConverterSpec(ConverterKind.STRING), ConverterSpec(ConverterKind.BYTES)
AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=258)
FRAME = b"\x00\x00\x00\x01\x02"
SCHEMA = {
    "type": "record",
    "name": "User",
    "namespace": "org.example",
    "doc": "someone",
    "fields": [
        {"name": "name", "type": "string", "doc": "full name"},
        {"name": "age", "type": ["null", "int"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "sum", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}]},
        {"name": "raw", "type": ["null", "bytes"]},
        {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {"a": 1.5}},
    ],
}
RECORD = (
    b'{"name":"J\\u00f6 \\"x\\"\\n\\u0001/","at":"2016-10-14T08:19:23Z","born":"1970-01-02","sum":2.22,"raw":"AN4="}'
)
PAYLOAD = (
    '{"name":"Jö \\"x\\"\\n\\u0001/","age":null,"at":1476433163000,"born":1,"sum":"AN4=","raw":"AN4=","tags":{"a":1.5}}'
).encode()
CONNECT_SCHEMA = (
    b'{"type":"struct","fields":['
    b'{"type":"string","optional":false,"doc":"full name","field":"name"},'
    b'{"type":"int32","optional":true,"field":"age"},'
    b'{"type":"int64","optional":false,"name":"org.apache.kafka.connect.data.Timestamp","version":1,"field":"at"},'
    b'{"type":"int32","optional":true,"name":"org.apache.kafka.connect.data.Date","version":1,"field":"born"},'
    b'{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,'
    b'"parameters":{"scale":"2","connect.decimal.precision":"6"},"field":"sum"},'
    b'{"type":"bytes","optional":true,"field":"raw"},'
    b'{"type":"map","keys":{"type":"string","optional":false},"values":{"type":"double","optional":false},'
    b'"optional":false,"default":{"a":1.5},"field":"tags"}'
    b'],"optional":false,"name":"org.example.User","doc":"someone"}'
)
LINE = 'a "line" \\ of\ta file é😀\x01/\u2028'.encode()
LINE_JSON = '"a \\"line\\" \\\\ of\\ta file é😀\\u0001/\u2028"'.encode()


def _one(engine: Engine, plan: ConversionPlan, value: bytes | None, *, key: bytes | None = None) -> dict[str, object]:
    assert plan_findings(plan) == []
    outcome = engine.convert(plan, table([value], keys=[key], timestamps=[77]))
    assert outcome.schema == OUTCOME_SCHEMA
    return rows(outcome)[0]


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        (STRING, LINE),
        (BYTES, LINE),
        (JSON, LINE_JSON),
        (ENVELOPED, b'{"schema":{"type":"string","optional":false},"payload":' + LINE_JSON + b"}"),
        (AVRO, FRAME + bytes([len(LINE) * 2]) + LINE),
    ],
)
def test_lines_of_text(engine: Engine, spec: ConverterSpec, written: bytes) -> None:
    """Text is a required string in every converter's form."""
    row = _one(engine, ConversionPlan(PayloadFormat.TEXT, value_converter=spec), LINE)
    assert row == {"ordinal": 0, "value": written, "timestamp": 77}


def test_text_must_be_utf8(engine: Engine) -> None:
    """A line that no string can hold is rejected, in every converter's form but bytes of a fetcher of bytes."""
    row = _one(engine, ConversionPlan(PayloadFormat.TEXT, value_converter=STRING), b"\xff")
    assert (row["reason"], "value" in row) == (Reason.INVALID_UTF8, False)
    row = _one(engine, ConversionPlan(PayloadFormat.BYTES, value_converter=BYTES), b"\xff")
    assert row["value"] == b"\xff"
    row = _one(engine, ConversionPlan(PayloadFormat.BYTES, value_converter=AVRO), b"\xff\x00")
    assert row["value"] == FRAME + b"\x04\xff\x00"


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        (JSON, PAYLOAD),
        (ENVELOPED, b'{"schema":' + CONNECT_SCHEMA + b',"payload":' + PAYLOAD + b"}"),
        (STRING, RECORD),
        (BYTES, RECORD),
    ],
)
def test_record_under_a_contract(engine: Engine, spec: ConverterSpec, written: bytes) -> None:
    """JSON as Connect's converter writes it; string and bytes pass the payload that was found valid."""
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), value_converter=spec)
    assert plan_findings(plan) == []
    outcome = engine.convert(plan, table([RECORD, b'{"name":5}']))
    assert outcome.column("value").to_pylist() == [written, None]
    assert outcome.column("reason").to_pylist() == [None, Reason.WRONG_TYPE]


def test_json_without_contract(engine: Engine) -> None:
    """JSON passes as it is; with schemas it stands in an envelope without one."""
    text = b' {"a" : 1.10} '
    assert _one(engine, ConversionPlan(PayloadFormat.JSON, value_converter=STRING), text)["value"] == text
    enveloped = ConversionPlan(PayloadFormat.JSON, value_converter=ENVELOPED)
    assert _one(engine, enveloped, text)["value"] == b'{"schema":null,"payload":' + text + b"}"


def test_numbers_as_java_writes_them(engine: Engine) -> None:
    """Doubles in the shortest form that reads back to the same double; longs exact."""
    fields = [{"name": "d", "type": "double"}, {"name": "l", "type": "long"}, {"name": "f", "type": "float"}]
    contract = Contract(json.dumps({"type": "record", "name": "R", "fields": fields}))
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON)
    texts = [b'{"d":1e10,"l":9007199254740993,"f":0.1}', b'{"d":0.1,"l":-9223372036854775808,"f":1}']
    assert engine.convert(plan, table(texts)).column("value").to_pylist() == [
        b'{"d":1.0E10,"l":9007199254740993,"f":0.1}',
        b'{"d":0.1,"l":-9223372036854775808,"f":1.0}',
    ]


@pytest.mark.parametrize(
    ("spec", "fields", "written"),
    [
        (STRING, ("name",), "Jö".encode()),
        (STRING, ("age",), b"7"),
        (BYTES, ("name",), "Jö".encode()),
        (JSON, ("name", "age"), '{"name":"Jö","age":7}'.encode()),
        (AVRO, ("age", "name"), FRAME + b"\x02\x0e\x06" + "Jö".encode()),
    ],
)
def test_key_of_the_record(engine: Engine, spec: ConverterSpec, fields: tuple[str, ...], written: bytes) -> None:
    """`key.fields` make a struct of these fields, or the text of the only one."""
    plan = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(SCHEMA)),
        key_fields=fields,
        key_converter=spec,
        value_converter=JSON,
    )
    row = _one(engine, plan, '{"name":"Jö","age":7,"at":0}'.encode())
    assert row["key"] == written


def test_loose_keys_are_equal_on_both_paths(engine: Engine) -> None:
    """Without a contract a key is the same whether the payload was suspicious or not."""
    plan = ConversionPlan(PayloadFormat.JSON, key_fields=("k", "x"), key_converter=JSON, value_converter=STRING)
    texts = [
        '{"k":"é\\u001f/","x":-5}',
        '{"k":"é\\u001f/","x":-5,"s":"\\\\ud800"}',
        '{"k":null}',
        '{"k":null,"s":"\\\\ud800"}',
        '{"x":true,"k":1.50}',
        '{"x":[1e1],"k":{"a":5.0}}',
        "5",
    ]
    keys = engine.convert(plan, table([text.encode() for text in texts])).column("key").to_pylist()
    assert keys == [
        '{"k":"é\\u001F/","x":-5}'.encode(),
        '{"k":"é\\u001F/","x":-5}'.encode(),
        b'{"k":null,"x":null}',
        b'{"k":null,"x":null}',
        b'{"k":1.50,"x":true}',
        b'{"k":{"a":5},"x":[10]}',
        b'{"k":null,"x":null}',
    ]
    plan = ConversionPlan(PayloadFormat.JSON, key_fields=("k",), key_converter=STRING, value_converter=STRING)
    texts = ['{"k":"5"}', '{"k":5}', '{"k":null}', "{}", '{"k":1.5}', '{"k":false}', '{"k":"a\\"b"}']
    keys = engine.convert(plan, table([text.encode() for text in texts])).column("key").to_pylist()
    assert keys == [b"5", b"5", None, None, b"1.5", b"false", b'a"b']


@pytest.mark.parametrize(
    ("spec", "written"),
    [
        (STRING, b"k1"),
        (BYTES, b"k1"),
        (JSON, b'"k1"'),
        (ENVELOPED, b'{"schema":{"type":"string","optional":false},"payload":"k1"}'),
        (AVRO, FRAME + b"\x04k1"),
    ],
)
def test_key_from_the_page(engine: Engine, spec: ConverterSpec, written: bytes) -> None:
    """Without `key.fields` the page's key is text; tombstones keep it, and no key stays no key."""
    plan = ConversionPlan(PayloadFormat.TEXT, key_converter=spec, value_converter=STRING)
    outcome = rows(engine.convert(plan, table([b"v", None, b"w", None], keys=[b"k1", b"k1", None, None])))
    assert outcome == [
        {"ordinal": 0, "key": written, "value": b"v"},
        {"ordinal": 1, "key": written},
        {"ordinal": 2, "value": b"w"},
        {"ordinal": 3},
    ]


def test_key_that_is_no_text(engine: Engine) -> None:
    """A page key that no string can hold rejects the record at the key converter."""
    row = _one(engine, ConversionPlan(PayloadFormat.TEXT, value_converter=STRING), b"v", key=b"\xff")
    assert (row["reason"], row["stage"]) == (Reason.INVALID_UTF8, Stage.KEY_CONVERTER)


def test_timestamp_field(engine: Engine) -> None:
    """The record's timestamp in milliseconds; the page's where the field is null; never before 1970."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "at", "json.name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]}
        ],
    }
    texts = [b'{"t":1500}', b'{"t":null}', b'{"t":-1}', b'{"t":"1970-01-01T00:00:01.5Z"}', b'{"t":1.5}', b'{"t":"x"}']
    for contract in (Contract(json.dumps(schema)), None):
        plan = ConversionPlan(PayloadFormat.JSON, contract, timestamp_field="t", value_converter=JSON)
        outcome = engine.convert(plan, table(texts, timestamps=[9] * len(texts)))
        assert outcome.column("timestamp").to_pylist()[:2] == [1 if contract else 1500, 9]
        assert outcome.column("timestamp").to_pylist()[3] == 1500
        reasons = [None, None, Reason.OUT_OF_RANGE, None, Reason.WRONG_TYPE, Reason.WRONG_TYPE]
        assert outcome.column("reason").to_pylist() == reasons


def test_rules(engine: Engine) -> None:
    """Only a record for which every rule is true passes; null is not true; the first rule that fails is named."""
    fields = [
        {"name": "value", "type": ["null", "long"]},
        {"name": "key", "type": "string"},
        {"name": "__headrace_x", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    ]
    rules = (
        Rule("positive", "value > 0"),
        Rule("short", "length(key) < 3"),
        Rule("late", "__headrace_x is null or __headrace_x >= timestamp'2020-01-01'"),
    )
    contract = Contract(json.dumps({"type": "record", "name": "R", "fields": fields}), rules)
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON)
    assert engine.check(plan) == []
    texts = [
        b'{"value":1,"key":"a"}',
        b'{"value":0,"key":"aaa"}',
        b'{"value":null,"key":"a"}',
        b'{"value":1,"key":"aaa"}',
        b'{"value":1,"key":"a","__headrace_x":0}',
        b'{"value":1,"key":"a","__headrace_x":"2024-01-01T00:00:00Z"}',
        b'{"value":1,"key":"\\\\ud8"}',
    ]
    outcome = engine.convert(plan, table(texts))
    failed = [message and message.split()[1].rstrip(":") for message in outcome.column("message").to_pylist()]
    assert failed == [None, "positive", "positive", "short", "late", None, "short"]


def test_rules_that_spark_cannot_take(engine: Engine) -> None:
    """A rule that does not parse, names no field or is not boolean is a finding, all of them at once."""
    rules = (
        Rule("a", "x >"),
        Rule("b", "nowhere = 1"),
        Rule("c", "x + 1"),
        Rule("d", "x > 1"),
        Rule("e", "sum(x) > 1"),
    )
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}
    findings = engine.check(ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema), rules)))
    assert {finding.key.rpartition(".")[2] for finding in findings} == {"a", "b", "c", "e"}


def test_order_and_ordinals(engine: Engine) -> None:
    """One row out for each row in, in order, however the records fare."""
    texts = [b"%d" % n if n % 7 else b"x" for n in range(5_000)]
    outcome = engine.convert(ConversionPlan(PayloadFormat.JSON, value_converter=STRING), table(texts))
    assert outcome.column("ordinal").to_pylist() == list(range(5_000))
    assert outcome.column("value").to_pylist() == [text if text != b"x" else None for text in texts]


def test_empty_batch(engine: Engine) -> None:
    """Nothing in, nothing out."""
    for spec in (JSON, STRING):
        plan = ConversionPlan(PayloadFormat.JSON, value_converter=spec, dedupe_fields=("a",), timestamp_field="t")
        assert engine.convert(plan, table([])).num_rows == 0


DECIMALS = {
    "type": "record",
    "name": "D",
    "fields": [
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}},
        {
            "name": "small",
            "type": [{"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 10}, "null"],
            "default": "\u0001",
        },
        {
            "name": "many",
            "type": {
                "type": "array",
                "items": [
                    "null",
                    {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 8, "scale": 3},
                ],
            },
        },
        {
            "name": "whole",
            "type": {"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "precision": 38}},
        },
    ],
}
DECIMAL_PAYLOADS = [
    b'{"sum":2.2,"many":[1.5,null,-0.001],"whole":{"a":12345678901234567890123456789012345678}}',
    b'{"sum":123456789012345678901234567890123456.78,"small":0,"many":[],"whole":{}}',
    b'{"sum":-0,"small":null,"many":[0e5],"whole":{"a":-1e3}}',
]
NUMERIC_PAYLOADS = [
    b'{"sum":2.20,"small":1E-10,"many":[1.500,null,-0.001],"whole":{"a":12345678901234567890123456789012345678}}',
    b'{"sum":123456789012345678901234567890123456.78,"small":0E-10,"many":[],"whole":{}}',
    b'{"sum":0.00,"small":null,"many":[0.000],"whole":{"a":-1000}}',
]


def test_decimals_as_numbers(engine: Engine) -> None:
    """With NUMERIC a decimal is a number with the digits of its scale, as Java's BigDecimal says it; else base64."""
    contract = Contract(json.dumps(DECIMALS))
    numeric = ConverterSpec(ConverterKind.JSON, is_decimal_numeric=True)
    plan = ConversionPlan(PayloadFormat.JSON, contract, value_converter=numeric)
    assert engine.convert(plan, table(DECIMAL_PAYLOADS)).column("value").to_pylist() == NUMERIC_PAYLOADS
    texts = engine.convert(replace(plan, value_converter=JSON), table(DECIMAL_PAYLOADS[:1])).column("value").to_pylist()
    first = json.loads(texts[0] or b"")
    assert (first["sum"], first["small"], first["many"]) == ("ANw=", "AQ==", ["Bdw=", None, "/w=="])


def test_decimals_as_numbers_in_envelopes_and_keys(engine: Engine) -> None:
    """The schema's default too is a number, exact; keys have a setting of their own."""
    contract = Contract(json.dumps(DECIMALS))
    numeric = ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True, is_decimal_numeric=True)
    plan = ConversionPlan(
        PayloadFormat.JSON, contract, key_fields=("sum",), key_converter=numeric, value_converter=ENVELOPED
    )
    other = replace(plan, key_converter=ENVELOPED, value_converter=numeric)
    row, turned = (rows(engine.convert(each, table(DECIMAL_PAYLOADS[:1])))[0] for each in (plan, other))
    assert row["key"].endswith(b'"payload":{"sum":2.20}}')
    assert turned["key"].endswith(b'"payload":{"sum":"ANw="}}')
    assert b'"default":"AQ=="' in row["value"]
    assert b'"default":1E-10' in turned["value"]
    assert turned["value"].endswith(b'"payload":' + NUMERIC_PAYLOADS[0] + b"}")


def test_transformed_decimals_as_numbers(engine: Engine) -> None:
    """What a transformation leaves of a record is written alike."""
    numeric = ConverterSpec(ConverterKind.JSON, is_decimal_numeric=True)
    plan = ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(DECIMALS)),
        value_converter=numeric,
        topic="t",
        transformations=(Step("x", ExtractField(Side.VALUE, ("sum",))),),
    )
    assert plan_findings(plan) == []
    outcome = engine.convert(plan, table(DECIMAL_PAYLOADS[:1]))
    assert outcome.column("value").to_pylist() == [b"2.20"]
