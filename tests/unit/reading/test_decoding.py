"""What a record's bytes say."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import fastavro
import pytest

from service.reading.decoding import Decoder, as_json_text, plain
from service.registry.errors import RegistryRetriable, SchemaNotFound

SCHEMA = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}, {"name": "b", "type": "bytes"}]}


def framed(value: dict[str, Any], *, schema_id: int) -> bytes:
    """A value in Confluent's framing."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(SCHEMA), value)
    return b"\x00" + schema_id.to_bytes(4, "big") + body.getvalue()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": 1}', {"a": 1}),
        ("café \u2028".encode(), "café \u2028"),
        (b"\xff\xfe", {"base64": "//4="}),
        (b"", ""),
    ],
)
def test_bytes_are_json_text_or_base64(data: bytes, expected: object) -> None:
    """The first that fits."""
    assert plain(data) == expected


async def test_avro_is_read_by_its_schema_which_is_asked_for_once() -> None:
    """By the id in the record."""
    asked: list[int] = []

    async def schema_by_id(schema_id: int) -> str:
        asked.append(schema_id)
        return json.dumps(SCHEMA)

    decoder = Decoder(schema_by_id)
    for number in range(3):
        value = await decoder.decode(framed({"n": number, "b": b"\x01"}, schema_id=7))
        assert value == {"n": number, "b": b"\x01"}
    assert asked == [7]


async def test_without_a_registry_avro_stays_bytes_and_null_stays_null() -> None:
    """Nothing is guessed."""
    assert await Decoder().decode(None) is None
    shown = await Decoder().decode(framed({"n": 1, "b": b"\xff"}, schema_id=7))
    assert set(shown) == {"base64"}


def test_a_line_holds_bytes_and_dates_as_text() -> None:
    """One line of JSON, whatever Avro gave."""
    assert as_json_text({"b": b"\x00", "é": 1}) == '{"b": "AA==", "é": 1}'


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        '{"deep":[{"a":1,"a":1}]}',
        '{"a":NaN}',
        "-Infinity",
        '{"x":"\\ud800"}',
        '{"\\udfff":1}',
        '{"far":1e999}',
        '{"exact":0.12345678901234567890}',
        '{"small":1e-99999999999999999999}',
        "1" * 5_000,
        "[" * 100_000,
        "[" * 700 + "]" * 700,
    ],
)
def test_what_is_no_strict_json_is_shown_as_its_text(text: str) -> None:
    """Keys that stand twice, NaN, lone surrogates, nesting without end, digits that a reader would lose."""
    assert plain(text.encode()) == text
    assert json.loads(as_json_text({"value": plain(text.encode())})) == {"value": text}


@pytest.mark.parametrize("text", ["0.1", "1e3", "-0.0", "1.50", "12345678901234567890", '"\\ud83d\\ude00"', "[[[]]]"])
def test_what_python_holds_as_it_is_written_is_shown_as_json(text: str) -> None:
    """A surrogate in its pair, numbers whose value is kept."""
    assert plain(text.encode()) == json.loads(text)


async def missing(schema_id: int) -> str:
    """A registry that knows no schema."""
    raise SchemaNotFound(f"schema id {schema_id} is not in the registry")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ((42).to_bytes(8, "big"), "\x00\x00\x00\x00\x00\x00\x00*"),
        (b"\x00\xff\xff\xff\xff\xff", {"base64": "AP//////"}),
        (b"\x00abc", "\x00abc"),
    ],
)
async def test_a_zero_byte_alone_makes_no_avro(data: bytes, expected: object) -> None:
    """A long of a LongSerializer begins with one too: where the id is no schema's, the bytes are shown plainly."""
    assert await Decoder(missing).decode(data) == expected


async def test_an_unknown_schema_is_asked_for_once() -> None:
    """Not for every key of a topic."""
    asked: list[int] = []

    async def schema_by_id(schema_id: int) -> str:
        asked.append(schema_id)
        return await missing(schema_id)

    decoder = Decoder(schema_by_id)
    for number in range(3):
        await decoder.decode(number.to_bytes(8, "big"))
    assert asked == [0]


async def test_ids_that_no_registry_gives_are_not_asked_for() -> None:
    """They are numbers of 31 bits."""

    async def schema_by_id(schema_id: int) -> str:
        raise AssertionError(schema_id)

    assert await Decoder(schema_by_id).decode(b"\x00\x80\x00\x00\x00\x02") == {"base64": "AIAAAAAC"}


@pytest.mark.parametrize(
    "schema",
    [
        json.dumps(SCHEMA),
        '{"type":"array","items":"double"}',
        '{"type":"enum","name":"E","symbols":["A"]}',
        '{"type":"fixed","name":"F","size":9}',
        '"string"',
        '"null"',
        '{"type":"int","logicalType":"date"}',
        '["null","long"]',
        '{"type":"nonsense"}',
        "{",
    ],
)
@pytest.mark.parametrize(
    "body", [b"", b"\x7f", b"\xff\xff\xff", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x02\x00\x00"]
)
async def test_what_the_schema_cannot_read_is_shown_plainly(schema: str, body: bytes) -> None:
    """No body stops the reading, and none is read in part."""

    async def schema_by_id(_: int) -> str:
        return schema

    data = b"\x00\x00\x00\x00\x07" + body
    value = await Decoder(schema_by_id).decode(data)
    json.loads(as_json_text(value))
    if schema in {'"null"', "{", '{"type":"nonsense"}'} and body:
        assert value == plain(data)


async def test_a_registry_that_does_not_answer_is_an_error() -> None:
    """What it knows is not guessed at."""

    async def schema_by_id(_: int) -> str:
        raise RegistryRetriable("no schema registry answers")

    with pytest.raises(RegistryRetriable):
        await Decoder(schema_by_id).decode(framed({"n": 1, "b": b""}, schema_id=7))


def test_numbers_that_json_does_not_have_are_text() -> None:
    """Avro has them; a line is JSON all the same."""

    def refuse(word: str) -> Any:
        raise AssertionError(word)

    line = as_json_text({"a": [math.nan, {"b": math.inf}], "c": (-math.inf, b"\x00"), "d": 1.5})
    assert json.loads(line, parse_constant=refuse) == {
        "a": ["NaN", {"b": "Infinity"}],
        "c": ["-Infinity", "AA=="],
        "d": 1.5,
    }
