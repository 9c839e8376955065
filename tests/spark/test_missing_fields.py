"""Missing, null, default, unknown: what becomes of fields that are not simply there."""

from __future__ import annotations

import json
from typing import Any

from spark_batch.outcome import Reason
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, UnknownFields
from tests.spark.engines import Engine, rows, table

JSON = ConverterSpec(ConverterKind.JSON)
INNER = {
    "type": "record",
    "name": "In",
    "fields": [{"name": "x", "type": "string"}, {"name": "y", "type": "int", "default": 3}],
}
SCHEMA = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long", "json.name": "$id"},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "bare", "type": ["string", "null"]},
        {"name": "five", "type": "int", "default": 5},
        {"name": "word", "type": ["string", "null"], "default": "w"},
        {"name": "list", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
        {"name": "inner", "type": ["null", INNER], "json.name": "été"},
    ],
}


def _plan(policy: UnknownFields = UnknownFields.IGNORE, schema: Any = None) -> ConversionPlan:
    contract = Contract(json.dumps(schema or SCHEMA), unknown_fields=policy)
    return ConversionPlan(PayloadFormat.JSON, contract, value_converter=JSON)


def _values(engine: Engine, plan: ConversionPlan, texts: list[str]) -> list[Any]:
    """Values as parsed JSON, or reason and message."""
    found = rows(engine.convert(plan, table([text.encode() for text in texts])))
    return [
        json.loads(row["value"]) if "value" in row else (Reason(row["reason"]), row["message"].partition(":")[0])
        for row in found
    ]


def test_missing_fields_take_default_then_null(engine: Engine) -> None:
    """A default if there is one, else null if it may be, else rejected; explicit null only where null is allowed."""
    full = {"id": 1, "maybe": None, "bare": None, "five": 5, "word": "w", "list": [1, 2], "inner": None}
    assert _values(
        engine,
        _plan(),
        [
            '{"$id":1}',
            '{"$id":1,"word":null}',
            '{"$id":1,"five":null}',
            '{"$id":1,"list":null}',
            '{"id":1}',
            '{"$id":null}',
            '{"$id":1,"été":{"x":"a"}}',
            '{"$id":1,"été":{}}',
            '{"$id":1,"été":{"x":"a","y":null}}',
            '{"$id":1,"list":[]}',
        ],
    ) == [
        full,
        {**full, "word": None},
        (Reason.NULL_NOT_ALLOWED, "five"),
        (Reason.NULL_NOT_ALLOWED, "list"),
        (Reason.MISSING_FIELD, "$id"),
        (Reason.NULL_NOT_ALLOWED, "$id"),
        {**full, "inner": {"x": "a", "y": 3}},
        (Reason.MISSING_FIELD, "été.x"),
        (Reason.NULL_NOT_ALLOWED, "été.y"),
        {**full, "list": []},
    ]


def test_unknown_fields_are_ignored_or_refused(engine: Engine) -> None:
    """`ignore` leaves them out, `reject` refuses them at any depth and names the first."""
    texts = ['{"$id":1,"z":2}', '{"$id":1,"été":{"x":"a","z":1}}', '{"$id":1,"été":{"x":"a"}}', '{"$id":1,"été":null}']
    assert all(isinstance(value, dict) for value in _values(engine, _plan(), texts))
    found = _values(engine, _plan(UnknownFields.REJECT), texts)
    assert found[:2] == [(Reason.UNKNOWN_FIELD, "z"), (Reason.UNKNOWN_FIELD, "été.z")]
    assert [value["inner"] for value in found[2:]] == [{"x": "a", "y": 3}, None]


def test_kept_payload_is_untouched_where_the_contract_changes_nothing(engine: Engine) -> None:
    """`keep` with a plain contract passes the very bytes: unknown fields, digits and blanks included."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    good = b' {"z" : 1.10, "a":"5", "big":123456789012345678901234567890 } '
    suspicious = b' {"z" : 1.10, "a":"\\\\ud83d" } '
    outcome = engine.convert(_plan(UnknownFields.KEEP, schema), table([good, suspicious, b'{"z":1,"a":5}']))
    assert outcome.column("value").to_pylist() == [good, suspicious, None]


def test_kept_payload_with_names_defaults_and_instants(engine: Engine) -> None:
    """`keep` writes Avro names, defaults and instants as numbers, and leaves every other digit as it was."""
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "a", "type": "double", "json.name": "$a"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "d", "type": "int", "default": 4},
        ],
    }
    text = '{"z":1.10,"$a":1.50,"at":"1970-01-01T00:00:01Z","deep":{"$a":[1e2,"\\u001f"]}}'
    outcome = engine.convert(_plan(UnknownFields.KEEP, schema), table([text.encode()]))
    assert outcome.column("value").to_pylist() == [
        b'{"a":1.50,"at":1000,"d":4,"z":1.10,"deep":{"$a":[1e2,"\\u001F"]}}',
    ]


def test_kept_fields_cannot_take_a_contract_field_s_name(engine: Engine) -> None:
    """An unknown field that would go out as a field of the contract, unchecked or in its place, is refused."""
    refused = {
        '{"$insert_id":1,"insert_id":"two","in":[],"by":{}}': "insert_id",
        '{"insert_id":"two","in":[],"by":{}}': "insert_id",
        '{"insert_id":null,"in":[],"by":{}}': "insert_id",
        '{"in":[{"é":1},{"é":1,"x":1}],"by":{}}': "in[1].x",
        '{"in":[],"by":{"a":{"é":2,"x":3}}}': "by.a.x",
    }
    inner = {"type": "record", "name": "In", "fields": [{"name": "x", "type": "long", "json.name": "é"}]}
    fields = [
        {"name": "insert_id", "json.name": "$insert_id", "type": ["null", "long"]},
        {"name": "in", "type": {"type": "array", "items": inner}},
        {"name": "by", "type": {"type": "map", "values": "In"}},
    ]
    schema = {"type": "record", "name": "R", "fields": fields}
    good = '{"$insert_id":1,"in":[{"é":1,"insert_id":5}],"by":{"x":{"é":2}},"x":6}'
    kept = {"insert_id": 1, "in": [{"x": 1, "insert_id": 5}], "by": {"x": {"x": 2}}, "x": 6}
    found = _values(engine, _plan(UnknownFields.KEEP, schema), [good, *refused])
    assert found == [kept, *((Reason.UNKNOWN_FIELD, field) for field in refused.values())]
    assert all(isinstance(value, dict) for value in _values(engine, _plan(schema=schema), list(refused)))


def test_fields_may_swap_their_names(engine: Engine) -> None:
    """A name that is a field's own in the payload and another's in the record is known, and taken by nobody else."""
    fields = [
        {"name": "a", "json.name": "b", "type": ["null", "long"]},
        {"name": "b", "json.name": "a", "type": ["null", "long"]},
    ]
    plan = _plan(UnknownFields.KEEP, {"type": "record", "name": "R", "fields": fields})
    assert _values(engine, plan, ['{"a":1,"b":2}', '{"a":1}']) == [{"a": 2, "b": 1}, {"b": 1}]


def test_names_no_path_can_express(engine: Engine) -> None:
    """Names with quotes, question marks, brackets, dots or nothing at all are read like any other."""
    names = ["", "?", "a?b", '"', "'", "'\"", "a.b", "[0]", "$", "`", "\\", "a b", "\n", "😀", "__headrace_value"]
    fields = [{"name": f"f{at}", "type": "string", "json.name": name} for at, name in enumerate(names)]
    plan = _plan(UnknownFields.REJECT, {"type": "record", "name": "R", "fields": fields})
    good = json.dumps({name: str(at) for at, name in enumerate(names)})
    bad = [json.dumps({name: at if name == chosen else "x" for at, name in enumerate(names)}) for chosen in names]
    found = _values(engine, plan, [good, *bad])
    assert found[0] == {f"f{at}": str(at) for at in range(len(names))}
    assert [reason for reason, _ in found[1:]] == [Reason.WRONG_TYPE] * len(names)
