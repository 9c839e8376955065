"""What Arrow proves is right: the exact path calls it valid and reads the same values. Alone, and beside others."""

from __future__ import annotations

import json
import random
from decimal import Context
from decimal import Decimal as ExactNumber
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_batch.avro_types import Array, AvroType, Decimal, Primitive, Record
from spark_batch.exact.verdicts import exact_verdict
from spark_batch.exact.writing import typed_value
from spark_batch.literals.floating import floating
from spark_batch.literals.reading import Number
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat, UnknownFields
from spark_batch.prepass import is_unsure, pc, read_utf8
from spark_batch.proof import COLUMNS_MAX, SKIPS_MAX, SPLITS_MAX, Proof, ProofHabit, proof_shape, prove
from tests.spark.generated import fitting_payloads, payloads, schemas
from tests.spark.json_texts import texts

SOME = settings(max_examples=50)
ALONE, AMONG = 500, 120
"""So many of the conformance set's 5,000 payloads, others in each run; the seed is the run's."""
INNER = {
    "type": "record",
    "name": "In",
    "fields": [
        {"name": "x", "type": ["null", "string"], "default": None},
        {"name": "n", "type": "long", "default": 7},
    ],
}
FIELDS: list[dict[str, Any]] = [
    {"name": "known", "type": "string", "json.name": "a"},
    {"name": "whole", "type": ["null", "long"]},
    {"name": "small", "type": ["null", "int"]},
    {"name": "real", "type": ["null", "double"]},
    {"name": "single", "type": ["null", "float"]},
    {"name": "money", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}]},
    {"name": "yes", "type": ["null", "boolean"]},
    {"name": "inner", "type": ["null", INNER]},
    {"name": "list", "type": ["null", {"type": "array", "items": "double"}]},
    {"name": "word", "type": ["string", "null"], "default": "w"},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "kind", "type": ["null", {"type": "enum", "name": "E", "symbols": ["A", "B"]}]},
]
PLAN = ConversionPlan(
    PayloadFormat.JSON,
    Contract(json.dumps({"type": "record", "name": "R", "fields": FIELDS})),
    dedupe_fields=("a", "whole", "inner.x"),
)


def proof_of(plan: ConversionPlan, found: list[bytes | None]) -> Proof | None:
    """The proof of a micro-batch, asked as a conversion asks."""
    shape = proof_shape(plan)
    assert shape is not None
    text = read_utf8(pa.array(found, pa.binary())).column
    return prove(pc.if_else(pa.array(is_unsure(text)), pa.scalar(None, pa.string()), text), shape)


def proven(plan: ConversionPlan, found: list[bytes | None]) -> dict[int, Any]:
    """The proven records by their places."""
    proof = proof_of(plan, found)
    if proof is None:
        return {}
    assert np.count_nonzero(proof.is_proven) == len(proof.records)
    assert not has_undeclared_null(proof.records)
    return dict(zip(map(int, np.flatnonzero(proof.is_proven)), proof.records.to_pylist(), strict=True))


def has_undeclared_null(column: Any) -> bool:
    """Whether a null stands in a field that is said to have none."""
    if pa.types.is_list(column.type):
        return has_undeclared_null(column.values)
    if not pa.types.is_struct(column.type):
        return False
    fields = [(column.type.field(at), column.field(at)) for at in range(column.type.num_fields)]
    return any((not field.nullable and child.null_count) or has_undeclared_null(child) for field, child in fields)


def demand_right(plan: ConversionPlan, found: list[bytes | None]) -> int:
    """Every proven record is the exact path's; gives how many there are."""
    record = plan.record
    assert record is not None
    seen = proven(plan, found)
    for at, value in seen.items():
        payload = found[at]
        assert payload is not None
        verdict = exact_verdict(plan, payload)
        assert verdict.rejection is None, payload
        assert repr(typed(record, value)) == repr(typed(record, typed_value(verdict.canonical or ""))), payload
    return len(seen)


def typed(kind: AvroType, value: Any) -> Any:
    """The value with defaults taken, floats and doubles as such, decimals exactly."""
    if value is None:
        return None
    if isinstance(kind, Record):
        taken = {
            f.name: typed_value(f'{{"default":{f.default}}}')["default"]
            if f.has_value_default and value[f.name] is None
            else value[f.name]
            for f in kind.fields
        }
        return {f.name: typed(f.slot.type, taken[f.name]) for f in kind.fields}
    if isinstance(kind, Array):
        return [typed(kind.items.type, item) for item in value]
    if isinstance(kind, Decimal):
        return ExactNumber(value).quantize(ExactNumber(1).scaleb(-kind.scale), context=Context(prec=38))
    if not isinstance(value, Number):
        return value
    return floating(kind, value) if kind in {Primitive.FLOAT, Primitive.DOUBLE} else int(value)


def cases() -> list[bytes]:
    """The conformance set as payloads, in a field no one reads, in one that is read, and as keys."""
    found = [text for text, _ in texts()]
    for name in (
        "a",
        "whole",
        "small",
        "real",
        "single",
        "money",
        "yes",
        "inner",
        "list",
        "word",
        "at",
        "kind",
        "unread",
    ):
        prefix = b'"a":"x",' if name != "a" else b""
        found += [b"{" + prefix + b'"' + name.encode() + b'":' + text + b"}" for text, _ in texts()]
    found += [b'{"a":"x",' + text + b":1}" for text, _ in texts()]
    return found


ODD = [
    b'{"\\u0061":"x"}',
    b'{"A":"x"}',
    b'{"a":"x","\\u0061":"y"}',
    b'{"a":"x","inner":{"x":"y","x":"y"}}',
    b'{"a":"x","unread":{"x":1,"x":1}}',
    b'{"a":"x","unread":[{"x":1,"x":1}]}',
    b'{"a":"x","unread":[NaN]}',
    b'{"a":"x","unread":{"y":[[-Infinity]]}}',
    b'{"a":"x","unread":Inf}',
    b'{"a":"NaN","unread":"Inf"}',
    b'{"a":"2024-01-01","word":"2024-01-01T00:00:00Z","unread":"2024-01-01"}',
    b'{"a":"2024-01-01T00:00:00.000"}',
    b'{"a":"x","word":null}',
    b'{"a":"x","w\\u006frd":null}',
    b'{"a":"\\"word\\"","word":null}',
    b'{"a":"x","inner":{"n":null}}',
    b'{"a":"x","inner":{}}',
    b'{"a":"x","whole":null,"inner":null}',
    b'{"a":null}',
    b'{"a":"x","list":[1,null]}',
    b'{"a":"x","real":-0}',
    b'{"a":"x","real":-0.0}',
    b'{"a":"x","real":1e-400}',
    b'{"a":"x","real":4.9e-324}',
    b'{"a":"x","real":2.2250738585072011e-308}',
    b'{"a":"x","real":123456789012345678901234567890}',
    b'{"a":"x","real":1.7976931348623157e308}',
    b'{"a":"x","real":1.7976931348623159e308}',
    b'{"a":"x","real":0.1000000000000000055511151231257827021181583404541015625}',
    b'{"a":"x","real":9007199254740993}',
    *(
        b'{"a":"x","single":%s}' % text
        for text in (
            b"1.00000005960464477539062501",
            b"1.000000059604644775390625",
            b"3.4028235677973366e38",
            b"3.4028235677973365e38",
            b"1e39",
            b"-0",
            b"-0.0",
            b"NaN",
            b"1e-46",
        )
    ),
    *(
        b'{"a":"x","money":%s}' % text
        for text in (
            b"1.5",
            b'"1.5"',
            b"12345.6",
            b"1234.5",
            b"-9999.99",
            b"10000",
            b"1.550",
            b"1.555",
            b"1e2",
            b"1E-60",
            b"0.%s1" % (b"0" * 60),
            b"0.%s" % (b"0" * 60),
            b"1%s" % (b"0" * 60),
            b"-0",
            b"true",
        )
    ),
    b'{"a":"x","mon\\u0065y":"1.5"}',
    b'{"a":"x","money": \t"1.5"}',
    b'{"a":"x","at":-62135596800001}',
    b'{"a":"x","kind":"C"}',
    b'{"a":"\x00"}',
    b'{"a":"\\u0000","\\u0000":1}',
    b'{"a":\n"x"\r\n}\n',
    b' \t{"a":"x"} \r\n',
    b'\xef\xbb\xbf{"a":"x"}',
    b'{"a":"x"},"payload":{"a":"y"}',
    b'{"a":"x"},"more":1',
    b'{"a":"x"}}\n{"payload":{"a":"y"}',
    b'{"a":"x"}\n{"a":"y"}',
    b'{"a":"x"',
    b'"a":"x"}',
    b'{"a":"x\\',
    b'{"a":"x',
    b'x"}',
    b"null",
    b"[]",
    b"",
    b'{"a":"x","deep":' + b"[" * 499 + b"]" * 499 + b"}",
    b'{"a":"x","deep":' + b"[" * 500 + b"]" * 500 + b"}",
]


@pytest.mark.parametrize("policy", [UnknownFields.IGNORE, UnknownFields.REJECT])
def test_each_text_alone(policy: UnknownFields) -> None:
    """Of the conformance set, and of what Arrow reads differently, nothing is proven that is not right."""
    contract = Contract(PLAN.contract.schema if PLAN.contract else "", unknown_fields=policy)
    plan = ConversionPlan(PayloadFormat.JSON, contract, dedupe_fields=PLAN.dedupe_fields)
    chosen = random.sample(cases(), ALONE)
    assert sum(demand_right(plan, [payload]) for payload in [*chosen, *ODD]) > len(chosen) // 25


def is_slim(payload: bytes) -> bool:
    """Whether it makes few columns; one that makes too many ends the attempt for all."""
    return payload.count(b":") + payload.count(b"[") + payload.count(b"{") < COLUMNS_MAX


def test_each_text_among_good_ones() -> None:
    """A payload neither harms nor is helped by its neighbours; the good ones round it are proven all the same."""
    good: list[bytes | None] = [b'{"a":"%d","real":%d.5,"unread":%d}' % (n, n, n) for n in range(6)]
    slim = [*filter(is_slim, ODD)]
    for payload in [*random.sample([*filter(is_slim, cases())], AMONG), *slim]:
        mixed = [*good[:3], payload, None, *good[3:]]
        assert demand_right(PLAN, mixed) >= len(good)
    for left, right in pairwise(slim):
        assert demand_right(PLAN, [*good, left, right, *good]) >= 2 * len(good)


@SOME
@given(data=st.data())
def test_generated_micro_batches(data: st.DataObject) -> None:
    """Whatever schema and payloads, what is proven is what the exact path says."""
    schema = data.draw(schemas(is_provable=True))
    policy = data.draw(st.sampled_from([UnknownFields.IGNORE, UnknownFields.REJECT]))
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema), unknown_fields=policy))
    if proof_shape(plan) is None:
        return
    found = data.draw(st.lists(st.one_of(fitting_payloads(schema), payloads(schema)), min_size=1, max_size=12))
    demand_right(plan, [*found])


@settings(max_examples=80)
@given(number=st.floats(allow_nan=False, allow_infinity=False), digits=st.integers(1, 40))
def test_doubles(number: float, digits: int) -> None:
    """A double or float is the one nearest to the digits, however many there are."""
    for text in (repr(number), f"{number:.{digits}e}", f"{number:.{digits}f}"):
        demand_right(PLAN, [b'{"a":"x","%s":%s}' % (name, text.encode()) for name in (b"real", b"single")])


@settings(max_examples=80)
@given(data=st.data(), precision=st.integers(1, 38))
def test_decimals(data: st.DataObject, precision: int) -> None:
    """A decimal has exactly the digits that are written, up to the last that its type has, or is left to others."""
    scale = data.draw(st.integers(0, precision))
    kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    fields = [{"name": "a", "type": "string"}, {"name": "money", "type": kind}]
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps({"type": "record", "name": "R", "fields": fields})))
    if proof_shape(plan) is None:
        assert precision + scale > 38
        return
    numbers = st.decimals(allow_nan=False, allow_infinity=False, places=data.draw(st.integers(0, scale)))
    texts = [f"{data.draw(numbers):f}" for _ in range(4)]
    texts += [str(data.draw(st.integers(-(10**precision) + 1, 10**precision - 1)))]
    texts += [f"-{'9' * (precision - scale) or '0'}.{'9' * scale or '0'}", f"{'9' * (precision - scale + 1)}"]
    for text in texts:
        demand_right(plan, [b'{"a":"x","money":%s}' % text.encode()])
    assert demand_right(plan, [b'{"a":"x","money":0}', b'{"a":"x","money":0.0}' if scale else b'{"a":"x","money":0}'])


def test_one_bad_payload_in_many() -> None:
    """It is found; all others are proven. So are they when every payload of the first chunk is bad."""
    good: list[bytes | None] = [b'{"a":"%d"}' % n for n in range(20_000)]
    spoiled = [*good]
    spoiled[12_345] = b'{"a":5}'
    assert proven(PLAN, spoiled).keys() == set(range(20_000)) - {12_345}
    spoiled[:1024] = [b"{"] * 1024
    left = proven(PLAN, spoiled).keys()
    assert left == set(range(1024, 20_000)) - {12_345} or len(left) > 20_000 - 1024 - 8192
    assert proven(PLAN, [b'{"a":5}'] * 20_000) == {}


def test_where_keys_are_data() -> None:
    """A payload of more keys than the limit, or payloads whose keys all differ, are not proven."""
    wide = b'{"a":"x",' + b",".join(b'"k%d":1' % n for n in range(COLUMNS_MAX)) + b"}"
    assert proven(PLAN, [wide]) == {}
    assert proven(PLAN, [b'{"a":"x","k%d":1}' % n for n in range(5_000)]) == {}


@pytest.mark.parametrize(
    "kind",
    [
        "bytes",
        {"type": "map", "values": "long"},
        {"type": "fixed", "name": "F", "size": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 9},
        {"type": "array", "items": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}},
        {"type": "array", "items": INNER},
    ],
)
def test_types_without_proof(kind: Any) -> None:
    """Nothing is asked of Arrow where it could not vouch for the answer."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}
    assert proof_shape(ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema)))) is None


def test_habit() -> None:
    """Failure makes for longer and longer pauses, up to a limit; success ends them."""
    habit = ProofHabit()
    pauses = []
    for _ in range(10):
        assert habit.is_tried()
        habit.tell(was_worth_while=False)
        pause = 0
        while not habit.is_tried():
            pause += 1
        pauses.append(pause)
    assert pauses == [1, 2, 4, 8, 16, 32, SKIPS_MAX, SKIPS_MAX, SKIPS_MAX, SKIPS_MAX]
    habit.tell(was_worth_while=True)
    assert habit.is_tried()
    assert SPLITS_MAX > 0


@pytest.mark.parametrize(
    "bad",
    [
        b'{"a":"x","whole":1',
        b'{"a":"x"},{"a":"y"}',
        b'{"a":"x","a":"y"}',
        b'{"a":"x","whole":"1"}',
        b'{"a":"x","whole":99999999999999999999}',
        b'{"a":"x","small":1.5}',
    ],
)
def test_a_bad_payload_in_a_thousand_spoils_no_other(bad: bytes) -> None:
    """Arrow names the payload, or the number, at which it fails: that is left to the exact path, and nothing else."""
    good = [b'{"a":"%d","whole":%d,"inner":{"x":"i"}}' % (n, n) for n in range(20_000)]
    found: list[bytes | None] = [bad if n % 1_000 == 700 else payload for n, payload in enumerate(good)]
    proof = proof_of(PLAN, found)
    assert proof is not None
    assert np.flatnonzero(~proof.is_proven).tolist() == list(range(700, 20_000, 1_000))
    assert len(proof.records) == np.count_nonzero(proof.is_proven)
    assert pc.struct_field(proof.records, "known").to_pylist()[-1] == "19999"
