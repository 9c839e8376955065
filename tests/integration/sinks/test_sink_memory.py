"""What a sink holds while it reads a long topic, in bytes: no more at the end than at the beginning."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from tests.integration.sinks.sink_runs import Sinks, produce, sink_properties, wait_until
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration
MEBIBYTE = 1024 * 1024
RECORD_BYTES = 4096
RECORDS = 2_000
"""8 MiB at a time, of which nothing is to be left."""
TIMES = 4


@contextmanager
def traced_without_collection() -> Iterator[None]:
    """Python's and numpy's memory is counted; what is let go of goes at once, or stays, a cycle of objects above all.

    In a worker the collector comes by in the end. It is called by the number of objects, and until then a cycle
    around the bytes of a fetch costs megabytes.
    """
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()
        gc.enable()


def held_bytes() -> int:
    """Of Python, numpy and Arrow, in this process."""
    return tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()


async def test_nothing_of_a_fetch_is_left(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """What was read after the beginning is gone at the end."""
    file = tmp_path / "out.txt"
    overrides = {"max__poll__records": "100", "max__partition__fetch__bytes": "65536"}
    sinks = Sinks(
        kafka.bootstrap,
        sink_properties(
            topic_name, topic_name, file, **{f"consumer__override__{key}": value for key, value in overrides.items()}
        ),
    )

    async def read_more(time: int) -> int:
        """Let the sink write so many records more; what is held then."""
        values = [b"%0*d" % (RECORD_BYTES - 1, number) for number in range(RECORDS)]
        await produce(kafka.bootstrap, topic_name, values)
        del values
        await wait_until(lambda: file.exists() and file.stat().st_size == time * RECORDS * RECORD_BYTES)
        return held_bytes()

    with traced_without_collection():
        async with sinks.running():
            held = [await read_more(time) for time in range(1, TIMES + 1)]
    assert held[-1] - held[0] < 2 * MEBIBYTE, held
