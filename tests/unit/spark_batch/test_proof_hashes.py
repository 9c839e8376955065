"""Hashes written from proven columns are those of the exact path."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_batch.exact.verdicts import exact_verdict
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.proof import proof_shape, prove
from spark_batch.proof_hashes import dedupe_hashes

INNER = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "id", "json.name": "$insert_id", "type": ["null", "string"]},
        {"name": "time", "type": ["null", "long"]},
        {"name": "day", "type": ["null", "int"]},
        {"name": "is_new", "type": ["null", "boolean"]},
        {"name": "kind", "type": ["null", {"type": "enum", "name": "K", "symbols": ["a", "m"]}]},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "E",
    "fields": [{"name": "event", "type": "string"}, {"name": "p", "type": ["null", INNER]}],
}
PLAN = ConversionPlan(
    PayloadFormat.JSON,
    Contract(json.dumps(SCHEMA)),
    dedupe_fields=("p.$insert_id", "event", "p.time", "p.day", "p.is_new", "p.kind"),
    value_converter=ConverterSpec(ConverterKind.STRING),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(["s1:m", "m", "i1;", ""])
INNERS = st.fixed_dictionaries(
    {},
    optional={
        "$insert_id": TEXTS,
        "time": st.integers(-(2**63), 2**63 - 1),
        "day": st.integers(-(2**31), 2**31 - 1),
        "is_new": st.booleans(),
        "kind": st.sampled_from(["a", "m"]),
    },
)
RECORDS = st.builds(lambda event, inner: {"event": event} | inner, TEXTS, st.just({}) | st.builds(dict, p=INNERS))


@settings(max_examples=100, deadline=None)
@given(st.lists(RECORDS, min_size=1, max_size=8))
def test_proven_records_have_the_hashes_of_the_exact_path(records: list[dict[str, object]]) -> None:
    """Of whatever kinds the fields are, and whichever of them are missing."""
    payloads = [json.dumps(record, ensure_ascii=False).encode() for record in records]
    shape = proof_shape(PLAN)
    assert shape is not None
    proof = prove(pa.array([payload.decode() for payload in payloads]), shape)
    assert proof is not None
    assert proof.is_proven.all()
    expected = [exact_verdict(PLAN, payload).dedupe for payload in payloads]
    assert dedupe_hashes(proof.records, shape.hashed).to_pylist() == expected
