"""Versions of documents out of a header: what its converter has read, as Confluent's connector has it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from service.sinks.batch import Form, SinkBatch, ValueType
from service.sinks.elasticsearch.config import ElasticsearchSinkConfig
from service.sinks.elasticsearch.documents import lines_of
from service.sinks.headers import HeaderReader, last_of
from spark_batch.plan import ConverterKind, ConverterSpec
from spark_batch.transforms.records import HEADERS

SIMPLE, TEXT = HeaderReader(), HeaderReader(ConverterSpec(ConverterKind.STRING))
BYTES, PLAIN = HeaderReader(ConverterSpec(ConverterKind.BYTES)), HeaderReader(ConverterSpec(ConverterKind.JSON))
ENVELOPES = HeaderReader(ConverterSpec(ConverterKind.JSON, is_schema_enveloped=True))
CONFIG = {"connection.url": "http://localhost:9200", "external.version.header": "v", "schema.ignore": "true"}


def version_of(headers: list[tuple[str, bytes | None]], reader: HeaderReader) -> int | None:
    """Of one record; None where it is refused."""
    columns: dict[str, Any] = {
        "topic": pa.array(["orders"]),
        "original_topic": pa.array(["orders"]),
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([3], pa.int64()),
        "timestamp": pa.array([0], pa.int64()),
        "key": pa.array(["a"]),
        "value": pa.array(['{"n":1}']),
        "headers": pa.array([headers], HEADERS),
    }
    refused: list[Any] = []
    batch = SinkBatch(
        pa.table(columns),
        ValueType(Form.TEXT),
        ValueType(Form.JSON),
        lambda *told: refused.append(told),
        reader,
    )
    config = ElasticsearchSinkConfig.parse(CONFIG).config
    assert config is not None
    lines = lines_of(batch, config, pa.array(["orders"]))
    found = [re.search(r'"version":(\d+)', line) for line in map(str, lines.texts.to_pylist())]
    assert bool(refused) == (not found)
    return int(found[0][1]) if found and found[0] else None


@pytest.mark.parametrize(
    ("reader", "header", "version"),
    [
        (SIMPLE, b"009", 9),
        (SIMPLE, b'"9"', 9),
        (SIMPLE, b"1.5", None),
        (SIMPLE, b"-1", None),
        (SIMPLE, b"true", None),
        (SIMPLE, b"[9]", None),
        (SIMPLE, b"9223372036854775807", 2**63 - 1),
        (SIMPLE, b"9223372036854775808", None),
        (SIMPLE, None, None),
        (TEXT, b"9", 9),
        (TEXT, b"+9", 9),
        (TEXT, b"nine", None),
        (BYTES, b"9", 9),
        (PLAIN, b"9", 9),
        (PLAIN, b'"9"', 9),
        (PLAIN, b"null", None),
        (ENVELOPES, b'{"schema":{"type":"int64","optional":false},"payload":9}', 9),
        (ENVELOPES, b'{"schema":{"type":"string","optional":false},"payload":"9"}', 9),
        (ENVELOPES, b'{"schema":{"type":"double","optional":false},"payload":9.0}', None),
        (
            ENVELOPES,
            b'{"schema":{"type":"int64","name":"org.apache.kafka.connect.data.Timestamp","version":1},"payload":9}',
            None,
        ),
    ],
)
def test_the_version_is_what_the_converter_has_read(reader: HeaderReader, header: bytes, version: int | None) -> None:
    """The last header of the name counts; one that is no number of Java's ``long`` refuses the record."""
    assert version_of([("v", b"5"), ("v", header)] if reader is not ENVELOPES else [("v", header)], reader) == version


def test_a_record_without_the_header_is_refused() -> None:
    """It has no version."""
    assert version_of([("w", b"9")], SIMPLE) is None


@dataclass(frozen=True, slots=True)
class NotingReader(HeaderReader):
    """Notes which headers it is given to read."""

    given: list[tuple[str, bytes | None]] = field(default_factory=list)

    def read(self, headers: pa.ChunkedArray[Any]) -> pa.Array[Any]:
        """As SimpleHeaderConverter."""
        flat: Any = pc.list_flatten(headers)
        self.given.extend((each["name"], each["value"]) for each in flat.to_pylist())
        return HeaderReader.read(self, headers)


LONG_LIST = b"[" + b"1," * 200_000 + b"1]"
"""A text that takes SimpleHeaderConverter seconds."""


def test_no_header_but_the_last_of_the_name_is_read() -> None:
    """A header that nobody asks for may be of any length."""
    reader = NotingReader()
    assert version_of([("w", LONG_LIST), ("v", LONG_LIST), ("v", b"9"), ("x", LONG_LIST)], reader) == 9
    assert reader.given == [("v", b"9")]


def test_a_header_too_long_for_a_version_is_not_read() -> None:
    """Its record is refused; the header of the name before it is not taken in its stead."""
    reader = NotingReader()
    assert version_of([("v", b"9"), ("v", LONG_LIST)], reader) is None
    assert reader.given == []


def test_versions_of_a_part_of_a_batch() -> None:
    """Records without headers, with null headers and with many are told apart, also in a slice and in two chunks."""
    headers: list[Any] = [
        None,
        [("v", b"1")],
        [],
        [("w", b"7")],
        [("v", b"3"), ("w", b"7"), ("v", b"4")],
        [("v", None)],
    ]
    column = pa.chunked_array([pa.array(headers, HEADERS), pa.array(headers[::-1], HEADERS)]).slice(1, 9)
    found: Any = last_of(column, "v", bytes_max=10).to_pylist()
    assert [[each["value"] for each in own] for own in found] == [
        [b"1"], [], [], [b"4"], [None], [None], [b"4"], [], [],
    ]  # fmt: skip
