"""What the file sink prints of JSON with schemas, beside Kafka Connect's own: one topic, two files, line by line."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from service.embedded.running import Running
from tests.differential.test_sink_transformations import JSON, config, enveloped, field, java_sink, write
from tests.integration.sinks.sink_runs import Sinks, lines_of, wait_until
from tests.java_connect import JavaConnect
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
DATA = "org.apache.kafka.connect.data"


def decimal(scale: int) -> dict[str, Any]:
    """A schema; its values are base64 of the digits as a whole number."""
    return {"type": "bytes", "name": f"{DATA}.Decimal", "version": 1, "parameters": {"scale": str(scale)}}


def unscaled(number: int) -> str:
    """As JsonConverter writes it."""
    size = (number + (number < 0)).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


TIMESTAMP = {"type": "int64", "name": f"{DATA}.Timestamp", "version": 1}
DATE = {"type": "int32", "name": f"{DATA}.Date", "version": 1}
TIME = {"type": "int32", "name": f"{DATA}.Time", "version": 1}
INSTANTS = [(TIMESTAMP, 1_700_000_000_123), (DATE, 19_675), (TIME, 3_723_000)]
PRICE = (decimal(2), unscaled(1250))
DECIMALS = [
    (decimal(scale), unscaled(number))
    for scale, number in [
        (2, 1250), (2, -1250), (2, 0), (0, 12), (10, 0), (8, 1), (6, 1), (7, 1), (-3, 12), (2, 10**30), (3, 255),
    ]
]  # fmt: skip
DOUBLES = [1, 0, -1.5, 1.50, 100, 1e7, 12345678.9, 1e-3, 1e-4, 123e-7, 1e22, 1.7976931348623157e308, 0.1, 9999999]
WHOLE = [("int8", -7), ("int16", 300), ("int32", 12), ("int64", 2**62)]


def array_of(schema: dict[str, Any], *values: object) -> tuple[dict[str, Any], object]:
    """An array."""
    return {"type": "array", "items": schema}, list(values)


def map_of(schema: dict[str, Any], value: object) -> tuple[dict[str, Any], object]:
    """A map of one entry."""
    return {"type": "map", "keys": {"type": "string"}, "values": schema}, {"k": value}


def pairs_of(key: tuple[dict[str, Any], object], value: tuple[dict[str, Any], object]) -> tuple[dict[str, Any], object]:
    """A map whose key is no text."""
    return {"type": "map", "keys": key[0], "values": value[0]}, [[key[1], value[1]]]


def struct_of(*members: tuple[dict[str, Any], object]) -> tuple[dict[str, Any], object]:
    """A struct of such fields."""
    names = [f"f{number}" for number in range(len(members))]
    fields = [{"field": name, **schema} for name, (schema, _) in zip(names, members, strict=True)]
    values = {name: value for name, (_, value) in zip(names, members, strict=True)}
    return {"type": "struct", "fields": fields}, values


DEFAULTED = {
    "type": "struct",
    "fields": [
        {"field": "price", "optional": True, **decimal(2), "default": PRICE[1]},
        {"field": "on", "optional": True, **DATE, "default": 19_675},
        field("rate", "double", default=1),
        {"field": "gone", "optional": True, **decimal(2)},
        field("words", "array", items={"type": "string", "optional": True}),
    ],
}
SAMPLES: list[tuple[dict[str, Any], object]] = [
    *INSTANTS,
    *DECIMALS,
    *(({"type": "double"}, number) for number in DOUBLES),
    *(({"type": "float"}, number) for number in (0.1, 1, 16777216, 3.4028235e38, 1e-5)),
    *(({"type": kind}, number) for kind, number in WHOLE),
    ({"type": "int32"}, 1.0),
    ({"type": "boolean"}, True),
    ({"type": "string"}, "12.50"),
    *(array_of(schema, value) for schema, value in [*INSTANTS, PRICE]),
    *(map_of(schema, value) for schema, value in [*INSTANTS, PRICE]),
    struct_of(*INSTANTS, *DECIMALS, ({"type": "float"}, 0.1)),
    struct_of(struct_of(PRICE, INSTANTS[0]), array_of(*PRICE, PRICE[1]), map_of(*PRICE)),
    array_of(struct_of(PRICE)[0], struct_of(PRICE)[1]),
    map_of(array_of(*PRICE)[0], array_of(*PRICE)[1]),
    pairs_of(({"type": "boolean"}, True), PRICE),
    pairs_of(INSTANTS[1], ({"type": "double"}, 1)),
    pairs_of(PRICE, ({"type": "int8"}, 1)),
    (DEFAULTED, {"words": ["a", None]}),
    (DEFAULTED, {"price": unscaled(-5), "on": 0, "rate": 2.5, "gone": PRICE[1], "words": []}),
]
VALUES: list[bytes | None] = [enveloped(schema, value) for schema, value in SAMPLES]
NUMBERED = {
    b'{"schema":{"type":"bytes","name":"%s.Decimal","parameters":{"scale":"2"}},"payload":12.50}' % DATA.encode(),
}
UNFIT: list[bytes | None] = [
    enveloped({"type": "struct", "fields": [{"field": "a", "type": "int32"}]}, {}),
    enveloped({"type": "struct", "fields": [{"field": "a", "type": "int32"}]}, [1]),
    enveloped({"type": "array", "items": {"type": "string"}}, ["a", None]),
    enveloped(decimal(2), "no base64!"),
    enveloped(decimal(2), ["list"]),
]


async def test_every_type_is_printed_as_connect_prints_it(
    kafka: KafkaStack, java_connect: Running[JavaConnect], topic_name: str, tmp_path: Path
) -> None:
    """Alone, and in structs, arrays and maps; records that do not fit their schema are passed over by both."""
    values = [*VALUES, *NUMBERED, *UNFIT, enveloped({"type": "string"}, "last")]
    await write(kafka.bootstrap, topic_name, values)
    tolerant = {**JSON, "errors.tolerance": "all"}
    sinks = Sinks(kafka.bootstrap, config("ours", topic_name, tmp_path, tolerant))
    files = tmp_path / "ours", tmp_path / "java"
    async with java_sink(java_connect.server, config("java", topic_name, tmp_path, tolerant)), sinks.running():
        await wait_until(lambda: all(lines_of(file)[-1:] == [b"last"] for file in files))
    ours, java = ([line.decode() for line in lines_of(file)] for file in files)
    assert ours == java
    assert len(ours) == len(VALUES) + len(NUMBERED) + 1
