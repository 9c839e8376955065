"""The de-duplication hash: the same for the same fields on every path, different for whatever is different."""

from __future__ import annotations

import json

from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.spark.engines import Engine, table

STRING = ConverterSpec(ConverterKind.STRING)
PATHS = ("event", "properties.$insert_id", "properties.time")
PROPERTIES = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "id", "json.name": "$insert_id", "type": ["null", "string"]},
        {"name": "time", "type": ["null", "long"]},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "E",
    "fields": [{"name": "event", "type": ["null", "string"]}, {"name": "properties", "type": ["null", PROPERTIES]}],
}
PARTIAL = {"type": "record", "name": "E", "fields": [{"name": "event", "type": ["null", "string"]}]}
SUSPICIOUS = ',"s":"\\\\ud800"'
DISTINCT = [
    '"event":"a","properties":{"$insert_id":"x","time":1}',
    '"event":"a","properties":{"$insert_id":"x","time":2}',
    '"event":"a","properties":{"$insert_id":"x","time":9223372036854775807}',
    '"event":"a","properties":{"$insert_id":"x","time":null}',
    '"event":"a","properties":{"$insert_id":"x"}',
    '"event":"a","properties":{"$insert_id":null}',
    '"event":"a","properties":{}',
    '"event":"a","properties":null',
    '"event":"","properties":{"time":1}',
    '"event":null,"properties":{"time":1}',
    '"properties":{"time":1}',
    '"event":"1","properties":{"time":1}',
    '"event":"as1:b","properties":{"time":1}',
    '"event":"a","properties":{"$insert_id":"s1:b","time":1}',
    '"event":"é","properties":{"time":1}',
    '"event":"null","properties":{"time":1}',
    '"event":"true","properties":{"time":1}',
]
PROVEN = [f'{{"event":"p","properties":{{"$insert_id":"p{number}","time":{number}}}}}' for number in range(40)]
SAME = [
    ('"event":"a","properties":{"time":1}', '"properties":{"time":1,"z":5},"event":"\\u0061"'),
    ('"event":"a","properties":{"time":1}', ' "event" : "a" , "x" : 1 , "properties" : { "time" : 1 } '),
    ('"event":"a","properties":{"time":0}', '"event":"a","properties":{"time":-0}'),
    ('"event":"a","properties":{}', '"event":"a","properties":null'),
]


def _hashes(engine: Engine, contract: Contract | None, texts: list[str]) -> list[bytes]:
    plan = ConversionPlan(PayloadFormat.JSON, contract, dedupe_fields=PATHS, value_converter=STRING)
    assert plan_findings(plan) == []
    outcome = engine.convert(plan, table([text.encode() for text in texts]))
    assert outcome.column("reason").null_count == len(texts)
    found: list[bytes] = [row["dedupe"] for row in outcome.to_pylist()]
    return found


def test_hash_is_equal_on_every_path(engine: Engine) -> None:
    """With and without contract, swift or suspicious: 16 bytes, equal for equal fields alone."""
    texts = [f"{{{body}}}" for body in DISTINCT]
    suspicious = [f"{{{body}{SUSPICIOUS}}}" for body in DISTINCT]
    loose, exact = _pairs_of_hashes(engine, None, texts, suspicious)
    assert {len(found) for found in loose} == {16}
    assert exact == loose
    _demand_different(loose)
    for contract in (Contract(json.dumps(SCHEMA)), Contract(json.dumps(PARTIAL))):
        assert _pairs_of_hashes(engine, contract, texts, suspicious) == (loose, loose)


def _pairs_of_hashes(
    engine: Engine, contract: Contract | None, left: list[str], right: list[str]
) -> tuple[list[bytes], list[bytes]]:
    """In one micro-batch, most of which is proven where the contract allows it."""
    found = _hashes(engine, contract, [*left, *right, *PROVEN])
    return found[: len(left)], found[len(left) : len(left) + len(right)]


def _demand_different(hashes: list[bytes]) -> None:
    """Missing, null, empty, a number and its text are all different; an absent parent is as good as an absent field."""
    found = dict(zip(DISTINCT, hashes, strict=True))
    empty = {'"event":"a","properties":{}', '"event":"a","properties":null'}
    assert len(set(found.values())) == len(DISTINCT) - 1
    assert len({found[body] for body in empty}) == 1


def test_equal_fields_have_equal_hashes(engine: Engine) -> None:
    """Order, blanks, escapes and other fields do not matter."""
    left, right = _pairs_of_hashes(engine, None, *([f"{{{pair[at]}}}" for pair in SAME] for at in (0, 1)))
    assert left == right


def test_values_that_are_not_plain(engine: Engine) -> None:
    """Fractions, objects, arrays and large numbers are hashed by value too."""
    pairs = [
        ("1.50", "1.5"),
        ("1e2", "100"),
        ("5.0", "5"),
        ('{"b":1,"a":[2.0]}', '{"a":[2],"b":1}'),
        ("1e400", "10e399"),
    ]
    odd = [
        "1.5",
        "15",
        '"1.5"',
        "[1.5]",
        "[]",
        "{}",
        "[[]]",
        '["a"]',
        '"[\\"a\\"]"',
        "true",
        '"true"',
        "null",
        "12345678901234567890",
    ]
    texts = [f'{{"event":{text}}}' for text in (*(text for pair in pairs for text in pair), *odd)]
    found = _hashes(engine, None, texts)
    assert found[: 2 * len(pairs) : 2] == found[1 : 2 * len(pairs) : 2]
    assert len(set(found[2 * len(pairs) :])) == len(odd)


def test_without_any_of_the_fields_the_payload_is_hashed(engine: Engine) -> None:
    """A record that has none of the fields, and a line that is no JSON, are equal only to themselves."""
    plan = ConversionPlan(PayloadFormat.JSON, dedupe_fields=PATHS, value_converter=STRING, record_bytes_max=30)
    texts = [
        b"{}",
        b'{"a":1}',
        b'{"a":2}',
        b"[]",
        b"x",
        b"x ",
        b"\xff",
        b"\xfe",
        b" " * 31,
        b'{"a":"\\ud800"}',
        b'{"a":1,"a":1}',
    ]
    found = engine.convert(plan, table([*texts, *texts, None])).column("dedupe").to_pylist()
    assert len(set(found[: len(texts)])) == len(texts)
    assert found[: len(texts)] == found[len(texts) : -1]
    assert found[-1] is None


def test_rejected_records_have_the_hash_of_their_fields(engine: Engine) -> None:
    """A record rejected under the contract is the same record as when it passes without one."""
    texts = ['{"event":5,"properties":{"time":1}}', '{"event":"a","properties":{"time":"1"}}']
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), dedupe_fields=PATHS, value_converter=STRING)
    outcome = engine.convert(plan, table([text.encode() for text in texts]))
    assert outcome.column("reason").null_count == 0
    assert outcome.column("dedupe").to_pylist() == _hashes(engine, None, texts)
