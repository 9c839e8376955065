"""Kafka at a tenth of the rate at which a listener's source talks, for a while, then healthy again.

The broker itself is slow: a quota on the bytes that are produced makes it hold back whoever produces more
(https://kafka.apache.org/documentation/#design_quotas). One source waits, as any HTTP server does whose client does not
read; X does not: it cuts the connection, and what it held is lost there.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer

from service.embedded.jars import class_path, java_program
from service.simulators.x import XSimulator
from service.simulators.x_settings import STREAM_PATH, Limits, XSettings
from tests.benchmarks.processes import Child, headrace
from tests.benchmarks.rows import Row
from tests.benchmarks.service_level import TIMED_SCHEMA
from tests.benchmarks.streams import talking
from tests.benchmarks.throughput import Field, run_name

SLOWER_BY = 10
LEAD_SECONDS = 10.0
"""At full speed before Kafka becomes slow."""
START_SECONDS = 60.0
"""For Spark to start; the lines go on for as long beyond the rest. Posts end when Kafka is well again."""
LINES_PER_SECOND = 5_000
LINE_BYTES = 60
POSTS_PER_SECOND = 50
POST_BYTES = 20_000
STILL_SECONDS_MAX = 120.0
"""So long without a new record the rest is given up: recovery of X begins up to a minute after a cut."""
_LOOK_SECONDS = 0.25
_COMMAND_SECONDS_MAX = 60.0
_NARROW = {"queue.records.max": "5000", "queue.bytes.max": "8388608", "producer.override.compression.type": "none"}
"""So that the queue is full in seconds, and bytes on the wire are those of the records."""
_POST = {
    "type": "record",
    "name": "Post",
    "fields": [
        {
            "name": "data",
            "type": {
                "type": "record",
                "name": "Data",
                "fields": [{"name": "id", "type": "string"}, {"name": "text", "type": "string"}],
            },
        }
    ],
}


@dataclass(slots=True)
class Ordeal:
    """What came of one listener."""

    said: int = 0
    """Messages of the source."""
    found: set[Any] = field(default_factory=set)
    """Of these, what could be read at the end."""
    doubles: int = 0
    gaps: int = 0
    connections: int = 0
    is_over: bool = False
    """Whether Kafka has been slow, and is well again."""
    slow_share: float = 0.0
    """Records that could be read while Kafka was slow, of what was said meanwhile."""
    memory_before_bytes: int = 0
    memory_peak_bytes: int = 0

    @property
    def lost(self) -> int:
        """Messages that are nowhere."""
        return self.said - len(self.found)

    @property
    def growth_bytes(self) -> int:
        """Of the worker's Python process, at its peak."""
        return self.memory_peak_bytes - self.memory_before_bytes


async def of_lines(area: Field, run: str, *, seconds: float) -> Ordeal:
    """An endless body of JSON lines, whose server waits for whoever does not read."""
    name, ordeal = f"slow-lines-{run}", Ordeal(said=int(LINES_PER_SECOND * (START_SECONDS + LEAD_SECONDS + seconds)))
    with talking(rate=LINES_PER_SECOND, count=ordeal.said) as (url, connections):
        own = {"connector.class": "NdjsonStreamSource", "stream.url": url, "contract.schema": json.dumps(TIMED_SCHEMA)}
        async with _reading(area, name, ordeal, lambda record: json.loads(record.value)["number"]):
            quota = LINES_PER_SECOND * LINE_BYTES // SLOWER_BY
            await _endure(area, name, own, ordeal, seconds=seconds, quota=quota, rate=LINES_PER_SECOND)
        ordeal.connections = connections.value
    return ordeal


async def of_x(area: Field, run: str, *, seconds: float) -> Ordeal:
    """Posts of X, which cuts a client that does not read; the search of recent posts brings what was lost there."""
    name, ordeal = f"slow-x-{run}", Ordeal()
    async with XSimulator(XSettings(limits=Limits(search=450))) as x, asyncio.TaskGroup() as group:
        own = {
            "connector.class": "XStreamSource",
            "x.base.url": x.url,
            "x.bearer.token": x.settings.bearer_token,
            "x.keywords": "kafka",
            "contract.schema": json.dumps(_POST),
        }
        group.create_task(_post(x, ordeal))
        async with _reading(area, name, ordeal, lambda record: record.key):
            quota = POSTS_PER_SECOND * POST_BYTES // SLOWER_BY
            await _endure(area, name, own, ordeal, seconds=seconds, quota=quota, rate=POSTS_PER_SECOND)
        ordeal.connections = sum(request.path == STREAM_PATH for request in x.requests)
    return ordeal


async def _post(x: XSimulator, ordeal: Ordeal) -> None:
    await x.wait_for_connections(1)
    begin = time.monotonic()
    while not ordeal.is_over:
        while ordeal.said < (time.monotonic() - begin) * POSTS_PER_SECOND:
            x.post(f"kafka {ordeal.said} ".ljust(POST_BYTES, "x"))
            ordeal.said += 1
        await asyncio.sleep(1 / POSTS_PER_SECOND)


async def _endure(
    area: Field, name: str, own: Mapping[str, str], ordeal: Ordeal, *, seconds: float, quota: int, rate: int
) -> None:
    """A worker over a broker that is well, slow, and well again; until all is there, or no more comes."""
    log = area.folder / f"{name}.log"
    properties = {**own, **_NARROW, "value.converter": "json"}
    with headrace("standalone", str(area.worker(name)), str(area.connector(name, properties)), log=log) as child:
        await _until(lambda: bool(ordeal.found), child, ordeal, seconds_max=STILL_SECONDS_MAX)
        await _until(lambda: False, child, ordeal, seconds_max=LEAD_SECONDS)
        ordeal.memory_before_bytes = ordeal.memory_peak_bytes
        await asyncio.to_thread(_limit, area.servers.bootstrap, "--add-config", f"producer_byte_rate={quota}")
        before = len(ordeal.found)
        await _until(lambda: False, child, ordeal, seconds_max=seconds)
        ordeal.slow_share = (len(ordeal.found) - before) / (seconds * rate)
        await asyncio.to_thread(_limit, area.servers.bootstrap, "--delete-config", "producer_byte_rate")
        ordeal.is_over = True
        last, last_at = len(ordeal.found), time.monotonic()
        while len(ordeal.found) < ordeal.said and time.monotonic() < last_at + STILL_SECONDS_MAX:
            await _until(lambda: False, child, ordeal, seconds_max=1.0)
            if len(ordeal.found) > last:
                last, last_at = len(ordeal.found), time.monotonic()
    ordeal.gaps = log.read_text("utf-8", "replace").count("source_gap")


async def _until(is_so: Callable[[], bool], child: Child, ordeal: Ordeal, *, seconds_max: float) -> None:
    """Look at its memory meanwhile."""
    ends_at = time.monotonic() + seconds_max
    while not is_so() and time.monotonic() < ends_at:
        ordeal.memory_peak_bytes = max(ordeal.memory_peak_bytes, child.memory_bytes())
        await asyncio.sleep(_LOOK_SECONDS)


@asynccontextmanager
async def _reading(area: Field, topic: str, ordeal: Ordeal, known_by: Callable[[Any], Any]) -> AsyncIterator[None]:
    """Read what is committed, beside all else."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=area.servers.bootstrap,
        isolation_level="read_committed",
        group_id=None,
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
    )

    async def read() -> None:
        async for record in consumer:
            known = known_by(record)
            ordeal.doubles += known in ordeal.found
            ordeal.found.add(known)

    await consumer.start()
    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            yield
            reading.cancel()
    finally:
        await consumer.stop()


def _limit(bootstrap: str, how: str, what: str) -> None:
    """Change the quota of every client, by Kafka's own program."""
    program = [str(java_program()), "-Xmx128m", "-cp", class_path("kafka"), "kafka.admin.ConfigCommand"]
    clients = ["--alter", "--entity-type", "clients", "--entity-default"]
    subprocess.run(
        [*program, "--bootstrap-server", bootstrap, *clients, how, what],
        check=True,
        capture_output=True,
        timeout=_COMMAND_SECONDS_MAX,
    )


async def measure_slow_kafka(field: Field, *, seconds: float) -> list[Row]:
    """Listeners whose Kafka takes a tenth of what they hear, for so long, and is well again."""
    rows = []
    for what, measure in (("NDJSON", of_lines), ("X", of_x)):
        seen = await measure(field, run_name(0), seconds=seconds)
        growth = seen.growth_bytes / 2**20
        told = f"{seen.lost:,} of {seen.said:,} lost, {seen.doubles} twice, {seen.gaps} gaps told"
        rows += [
            Row(
                f"{what}, Kafka slow for {seconds:.0f} s (took {seen.slow_share:.0%} meanwhile), "
                f"{seen.connections} connections",
                told,
                "nothing lost or the gap told, nothing twice",
                not seen.doubles and (not seen.lost or seen.gaps > 0),
            ),
            Row(f"{what}, growth of the Python process at its peak", f"{growth:.0f} MiB", "≤ 150 MiB", growth <= 150),
        ]
    return rows
