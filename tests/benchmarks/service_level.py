"""What an operator feels: latency at a low rate, memory over many records, time to start, time to stop."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.benchmarks.lines import write_lines
from tests.benchmarks.processes import Child, headrace
from tests.benchmarks.throughput import AVRO, Field
from tests.benchmarks.watching import watch

RATE_PER_SECOND = 100
LATENCY_SECONDS = 30.0
WARM_UP_SECONDS = 5.0
TIMED_SCHEMA = {
    "type": "record",
    "name": "Timed",
    "fields": [{"name": "sent_at", "type": "double"}, {"name": "number", "type": "long"}],
}


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds from the line being in the file to the record being in a consumer's hands."""

    p50_seconds: float
    p99_seconds: float
    records: int


async def latency(field: Field, run: str) -> Latency:
    """100 records a second appended to a file, each with its time; a ``read_committed`` consumer takes the other."""
    name = f"latency-{run}"
    file = field.folder / f"{name}.jsonl"
    file.write_bytes(b"")
    properties = {
        "connector.class": "FileStreamSource",
        "file": str(file),
        "poll.interval.ms": "50",
        "value.converter": "json",
        "contract.schema": json.dumps(TIMED_SCHEMA),
    }
    files = str(field.worker(name)), str(field.connector(name, properties))
    with headrace("standalone", *files, log=field.folder / f"{name}.log"):
        await _append(file, seconds=1.0)
        await watch(field.servers.bootstrap, name, records=1)
        async with asyncio.TaskGroup() as group:
            group.create_task(_append(file, seconds=LATENCY_SECONDS))
            consuming = group.create_task(delays_of(field.servers.bootstrap, name, seconds=LATENCY_SECONDS))
    delays = sorted(consuming.result())
    return Latency(quantile(delays, 0.5), quantile(delays, 0.99), len(delays))


async def _append(file: Path, *, seconds: float) -> None:
    until = time.monotonic() + seconds
    number = 0
    with file.open("ab", buffering=0) as out:
        while time.monotonic() < until:
            out.write(json.dumps({"sent_at": time.monotonic(), "number": number}).encode() + b"\n")
            number += 1
            await asyncio.sleep(1 / RATE_PER_SECOND)


def _sent_at(document: Any) -> float:
    return float(document["sent_at"])


async def delays_of(
    bootstrap: str, topic: str, *, seconds: float, sent_at: Callable[[Any], float] = _sent_at
) -> list[float]:
    """Seconds from ``sent_at`` to a consumer's hands, of each record that comes meanwhile, after a warm-up."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
    await consumer.start()
    delays: list[float] = []
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_end(partition)
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            for records in (await consumer.getmany(timeout_ms=20)).values():
                now = time.monotonic()
                if now > begin + WARM_UP_SECONDS:
                    delays.extend(now - sent_at(json.loads(record.value)) for record in records)
    finally:
        await consumer.stop()
    return delays


def quantile(values: Sequence[float], share: float) -> float:
    """Of sorted values."""
    return values[min(len(values) - 1, int(len(values) * share))]


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the Python process and of the Spark JVM over a long run."""

    python_early_bytes: int
    """After a tenth of the records."""
    python_late_bytes: int
    """At the end."""
    python_peak_bytes: int
    jvm_peak_bytes: int
    jvm_heap_bytes_max: int
    """What its heap may grow to."""
    records: int


async def memory(field: Field, run: str, *, records: int) -> Memory:
    """A file of ``records`` lines through a worker whose memory is looked at twice a second."""
    name = f"memory-{run}"
    file = write_lines(field.folder / "many-lines.jsonl", count=records)
    properties = {"connector.class": "FileStreamSource", "file": str(file), **AVRO}
    files = str(field.worker(name)), str(field.connector(name, properties))
    with headrace("standalone", *files, log=field.folder / f"{name}.log") as child:
        looks = _Looks([], [])
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(_look(child, looks))
            await watch(field.servers.bootstrap, name, records=records // 10)
            early_bytes = child.memory_bytes()
            await watch(field.servers.bootstrap, name, records=records)
            late_bytes, heap_bytes_max = child.memory_bytes(), child.jvm_heap_bytes_max()
            looking.cancel()
    return Memory(early_bytes, late_bytes, max(looks.python), max(looks.jvm), heap_bytes_max, records)


@dataclass(frozen=True, slots=True)
class _Looks:
    python: list[int]
    jvm: list[int]


async def _look(child: Child, looks: _Looks) -> None:
    while True:
        looks.python.append(child.memory_bytes())
        looks.jvm.append(child.jvm_memory_bytes())
        await asyncio.sleep(0.5)


@dataclass(frozen=True, slots=True)
class StartAndStop:
    """Seconds from the process to its first readable record, and from SIGTERM under load to the end."""

    first_record_seconds: float
    stop_seconds: float
    exit_code: int
    records: int
    """Readable in the topic after a second run: all of them, once."""


async def start_and_stop(field: Field, run: str, *, records: int) -> StartAndStop:
    """Start on a large file, stop in the middle of it, start again, and count."""
    name = f"stop-{run}"
    file = write_lines(field.folder / "lines.jsonl", count=records)
    properties = {"connector.class": "FileStreamSource", "file": str(file), **AVRO}
    files = str(field.worker(name)), str(field.connector(name, properties))
    log = field.folder / f"{name}.log"
    with headrace("standalone", *files, log=log) as child:
        passage = await watch(field.servers.bootstrap, name, records=1)
        first_record_seconds = passage.first_at - child.started_at
        await watch(field.servers.bootstrap, name, records=records // 10)
        exit_code, stop_seconds = await asyncio.to_thread(child.stop)
    with headrace("standalone", *files, "--until-idle", "2", log=log) as child:
        await asyncio.to_thread(child.process.wait, 300)
    found = await count_distinct(field.servers.bootstrap, name)
    return StartAndStop(first_record_seconds, stop_seconds, exit_code, found)


async def count_distinct(
    bootstrap: str, topic: str, *, part: Literal["key", "value"] = "value", at_least: int = 0
) -> int:
    """Readable records, once there are ``at_least`` so many; raises when two of them are equal in this part."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        group_id=None,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    seen: set[bytes] = set()
    count = 0
    try:
        partition = TopicPartition(topic, 0)
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end or count < at_least:
            for records in (await consumer.getmany(timeout_ms=200, max_records=20_000)).values():
                count += len(records)
                seen.update(getattr(record, part) for record in records)
    finally:
        await consumer.stop()
    if len(seen) != count:
        message = f"{count - len(seen)} records are in the topic more than once"
        raise AssertionError(message)
    return count
