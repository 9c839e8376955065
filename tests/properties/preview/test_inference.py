"""Whatever a sample holds, the schema that is made of it takes every record of it, or a refusal says why."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.preview.inference import MAP_KEYS_MIN, Inference, InferenceRefusedError, inferred
from service.preview.seen import LEVELS_MAX
from spark_batch.exact.verdicts import exact_verdict
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.spark.generated import TEXTS

LEAVES = st.one_of(
    TEXTS.map(json.dumps),
    st.sampled_from(
        ["null", "true", "false", "0", "-1", "1.5", "12.30", "1e3", "9223372036854775808", "1e400", "-0.0"]
    ),
    st.sampled_from(['"2026-11-21"', '"2026-11-21T09:30:00Z"', '"21.11.2026"', '"1/2/2026"', '"12"', '"TRUE"', '""']),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**40), 10**40).map(str),
)
KEYS = st.one_of(st.sampled_from(["a", "b", "a.b", "a_b", "$id", "été", "2x", "", " "]), st.text(max_size=4))


def _object(pairs: dict[str, str]) -> str:
    return "{" + ",".join(f"{json.dumps(key)}:{value}" for key, value in pairs.items()) + "}"


VALUES: st.SearchStrategy[str] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.dictionaries(KEYS, inner, max_size=3).map(_object),
    ),
    max_leaves=6,
)
SAMPLES = st.lists(st.dictionaries(KEYS, VALUES, max_size=4).map(_object), max_size=8)


def plan_of(found: Inference) -> ConversionPlan:
    """A plan whose contract is what was inferred, and that has no findings."""
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(found.document)))
    assert plan_findings(plan) == []
    return plan


def found_or_refused(payloads: list[bytes], *, is_typeless: bool) -> tuple[Inference | None, str]:
    """What was inferred, or why nothing was."""
    try:
        return inferred(payloads, name="orders", is_typeless=is_typeless), ""
    except InferenceRefusedError as refusal:
        return None, str(refusal)


def of(*records: Any, **options: Any) -> dict[str, Any]:
    """Fields of the schema of these records, by name."""
    found = inferred([json.dumps(record).encode() for record in records], name="orders", **options)
    return {field["name"]: field for field in found.document["fields"]}


@settings(max_examples=150)
@given(sample=SAMPLES, is_typeless=st.booleans(), junk=st.sampled_from([b"", b"[1]", b"{", b'{"a":1,"a":2}', b"\xff"]))
def test_every_sampled_record_meets_the_schema(sample: list[str], junk: bytes, *, is_typeless: bool) -> None:
    """By the exact path, though `inferred` has looked itself; what is no JSON object is left out and told."""
    payloads = [text.encode() for text in sample]
    found, why = found_or_refused([*payloads, junk], is_typeless=is_typeless)
    if found is None:
        assert "; try " in why or "a contract is for JSON objects" in why
        assert not why.startswith("no schema was found that takes every record")
        return
    plan = plan_of(found)
    assert found.records == len(payloads)
    assert len(found.skipped) == 1
    for payload in payloads:
        assert exact_verdict(plan, payload).rejection is None, payload


def test_types() -> None:
    """Those that hold for all records, null where a value is absent or null."""
    rows = [
        {
            "id": number,
            "price": 12.5 + number,
            "is_paid": True,
            "at": "2026-11-21T09:30:00.5Z",
            "fine": "2026-11-21T09:30:00.123456Z",
            "day": "2026-11-21",
            "german": f"{20 + number % 9}.11.2026",
            "key": f"0b9f3f2c-6f0e-4c8e-9d55-0000000000{number:02}",
            "state": ["open", "paid"][number % 2],
            "tags": ["a", None],
            "inner": {"n": number, **({} if number else {"x": "y"})},
            "note": None if number else "text",
            "nothing": None,
        }
        for number in range(40)
    ]
    fields = of(*rows)
    types = {name: field["type"] for name, field in fields.items()}
    assert types["id"] == "long"
    assert types["price"] == "double"
    assert types["is_paid"] == "boolean"
    assert types["at"] == {"type": "long", "logicalType": "timestamp-millis"}
    assert types["fine"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert types["day"] == {"type": "int", "logicalType": "date"}
    assert types["german"] == {"type": "int", "logicalType": "date"}
    assert fields["german"]["json.pattern"] == "d.M.yyyy"
    assert types["key"] == {"type": "string", "logicalType": "uuid"}
    assert types["state"]["symbols"] == ["open", "paid"]
    assert types["tags"] == {"type": "array", "items": ["null", "string"]}
    assert types["inner"]["fields"][1] == {"name": "x", "type": ["null", "string"], "default": None}
    assert types["note"] == ["null", "string"]
    assert (types["nothing"], fields["nothing"]["default"]) == (["null", "string"], None)
    assert "guess" in fields["nothing"]["doc"]


def test_numbers_that_a_double_would_change_are_decimals() -> None:
    """And amounts of money, which have a fixed number of digits; larger ones than any decimal are doubles, told so."""
    payloads = [
        b'{"a":0.12345678901234567890,"b":12.30,"c":1e3,"d":123456789012345678901,"e":%s,"f":1600000000}' % big
        for big in (b"1" * 60, b"1" * 61)
    ]
    fields = {field["name"]: field for field in inferred(payloads, name="x").document["fields"]}
    assert fields["a"]["type"] == {"type": "bytes", "logicalType": "decimal", "precision": 26, "scale": 20}
    assert fields["b"]["type"] == {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}
    assert fields["c"]["type"] == "double"
    assert fields["d"]["type"]["scale"] == 0
    assert fields["e"]["type"] == "double"
    assert "cannot hold all the digits" in fields["e"]["doc"]
    assert "seconds since 1970" in fields["f"]["doc"]


def test_names_are_made_legal_each_its_own() -> None:
    """The payload's name stands in json.name; legal ones stay."""
    fields = of({"a b": 1, "a-b": 2, "a_b": 3, "été": 4, "2nd": 5, "$": 6})
    assert {name: field.get("json.name") for name, field in fields.items()} == {
        "a_b_2": "a b",
        "a_b_3": "a-b",
        "a_b": None,
        "ete": "été",
        "_2nd": "2nd",
        "field": "$",
    }


def test_objects_of_many_differing_keys_are_maps() -> None:
    """Not so where most are in every record, or where their values have no type in common."""
    assert of(*({"m": {f"k{number}": number}} for number in range(MAP_KEYS_MIN)))["m"]["type"] == {
        "type": "map",
        "values": "long",
    }
    wide = {f"k{number}": number for number in range(MAP_KEYS_MIN)}
    assert of({"m": wide}, {"m": wide})["m"]["type"]["type"] == "record"
    mixed = [{"m": {f"k{number}": number if number % 2 else {"x": 1}}} for number in range(MAP_KEYS_MIN)]
    assert of(*mixed)["m"]["type"]["type"] == "record"


def test_what_has_no_one_type_is_left_out_and_told() -> None:
    """In the record's doc and in the notes; a schema of nothing else is refused."""
    found = inferred([b'{"a":1,"b":[1]}', b'{"a":2,"b":{"c":1}}'], name="x")
    assert [field["name"] for field in found.document["fields"]] == ["a"]
    assert "b: arrays and objects" in found.document["doc"]
    assert found.notes == ("b: arrays and objects: left out",)
    with pytest.raises(InferenceRefusedError, match="no field of the sample has one type"):
        inferred([b'{"b":[1]}', b'{"b":{"c":1}}'], name="x")


def test_texts_are_taken_for_values_where_some_are_values_or_the_format_has_none() -> None:
    """CSV's rows have numbers and booleans; JSON's texts stay texts, and a note says that they need not."""
    rows = [{"n": str(number), "ok": "True", "d": "", "s": f"00{number}"} for number in range(5)]
    rows.append({"n": "", "ok": "false", "d": "2026-11-21", "s": ""})
    fields = of(*rows, is_typeless=True)
    assert (fields["n"]["type"], fields["n"]["json.coerce"]) == (["null", "long"], ["empty", "numbers"])
    assert (fields["ok"]["type"], fields["ok"]["json.coerce"]) == ("boolean", ["booleans"])
    assert fields["d"]["type"] == ["null", {"type": "int", "logicalType": "date"}]
    assert fields["s"]["type"] == "string"
    texts = of({"n": "1"}, {"n": "2"})
    assert texts["n"]["type"] == "string"
    assert "json.coerce" in texts["n"]["doc"]
    assert of({"n": 1}, {"n": "2"})["n"]["json.coerce"] == ["numbers"]


def test_day_and_month_that_the_sample_does_not_tell_apart() -> None:
    """Nothing is guessed: text, with a note; once a day is over 12 it is told."""
    ambiguous = of({"d": "1/2/2026"}, {"d": "03/04/2026"})["d"]
    assert ambiguous["type"] == "string"
    assert "day from month" in ambiguous["doc"]
    assert of({"d": "1/2/2026"}, {"d": "25/04/2026"})["d"]["json.pattern"] == "d/M/yyyy"
    assert of({"d": "1/2/2026"}, {"d": "4/25/2026"})["d"]["json.pattern"] == "M/d/yyyy"


@pytest.mark.parametrize(
    ("payloads", "words"),
    [
        ([], "the sample is empty: try again"),
        ([b"no", b"[1]"], "no JSON object (1 of the sample left out as malformed_json, first number 1; 1 of the"),
        ([b"{}"], "objects without keys"),
        ([json.dumps({f"k{n}": 1}).encode() for n in range(1_001)], "more than 1,000 different keys"),
        ([b'{"a":' * (LEVELS_MAX + 2) + b"1" + b"}" * (LEVELS_MAX + 2)], f"in more than {LEVELS_MAX} levels"),
    ],
    ids=["empty", "no JSON", "no keys", "keys are data", "deep"],
)
def test_samples_of_which_nothing_can_be_had(payloads: list[bytes], words: str) -> None:
    """One sentence says why, and what to try."""
    with pytest.raises(InferenceRefusedError) as refusal:
        inferred(payloads, name="x")
    assert words in str(refusal.value)
