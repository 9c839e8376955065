"""JSON whose payload is not what its schema says, or is of absurd size: refused record by record, never raised."""

from __future__ import annotations

import json
from typing import Any

import pytest

from service.config.transformations import read_transformations
from service.sinks.converters import ColumnReader, EnvelopeReader, JsonReader
from tests.unit.sinks.fake_library import polled
from tests.unit.sinks.test_sink_transformations import column, decode

TRANSFORMS, DATA = "org.apache.kafka.connect.transforms", "org.apache.kafka.connect.data"
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"type": name} for name in ("int8", "int32", "int64", "float", "double", "boolean", "string", "bytes")},
    "decimal": {"type": "bytes", "name": f"{DATA}.Decimal", "version": 1, "parameters": {"scale": "2"}},
    "date": {"type": "int32", "name": f"{DATA}.Date", "version": 1},
    "time": {"type": "int32", "name": f"{DATA}.Time", "version": 1},
    "timestamp": {"type": "int64", "name": f"{DATA}.Timestamp", "version": 1},
    "array": {"type": "array", "items": {"type": "int32"}},
    "map": {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}},
    "struct": {"type": "struct", "fields": [{"field": "a", "type": "int32"}]},
}
NUMBERS = ["1", "-0", "1.5", "1.0", "1e2", "0e99999999999999999999", "1e400", "1e9999999999999999999"]
NUMBERS += ["1e-9999999999999999999", "9" * 30, "9" * 390, "9" * 5_000, "253402300800000"]
PAYLOADS = [*NUMBERS, *(f'"{number}"' for number in NUMBERS)]
PAYLOADS += ["null", "true", "[]", "[1]", "{}", '{"a":1}', '""', '"x"', '"AQ=="', '"%%%"', '"é"', '"NaN"']
CONFIGS: list[dict[str, str]] = [
    *({"type": "Cast", "spec": each} for each in ("int8", "int32", "int64", "float32", "float64", "boolean", "string")),
    *(
        {"type": "TimestampConverter", "target.type": each, "format": "yyyy-MM-dd"}
        for each in ("string", "unix", "Date", "Time", "Timestamp")
    ),
]


def reader_and_bodies(kind: dict[str, Any] | None, *, is_field: bool) -> tuple[ColumnReader, list[bytes | None]]:
    """The payloads, or records with them in a field, in envelopes if there is a schema."""
    payloads = [f'{{"f":{payload}}}' if is_field else payload for payload in PAYLOADS]
    if kind is None:
        return JsonReader(), [payload.encode() for payload in payloads]
    own = {**kind, "optional": True}
    schema = json.dumps({"type": "struct", "fields": [{**own, "field": "f"}]} if is_field else own)
    return EnvelopeReader(), [f'{{"schema":{schema},"payload":{payload}}}'.encode() for payload in payloads]


@pytest.mark.parametrize("is_field", [False, True], ids=["whole", "field"])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: " ".join(config.values()))
async def test_each_record_is_delivered_or_refused(config: dict[str, str], *, is_field: bool) -> None:
    """Of every type of a schema and without one; what is delivered is JSON."""
    own = {**config, "type": f"{TRANSFORMS}.{config['type']}$Value"}
    if is_field:
        own |= {"spec": f"f:{own['spec']}"} if "spec" in own else {"field": "f"}
    properties = {"transforms": "a", **{f"transforms.a.{key}": text for key, text in own.items()}}
    chain = list(read_transformations(properties, is_sink=True).steps)
    for kind in (None, *KINDS.values()):
        reader, bodies = reader_and_bodies(kind, is_field=is_field)
        decoded = await decode(polled(bodies), chain, reader)
        rows = [row for batch in decoded.batches for row in column(batch, "offset")]
        assert sorted([*rows, *(refusal.row for refusal in decoded.refusals)]) == list(range(len(bodies)))
        for value in (value for batch in decoded.batches for value in column(batch, "value")):
            if value is not None:
                json.loads(value, parse_constant=pytest.fail, parse_int=str)


@pytest.mark.parametrize(
    ("kind", "spec", "payload", "made"),
    [
        ("int32", "string", '"1"', "wrong_type"),
        ("int32", "string", "1.5", '"1"'),
        ("int64", "string", "1e2", '"100"'),
        ("int64", "float64", "1e300", "wrong_type"),
        ("date", "string", "1.0", "wrong_type"),
        ("string", "string", "1", "wrong_type"),
        ("string", "float32", '"1e9999999999999999999"', "out_of_range"),
        ("string", "float32", '"1e-9999999999999999999"', "0.0"),
        ("boolean", "string", "1", "wrong_type"),
        ("double", "string", '"NaN"', '"NaN"'),
        ("decimal", "string", '"%%%"', "wrong_type"),
        ("decimal", "string", "1.5", '"1.50"'),
        (None, "string", "9" * 401, "out_of_range"),
        (None, "float32", "9" * 40, "out_of_range"),
        (None, "float64", "9" * 390, "out_of_range"),
    ],
)
async def test_what_becomes_of_them(kind: str | None, spec: str, payload: str, made: str) -> None:
    """A number of a whole type is cut as Java cuts it; a value of another type is refused."""
    properties = {"transforms": "a", "transforms.a.type": f"{TRANSFORMS}.Cast$Value", "transforms.a.spec": spec}
    body = payload if kind is None else f'{{"schema":{json.dumps(KINDS[kind])},"payload":{payload}}}'
    reader: ColumnReader = JsonReader() if kind is None else EnvelopeReader()
    decoded = await decode(polled([body.encode()]), list(read_transformations(properties, is_sink=True).steps), reader)
    found = [value for batch in decoded.batches for value in column(batch, "value")]
    assert [*found, *(refusal.reason for refusal in decoded.refusals)] == [made]
