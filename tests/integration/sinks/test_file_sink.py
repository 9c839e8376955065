"""FileStreamSink on the real broker: every record once in the file, whatever happens to its tasks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.sinks.sink_runs import Sinks, lines_of, make_topic, produce, sink_properties, wait_until
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


async def test_lines_come_out_as_they_went_in(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Any text, empty and long lines, tombstones as Connect prints them; in order."""
    file = tmp_path / "out.txt"
    values: list[bytes | None] = [
        b"plain", b"", "ä€🙂 \u2028 and \u0085".encode(), b"with\rCR", b"x" * 300_000, None, b"last",
    ]  # fmt: skip
    await produce(kafka.bootstrap, topic_name, values)
    sinks = Sinks(kafka.bootstrap, sink_properties(topic_name, topic_name, file))
    async with sinks.running():
        await wait_until(lambda: len(lines_of(file)) == len(values))
    assert lines_of(file) == [b"null" if value is None else value for value in values]
