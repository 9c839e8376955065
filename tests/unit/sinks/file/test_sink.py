"""``FileStreamSink`` and records that are not of their schema: refused, and the others written once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from metrics.events import discard
from service.sinks.contract import SinkContext
from service.sinks.converters import BytesReader, ColumnReader, EnvelopeReader, TextReader
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


async def test_a_record_that_failed_the_task_is_written_by_the_config_that_takes_it(tmp_path: Path) -> None:
    """Once, behind what stands in the file already; what has its dead letter is not written any more."""
    file = tmp_path / "out.txt"
    payloads = [b'"BOI="', b'"?"', b'"AA=="', b'"!"', b'"AQ=="']
    typed, plain = [b'{"schema":%s,"payload":%s}' % (PRICE, payload) for payload in payloads], payloads

    async def run(reader: ColumnReader, values: Sequence[bytes], begin: int, committed: int | None = None) -> list[int]:
        refused: list[int] = []
        decoding = Decoding(SideReader(BytesReader(), "K", KEY_STAGE), SideReader(reader, "V", VALUE_STAGE), "Sink")
        records: pa.Table = polled(list(values)).slice(begin)
        decoded = await decoding.decode(records, refuse=lambda each: refused.append(begin + each.row))
        [batch] = decoded.batches
        sink = FileStreamSink(FileStreamSinkConfig.model_validate({"file": str(file)}))
        await sink.start(SinkContext("sink", 0, SystemClock(), discard, shared_http()))
        await sink.open({("lines", 0): begin})
        await sink.put(batch)
        if committed is not None:
            await sink.committed({("lines", 0): committed})
        await sink.stop()
        return refused

    for _ in range(2):
        assert await run(EnvelopeReader(), typed, 0) == [1, 3]
    assert await run(EnvelopeReader(), typed, 1, committed=2) == [1, 3]
    for _ in range(2):
        assert await run(TextReader(), plain, 2) == []
    assert file.read_text() == '12.50\n0.00\n0.01\n"!"\n'
