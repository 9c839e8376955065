"""What a record's bytes say."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from service.reading.decoding import Decoder, as_json_text, plain

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
