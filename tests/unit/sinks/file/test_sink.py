"""``FileStreamSink`` and records that are not of their schema: refused, and the others written once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from metrics.events import discard
from service.sinks.contract import SinkContext
from service.sinks.converters import BytesReader, EnvelopeReader
from service.sinks.decoding import KEY_STAGE, VALUE_STAGE, Decoding, SideReader
from service.sinks.file.sink import FileStreamSink, FileStreamSinkConfig
from tests.unit.sinks.fake_library import polled

PRICE = b'{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"}}'


async def test_a_record_that_is_not_of_its_schema_is_refused_alone(tmp_path: Path) -> None:
    """Put again with others behind it, what stands in the file is passed over and it is refused again."""
    refused: list[tuple[int, str, str]] = []
    payloads = [b'"BOI="', b'"?"', b'"AA=="', b'"AQ=="']
    table = polled([b'{"schema":%s,"payload":%s}' % (PRICE, payload) for payload in payloads])
    decoding = Decoding(
        SideReader(BytesReader(), "K", KEY_STAGE), SideReader(EnvelopeReader(), "V", VALUE_STAGE), "Sink"
    )
    file = tmp_path / "out.txt"
    sink = FileStreamSink(FileStreamSinkConfig.model_validate({"file": str(file)}))
    await sink.start(SinkContext("sink", 0, SystemClock(), discard, shared_http()))
    await sink.open({("lines", 0): None})
    for count in (3, 4):
        records: pa.Table = table.slice(0, count)
        decoded = await decoding.decode(
            records, refuse=lambda each: refused.append((each.row, each.reason, each.message))
        )
        [batch] = decoded.batches
        await sink.put(batch)
    await sink.stop()
    assert file.read_text() == "12.50\n0.00\n0.01\n"
    message = "the payload is not of its schema, org.apache.kafka.connect.data.Decimal"
    assert refused == [(1, "wrong_type", message)] * 2
