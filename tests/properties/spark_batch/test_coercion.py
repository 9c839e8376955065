"""Texts taken for values: the exact path says what the oracle says, and what Arrow proves is the exact path's."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_batch.coercion import COUNTED_FIELDS_MAX, OTHER_FIELDS, TYPELESS, Coerce, PatternError, instant_pattern
from spark_batch.exact.verdicts import exact_verdict
from spark_batch.outcome import Reason
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat, UnknownFields
from spark_batch.proof import proof_shape, prove
from tests.properties.spark_batch.test_proof import demand_right
from tests.spark.coerced import ODD_TEXTS, PATTERNS, coercing_cases
from tests.spark.oracle import NotValid, Taking, judged, kept, read_json

ALL = frozenset(Coerce)


def plan_of(schema: Any, coerce: frozenset[Coerce], policy: UnknownFields = UnknownFields.IGNORE) -> ConversionPlan:
    """A plan of such a contract."""
    return ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema), unknown_fields=policy, coerce=coerce))


def one_field(kind: Any, **attributes: Any) -> dict[str, Any]:
    """A schema of the field ``f``."""
    return {"type": "record", "name": "R", "fields": [{"name": "f", "type": kind, **attributes}]}


def names_of(plan: ConversionPlan, bits: int | None) -> set[str]:
    """The fields whose bits are set."""
    return {name for at, name in enumerate(plan.coerced_fields) if (bits or 0) >> at & 1}


def demand_the_oracle_s(schema: dict[str, Any], coerce: frozenset[Coerce], payload: bytes) -> bool:
    """The exact path's verdict, counts and kept form are the oracle's; gives whether the payload is valid."""
    plan = plan_of(schema, coerce, UnknownFields.KEEP)
    assert plan.contract is not None
    assert plan.contract.parsed.findings == ()
    taking = Taking(default=frozenset(map(str, coerce)))
    verdict = exact_verdict(plan, payload)
    try:
        judged(schema, payload, taking=taking)
    except NotValid:
        assert verdict.rejection is not None, payload
        return False
    if verdict.rejection is not None:
        assert verdict.rejection.reason is Reason.UNKNOWN_FIELD
        return False
    assert names_of(plan, verdict.coerced) == taking.done, payload
    assert read_json(verdict.value or b"") == kept(schema, payload, taking), payload
    return True


@settings(max_examples=25)
@given(case=coercing_cases(records=6))
def test_the_exact_path_is_the_oracle_s(case: tuple[dict[str, Any], frozenset[Coerce], list[bytes]]) -> None:
    """On generated contracts and payloads: what is taken for what, and in which fields that is counted."""
    schema, coerce, payloads = case
    for payload in payloads:
        demand_the_oracle_s(schema, coerce, payload)


@settings(max_examples=20)
@given(case=coercing_cases(records=6, is_provable=True))
def test_what_arrow_proves_is_right(case: tuple[dict[str, Any], frozenset[Coerce], list[bytes]]) -> None:
    """Values and counted fields of proven records are those of the exact path."""
    schema, coerce, payloads = case
    plan = plan_of(schema, coerce)
    if proof_shape(plan) is not None:
        demand_right(plan, [*payloads])
        demand_counts(plan, payloads)
        for payload in payloads:
            demand_counts(plan, [payload])


def demand_counts(plan: ConversionPlan, payloads: list[bytes]) -> int:
    """The bits of each proven record are the exact path's; gives how many are proven."""
    shape = proof_shape(plan)
    assert shape is not None
    proof = prove(pa.array(payloads, pa.binary()).cast(pa.string()), shape)
    if proof is None:
        return 0
    for at, bits in zip(np.flatnonzero(proof.is_proven), proof.coerced, strict=True):
        assert (exact_verdict(plan, payloads[at]).coerced or 0) == bits, payloads[at]
    return len(proof.coerced)


KINDS: list[Any] = [
    *["boolean", "int", "long", "float", "double", "string"],
    {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
    {"type": "enum", "name": "E", "symbols": ["A", "true", "_x", "Kelvin", "kelvin"]},
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "string", "logicalType": "uuid"},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_odd_text_in_every_type(kind: Any) -> None:
    """Alone and among others, nullable or not: the oracle's verdict, and Arrow's proof no other."""
    payloads = [b'{"f":%s}' % json.dumps(text).encode() for text in ODD_TEXTS]
    for schema in (one_field(kind), one_field(["null", kind]), one_field(["null", kind], default=None)):
        for payload in payloads:
            demand_the_oracle_s(schema, ALL, payload)
            assert exact_verdict(plan_of(schema, frozenset()), payload).coerced is None
        plan = plan_of(schema, ALL)
        if proof_shape(plan) is not None:
            demand_right(plan, [*payloads])
            for payload in payloads:
                demand_right(plan, [payload])
                demand_counts(plan, [payload])


def test_rows_of_csv_are_proven() -> None:
    """All texts, as CSV has them: Arrow proves every one, with numbers, decimals, booleans, instants and empty ones."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "share", "type": ["null", "double"]},
        {"name": "is_paid", "type": "boolean"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "json.pattern": "dd.MM.yyyy"},
        {"name": "note", "type": "string"},
    ]
    plan = plan_of({"type": "record", "name": "Order", "fields": fields}, frozenset(TYPELESS))
    same = {"share": "", "is_paid": "true", "at": "2026-11-21T09:30:00Z", "day": "21.11.2026", "note": ""}
    rows = [json.dumps({"id": f"{number}", "price": f"{number}.10", **same}).encode() for number in range(3_000)]
    assert demand_right(plan, [*rows]) == len(rows)
    assert demand_counts(plan, rows) == len(rows)
    assert names_of(plan, exact_verdict(plan, rows[0]).coerced) == {"id", "price", "share", "is_paid", "day"}


@settings(max_examples=80)
@given(data=st.data())
def test_patterns(data: st.DataObject) -> None:
    """A date by its pattern: the exact path and the oracle agree, so does what Arrow proves."""
    logical = data.draw(st.sampled_from(["date", "time-millis", "local-timestamp-micros", "timestamp-millis"]))
    pattern, zone = data.draw(st.sampled_from(PATTERNS[logical.split("-")[0]]))
    base = "int" if logical in {"date", "time-millis"} else "long"
    attributes = {"json.pattern": pattern} | ({} if zone is None else {"json.zone": zone})
    schema = one_field({"type": base, "logicalType": logical}, **attributes)
    when = data.draw(st.datetimes())
    width = {"y": 4, "S": 3}
    text = "".join(
        f"{value:0{width.get(letter, data.draw(st.integers(1, 2)) if letter in 'MdH' else 2)}}"
        if isinstance(value, int)
        else value
        for letter, value in data.draw(st.just(_tokens(pattern, when)))
    )
    at = data.draw(st.integers(0, len(text)))
    text = data.draw(st.sampled_from([text, text, text[:at] + "1" + text[at:], text[:at] + text[at + 1 :], f"{text} "]))
    payload = b'{"f":%s}' % json.dumps(text).encode()
    demand_the_oracle_s(schema, frozenset(), payload)
    plan = plan_of(schema, frozenset())
    if demand_right(plan, [payload]):
        demand_counts(plan, [payload])


def _tokens(pattern: str, when: Any) -> list[tuple[str, Any]]:
    parts = {"M": when.month, "d": when.day, "H": when.hour, "m": when.minute, "s": when.second}
    parts |= {"y": when.year, "u": when.year, "S": when.microsecond // 1000}
    found: list[tuple[str, Any]] = []
    last = ""
    for letter in pattern.replace("'T'", "\x01").replace("'h'", "\x02"):
        if letter in parts and letter != last:
            found.append((letter, parts[letter]))
        elif letter == "X" != last:
            found.append((letter, "+0130"))
        elif letter not in parts and letter != "X":
            found.append((letter, {"\x01": "T", "\x02": "h"}.get(letter, letter)))
        last = letter
    return found


@pytest.mark.parametrize(
    ("pattern", "logical", "zone", "expected"),
    [
        ("yy-MM-dd", "date", None, "found yy"),
        ("yyyy-MM", "date", None, "year, month, day"),
        ("yyyy-MM-dd HH:mm", "date", None, "a pattern for date with year, month, day"),
        ("yyyy-MM-dd HH:mm", "timestamp-millis", None, "json.zone"),
        ("yyyy-MM-dd HH:mm", "timestamp-millis", "Europe/Berlin", "offset"),
        ("yyyyMd", "date", None, "a sign after M"),
        ("yyyy-MM-dd-MM", "date", None, "each part once"),
        ("yyyy-MM-dd[ HH:mm]", "local-timestamp-millis", None, "signs other than"),
        ("HH:mm.SSS", "time-millis", None, "a pattern for time-millis"),
        ("yyyy-MM-dd'", "date", None, "single quotes"),
        ("yyyy-MM-dd" + " " * 100, "date", None, "at most 100 letters"),
    ],
)
def test_patterns_that_cannot_be_used(pattern: str, logical: str, zone: str | None, expected: str) -> None:
    """Are refused with what was expected, as findings of the schema."""
    with pytest.raises(PatternError, match=expected):
        instant_pattern(pattern, logical, zone)
    base = "int" if logical in {"date", "time-millis"} else "long"
    schema = one_field({"type": base, "logicalType": logical}, **{"json.pattern": pattern, "json.zone": zone})
    contract = plan_of(schema, ALL).contract
    assert contract is not None
    assert [finding.path for finding in contract.parsed.findings] == ["f"]


@pytest.mark.parametrize("wanted", ["numbers", ["number"], 1, None])
def test_words_that_are_none(wanted: Any) -> None:
    """An attribute of other words is a finding."""
    contract = plan_of(one_field("long", **{"json.coerce": wanted}), frozenset()).contract
    assert contract is not None
    assert "json.coerce as true, false or a list of numbers" in contract.parsed.findings[0].expected


def test_the_registered_schema_says_nothing_of_payloads() -> None:
    """It does not change with what is taken for what."""
    kind = {"type": "int", "logicalType": "date"}
    schema = one_field(kind, **{"json.name": "F", "json.coerce": ["numbers"], "json.pattern": "d.M.yyyy"})
    assert json.loads(plan_of(schema, ALL).plain_value_schema()) == one_field(kind)


def test_fields_beyond_those_counted_by_themselves() -> None:
    """Have one count together."""
    fields = [{"name": f"f{at}", "type": "long"} for at in range(COUNTED_FIELDS_MAX + 5)]
    plan = plan_of({"type": "record", "name": "R", "fields": fields}, ALL)
    payload = json.dumps({field["name"]: "1" for field in fields}).encode()
    assert plan.coerced_fields[-2:] == (f"f{COUNTED_FIELDS_MAX - 1}", OTHER_FIELDS)
    assert names_of(plan, exact_verdict(plan, payload).coerced) == set(plan.coerced_fields)
    assert demand_right(plan, [payload, payload]) == 2
