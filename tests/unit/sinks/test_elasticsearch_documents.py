"""Documents of JSON with a schema: which payloads are refused, and what is told of them."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from service.sinks.batch import Form, SinkBatch, ValueType
from service.sinks.elasticsearch.config import ElasticsearchSinkConfig
from service.sinks.elasticsearch.documents import lines_of

PRICE = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "n", "type": "int32", "optional": True},
        {"field": "price", "optional": True, **PRICE},
        {
            "field": "deep",
            "type": "struct",
            "optional": True,
            "fields": [
                {"field": "list", "type": "array", "optional": True, "items": PRICE},
                {"field": "map", "type": "map", "optional": True, "keys": {"type": "string"}, "values": PRICE},
                {"field": "pairs", "type": "map", "optional": True, "keys": {"type": "int32"},
                 "values": {"type": "string"}},
            ],
        },
    ],
}  # fmt: skip


def documents_of(payloads: list[str], schema: Any = SCHEMA) -> tuple[list[Any], dict[int, str]]:
    """The documents that are sent, and what is told of the others by their rows."""
    count = len(payloads)
    columns: dict[str, Any] = {
        "topic": pa.array(["orders"] * count),
        "original_topic": pa.array(["orders"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array([0] * count, pa.int64()),
        "key": pa.array(["a"] * count),
        "value": pa.array(payloads),
    }
    told: dict[int, str] = {}

    def refuse(row: int, reason: str, message: str) -> None:
        assert reason == "wrong_type"
        told[row] = message

    kind = ValueType(Form.JSON, json.dumps(schema))
    batch = SinkBatch(pa.table(columns), ValueType(Form.TEXT), kind, refuse)
    config = ElasticsearchSinkConfig.parse({"connection.url": "http://localhost:9200"}).config
    assert config is not None
    lines: Any = lines_of(batch, config, pa.array(["orders"] * count)).texts.to_pylist()
    return [json.loads(line.split(b"\n")[1]) for line in lines], told


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"price": "?"}, f"field 'price' is not of its schema, {PRICE['name']}"),
        ({"deep": 7}, "field 'deep' is not of its schema, STRUCT"),
        ({"deep": "secret"}, "field 'deep' is not of its schema, STRUCT"),
        ({"deep": {"list": {"secret": 1}}}, "field 'deep.list' is not of its schema, ARRAY"),
        ({"deep": {"list": "BOI="}}, "field 'deep.list' is not of its schema, ARRAY"),
        ({"deep": {"list": ["BOI=", "?"]}}, f"field 'deep.list[1]' is not of its schema, {PRICE['name']}"),
        ({"deep": {"list": [[]]}}, f"field 'deep.list[0]' is not of its schema, {PRICE['name']}"),
        ({"deep": {"list": [True]}}, f"field 'deep.list[0]' is not of its schema, {PRICE['name']}"),
        ({"deep": {"map": {"secret": "?"}}}, f"field 'deep.map{{}}' is not of its schema, {PRICE['name']}"),
        ({"deep": {"map": 7}}, "field 'deep.map' is not of its schema, MAP"),
        ({"deep": {"pairs": [[1, "a", "b"]]}}, "field 'deep.pairs' is not of its schema, MAP"),
        ({"deep": {"pairs": ["1a"]}}, "field 'deep.pairs' is not of its schema, MAP"),
        ([], "the payload is not of its schema, STRUCT"),
    ],
)
def test_which_field_of_a_payload_is_not_of_its_schema(payload: Any, message: str) -> None:
    """Its path is told, and never a value or the key of a map; the documents beside it are sent."""
    good = {"n": 1, "price": "BOI=", "deep": {"list": ["BOI=", 1.5], "map": {"k": "BOI="}, "pairs": [[1, "a"]]}}
    found, told = documents_of([json.dumps(good), json.dumps(payload), json.dumps(good)])
    deep = {"list": [12.5, 1.5], "map": {"k": 12.5}, "pairs": [{"key": 1, "value": "a"}]}
    assert found == [{"n": 1, "price": 12.5, "deep": deep}] * 2
    assert told == {1: message}


def test_a_payload_as_deep_as_its_schema_does_not_fail_the_task() -> None:
    """Whether it is too deep to be followed or not."""
    schema: dict[str, Any] = dict(PRICE)
    for _ in range(240):
        schema = {"type": "array", "items": schema}
    payload = f'{"[" * 240}"BOI="{"]" * 240}'
    found, told = documents_of(['"BOI="'], PRICE)
    assert (found, told) == ([12.5], {})
    found, told = documents_of([payload], schema)
    assert len(found) + len(told) == 1
