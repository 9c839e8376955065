"""A bad payload costs a proof no more reads than a good one, once Arrow has complained of its kind."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_batch.exact.verdicts import exact_verdict
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat, UnknownFields
from spark_batch.proof import CHUNK_ROWS, FIRST_ROWS, Proof, proof_shape, prove
from spark_batch.proof_suspects import REPEATED_KEYS_MAX, Suspects, occurrences

FIELDS: list[dict[str, Any]] = [
    {"name": "a", "type": "string"},
    {"name": "whole", "type": ["null", "long"], "default": None},
    {"name": "small", "type": ["null", "int"], "default": None},
    {"name": "real", "type": ["null", "double"], "default": None},
    {"name": "yes", "type": ["null", "boolean"], "default": None},
    {"name": "quoted", "type": ["null", "string"], "default": None, "json.name": 'x"y'},
    {"name": "list", "type": ["null", {"type": "array", "items": "long"}], "default": None},
    {
        "name": "inner",
        "type": ["null", {"type": "record", "name": "In", "fields": [{"name": "n", "type": ["null", "long"]}]}],
        "default": None,
    },
]
ROWS = 20_000
CHUNKS = 1 + -(-(ROWS - FIRST_ROWS) // CHUNK_ROWS)
BAD = [
    b'{"a":"x"',
    b'{"a":"x',
    b'{"a":"x","whole":1.5}',
    b'{"a":"x","whole":"1"}',
    b'{"a":"x","whole":9223372036854775808}',
    b'{"a":"x","small":2147483648}',
    b'{"a":"x","real":"1"}',
    b'{"a":"x","real":1e999}',
    b'{"a":"x","yes":0}',
    b'{"a":5}',
    b'{"a":"x","list":["1"]}',
    b'{"a":"x","list":1}',
    b'{"a":"x","inner":{"n":"1"}}',
    b'{"a":"x","inner":[]}',
    b'{"a":"x","a":"y"}',
    b'{"a":"x","unread":{"k":1,"k":2}}',
    b"[]",
    b"5",
]

ODD = [
    b'{"a":"1234567890123456789012345"}',
    b'{"a":"x","whole":9223372036854775807}',
    b'{"a":"x","whole":-9223372036854775808}',
    b'{"a":"x","real":12345678901234567890}',
    b'{"a":"x","unread":12345678901234567890}',
    b'{"a":"x","whole":12345678901234567890123}',
    b'{"a":"x","inner":{"n":-9223372036854775809}}',
    b'{"a":"x","list":[1,9999999999999999999]}',
    b'{"a":"x","list":[1,null]}',
    b'{"a":"x","unread":{"a":1,"whole":"y"}}',
    b'{"a":"x","whole":1,"whole":2}',
    b'{"\\u0061":"x","a":"y"}',
    b'{"a":"\\"a\\":\\"a\\""}',
]
"""Good or bad, with what suspects are looked for by: many digits, and keys that may stand twice."""


def plan(policy: UnknownFields = UnknownFields.IGNORE) -> ConversionPlan:
    """One of the contract above."""
    schema = json.dumps({"type": "record", "name": "R", "fields": FIELDS})
    return ConversionPlan(PayloadFormat.JSON, Contract(schema, unknown_fields=policy))


def proof_of(payloads: list[bytes], policy: UnknownFields = UnknownFields.IGNORE) -> Proof | None:
    """The proof of these payloads."""
    shape = proof_shape(plan(policy))
    assert shape is not None
    return prove(pa.array(payloads, pa.binary()).cast(pa.string()), shape)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes in bytes of what Arrow was asked to read."""
    seen: list[int] = []
    read_json: Any = pyarrow.json.read_json

    def counted(source: Any, **options: Any) -> Any:
        seen.append(source.size())
        return read_json(source, **options)

    monkeypatch.setattr(pyarrow.json, "read_json", counted)
    return seen


def good_payloads(count: int) -> list[bytes]:
    """Payloads with a number, a list and an object each."""
    return [b'{"a":"%d","whole":%d,"list":[1,2],"inner":{"n":1},"unread":{"k":1}}' % (n, n) for n in range(count)]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_reads_do_not_grow_with_bad_payloads(bad: bytes, reads: list[int]) -> None:
    """One bad payload in a thousand costs one or two reads in vain for the whole micro-batch, and no good payload."""
    found = [bad if n % 1_000 == 700 else payload for n, payload in enumerate(good_payloads(ROWS))]
    proof = proof_of(found)
    assert proof is not None
    assert np.flatnonzero(~proof.is_proven).tolist() == list(range(700, ROWS, 1_000))
    assert len(reads) <= CHUNKS + 2


@settings(deadline=None, max_examples=25)  # a busy machine is no failure
@given(
    odd=st.lists(st.sampled_from([*BAD, *ODD]), min_size=1, max_size=5),
    places=st.lists(st.integers(0, 3 * FIRST_ROWS - 1), min_size=1, max_size=40, unique=True),
)
def test_what_is_proven_is_what_the_exact_path_takes(odd: list[bytes], places: list[int]) -> None:
    """Whatever kinds are mixed, in whatever order they are met: nothing bad is proven."""
    found = good_payloads(3 * FIRST_ROWS)
    for number, at in enumerate(places):
        found[at] = odd[number % len(odd)]
    proof = proof_of(found)
    is_proven = np.zeros(len(found), dtype=bool) if proof is None else proof.is_proven
    verdicts = {at: exact_verdict(plan(), found[at]).rejection for at in places}
    assert not [found[at] for at, rejection in verdicts.items() if rejection is not None and is_proven[at]]


def test_several_kinds_at_once(reads: list[int]) -> None:
    """Each kind of bad payload is learnt once, however they are mixed."""
    kinds = [b'{"a":"x"', b'{"a":"x","whole":"1"}', b'{"a":"x","small":2147483648}', b'{"a":"x","a":"y"}', b"[]"]
    found = good_payloads(ROWS)
    for number, at in enumerate(range(300, ROWS, 400)):
        found[at] = kinds[number % len(kinds)]
    proof = proof_of(found)
    assert proof is not None
    assert np.flatnonzero(~proof.is_proven).tolist() == list(range(300, ROWS, 400))
    assert len(reads) <= CHUNKS + 2 * len(kinds)


@pytest.mark.parametrize("bad", [b'{"a":"x"', b'{"a":5}', b"[]"], ids=repr)
def test_a_page_of_bad_payloads_is_given_up_soon(bad: bytes, reads: list[int]) -> None:
    """Where most are bad, a few reads of the beginning are all that is spent in Arrow."""
    assert proof_of([bad] * ROWS) is None
    assert len(reads) <= 2
    half = [bad if n % 3 else payload for n, payload in enumerate(good_payloads(ROWS))]
    assert proof_of(half) is None


def test_every_bad_payload_repeats_another_key() -> None:
    """So many names are not counted; what is right is proven all the same."""
    found = good_payloads(ROWS)
    for number, at in enumerate(range(700, ROWS, 1_000)):
        found[at] = b'{"a":"x","k%d":1,"k%d":2}' % (number, number)
    proof = proof_of(found)
    assert proof is not None
    assert np.count_nonzero(~proof.is_proven) >= ROWS // 1_000 > REPEATED_KEYS_MAX
    assert not proof.is_proven[700::1_000].any()
    assert np.count_nonzero(proof.is_proven) > ROWS * 9 // 10


def test_a_name_that_all_objects_have_is_no_sign() -> None:
    """A key that stands in an object and in one inside it is not taken for one that stands twice."""
    found = [b'{"a":"%d","inner":{"n":1},"unread":{"a":1}}' % n for n in range(ROWS)]
    found[700] = b'{"a":"x","a":"y","unread":{"a":1}}'
    proof = proof_of(found)
    assert proof is not None
    assert np.flatnonzero(~proof.is_proven).tolist() == [700]


@pytest.mark.parametrize("value", [b"1", b"null", b'{"y":[]}'])
def test_only_payloads_with_unknown_fields_are_doubtful(value: bytes) -> None:
    """Where unknown fields are refused, a payload that has one spoils no other, nor does one that is null."""
    found = [b'{"a":"%d"}' % n for n in range(ROWS)]
    found[5], found[700] = b'{"a":"more","inner":{"n":1}}', b'{"a":"x","more":' + value + b"}"
    found[900] = b'{"a":"x","inner":{"n":1,"other":' + value + b"}}"
    proof = proof_of(found, UnknownFields.REJECT)
    assert proof is not None
    assert np.flatnonzero(~proof.is_proven).tolist() == [700, 900]


def test_lines_are_named_that_are_bad_and_not_those_after() -> None:
    """A line that is cut off swallows the beginning of the next, which is not blamed."""
    record = plan().record
    assert record is not None
    suspects = Suspects(record, "payload")
    payloads = [b'{"a":"x"}', b'{"a":"x"', b'{"a":"x"}', b'{"a":"x', b'{"a":"x"}', b'{"a":', b"", b'{"a":"x"}', b"{"]
    lines = pa.array([b'{"payload":' + each + b',"mark":0}\n' for each in payloads], pa.binary()).cast(pa.string())
    assert not suspects.found(lines).any()
    assert suspects.learn("JSON parse error: Missing a comma or '}' after an object member. in row 1")
    assert np.flatnonzero(suspects.found(lines)).tolist() == [1, 3, 5, 6, 8]
    assert np.flatnonzero(suspects.found(lines.slice(2))).tolist() == [1, 3, 4, 6]
    assert not suspects.learn("JSON parse error: Missing a colon after a name of object member. in row 1")


@given(texts=st.lists(st.text(alphabet='"ab', max_size=12)), skipped=st.integers(0, 3))
def test_occurrences(texts: list[str], skipped: int) -> None:
    """As many as stand there, of a slice too; where texts have no ends of their own, perhaps more."""
    closed = pa.array([f"{{{text}}}" for text in texts], pa.string()).slice(skipped)
    counts = [len(re.findall('(?="a")', text)) for text in texts[skipped:]]
    assert occurrences(closed, "a").tolist() == counts
    assert (occurrences(pa.array(texts, pa.string()).slice(skipped), "a") >= counts).all()


@given(text=st.text(alphabet='"abc', max_size=60), name=st.text(alphabet='abc"', max_size=12))
def test_occurrences_of_names_of_every_length(text: str, name: str) -> None:
    """Wherever in a word of the machine a name begins or ends."""
    found = occurrences(pa.array(["-", text, "-"], pa.string()), name)
    assert found.tolist() == [0, len(re.findall(f'(?="{re.escape(name)}")', text)), 0]


@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("bad", [b"9223372036854775808", b"-9223372036854775809", b"1" * 60])
def test_whole_numbers_that_are_too_large(before: int, bad: bytes) -> None:
    """They are looked for by their digits, wherever they begin; what else has so many digits is not suspected."""
    record = plan().record
    assert record is not None
    suspects = Suspects(record, "payload")
    assert suspects.learn("Failed to convert JSON to int64, couldn't parse:9223372036854775808")
    numbers = [b"1", b"9223372036854775807", bad, b"null", b'1,"a":"1234567890123456789012345"', bad]
    payloads = [b'{"a":"%b","whole":%b}' % (b"x" * before, number) for number in numbers]
    lines = pa.array([b'{"payload":' + each + b',"mark":0}\n' for each in payloads], pa.binary()).cast(pa.string())
    assert np.flatnonzero(suspects.found(lines)).tolist() == [2, 5]
    assert np.flatnonzero(suspects.found(lines.slice(1, 4))).tolist() == [1]
    assert not suspects.learn("Failed to convert JSON to int64, couldn't parse:-99999999999999999999")
    # From now on a number may be bad without many digits.
    assert suspects.learn("Failed to convert JSON to int64, couldn't parse:1.5")
    assert np.flatnonzero(suspects.found(lines.slice(2))).tolist() == [0, 3]
    assert not suspects.learn("Failed to convert JSON to int64, couldn't parse:99999999999999999999")


def test_kinds_of_numbers_are_learnt_apart() -> None:
    """Only fields of the type that Arrow complains of are looked into; of all, where it names none."""
    record = plan().record
    assert record is not None
    suspects = Suspects(record, "payload")
    payloads = [b'{"whole":1.5}', b'{"small":1.5}', b'{"real":1e999}', b'{"whole":1}']
    lines = pa.array([b'{"payload":' + each + b',"mark":0}\n' for each in payloads], pa.binary()).cast(pa.string())
    found = []
    for complaint in ("JSON to int32, couldn't parse:1.5", "JSON to int64, couldn't parse:1.5", "Number too big"):
        assert suspects.learn(complaint)
        found.append(np.flatnonzero(suspects.found(lines)).tolist())
    assert found == [[1], [0, 1], [0, 1, 2]]
