"""Topics into a file and into OpenSearch, seen from outside, each beside a peer.

A worker runs as users run it. How far it is says the target: the file's size, the server's own count.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import aiohttp
import click
import pyarrow as pa

from service.embedded.search import embedded_search
from service.kafka.client import KafkaSettings
from service.kafka.producer import IdempotentWriter
from service.kafka.records import TopicRecords
from tests.benchmarks.lines import line
from tests.benchmarks.peer import connect_file_sink
from tests.benchmarks.processes import headrace, write_properties
from tests.benchmarks.rows import Row
from tests.benchmarks.throughput import Field
from tests.benchmarks.watching import POLL_SECONDS, WAIT_SECONDS_MAX

BULK_RECORDS = 2_000
"""Of one request, of the sink (its default ``batch.size``) and of the bare client alike."""
BULKS_IN_FLIGHT = 5
FILL_RECORDS = 20_000
Count = Callable[[], Awaitable[int]]


async def measure_sinks(field: Field, *, records: int, rounds: int) -> list[Row]:
    """All figures; ``records`` of them in each topic."""
    lines = f"bench-lines-{time.time_ns()}"
    await fill(field.servers.bootstrap, lines, records=records)
    rows = await measure_file(field, lines, records=records, rounds=rounds)
    async with embedded_search(data_dir=field.folder / "search") as server:
        rows += await measure_search(field, server.address, lines, records=records, rounds=rounds)
    return rows


async def fill(bootstrap: str, topic: str, *, records: int) -> None:
    """A topic of texts."""
    writer = IdempotentWriter(KafkaSettings(bootstrap=bootstrap), last_topic="")
    await writer.start()
    try:
        for begin in range(0, records, FILL_RECORDS):
            values = [line(number) for number in range(begin, min(begin + FILL_RECORDS, records))]
            await writer.commit([TopicRecords(topic, pa.array(values, pa.binary()), None)])
    finally:
        await writer.stop()


async def measure_file(field: Field, topic: str, *, records: int, rounds: int) -> list[Row]:
    """Texts into a file, beside Kafka Connect's own sink, by turns."""
    size_bytes = sum(len(line(number)) + 1 for number in range(records))
    rates: dict[str, list[float]] = {"Kafka Connect": [], "headrace": []}
    for number in range(rounds):
        for name, seen in rates.items():
            file = field.folder / f"{name.split()[0]}-{number}.txt"

            async def count(file: Path = file) -> int:
                written = file.stat().st_size if file.exists() else 0
                return written * records // size_bytes

            if name == "headrace":
                found = await run_sink(
                    field, f"file-{number}", {**_texts(topic), "file": str(file)}, count, records=records
                )
            else:
                with connect_file_sink(
                    field.folder / f"connect-{number}", bootstrap=field.servers.bootstrap, file=file, topic=topic
                ):
                    found = await watched(records, count)
            seen.append(found)
            click.echo(f"  topic → file, {name}: {found:,.0f} records/s")
    ours, peer = statistics.median(rates["headrace"]), statistics.median(rates["Kafka Connect"])
    what = f"topic → file, {ours:,.0f}/s ÷ Kafka Connect's FileStreamSink, {peer:,.0f}/s (medians of {rounds})"
    return [Row(what, f"{ours / peer:.2f}", "≥ 2.0", ours / peer >= 2)]


def _texts(topic: str) -> dict[str, str]:
    return {
        "connector.class": "FileStreamSink",
        "topics": topic,
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }


async def measure_search(field: Field, url: str, topic: str, *, records: int, rounds: int) -> list[Row]:
    """Documents as they are in the topic, beside a client that sends the same bodies and reads no answer."""
    shares: list[float] = []
    rates: list[float] = []
    for number in range(rounds):
        bare = await bare_rate(url, f"bare-{number}", topic, records=records)
        index = f"sink-{number}"
        properties = {
            "connector.class": "ElasticsearchSink",
            "connection.url": url,
            "topics": topic,
            "key.ignore": "true",
            "schema.ignore": "true",
            # The bare client waits as long; and what is sent again would be counted again.
            "read.timeout.ms": "300000",
            "transforms": "index",
            "transforms.index.type": "RegexRouter",
            "transforms.index.regex": ".*",
            "transforms.index.replacement": index,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        }
        async with aiohttp.ClientSession(url) as session:

            async def count(session: aiohttp.ClientSession = session, index: str = index) -> int:
                async with session.get(f"/{index}/_stats/indexing") as answer:
                    told = await answer.json() if answer.ok else {}
                found = told.get("_all", {}).get("primaries", {}).get("indexing", {}).get("index_total", 0)
                return int(found)

            seen = await run_sink(field, f"search-{number}", properties, count, records=records)
        rates.append(seen)
        shares.append(seen / bare)
        click.echo(f"  topic → OpenSearch: {rates[-1]:,.0f}/s, the bare client {bare:,.0f}/s")
    share = statistics.median(shares)
    what = f"topic → OpenSearch, {statistics.median(rates):,.0f}/s ÷ a bare client with the same bodies"
    return [Row(f"{what} (median of {rounds})", f"{share:.2f}", "≥ 0.9", share >= 0.9)]


async def bare_rate(url: str, index: str, topic: str, *, records: int) -> float:
    """Documents a second, of bodies that are made beforehand."""
    bodies = [
        b"".join(
            b'{"index":{"_index":"%s","_id":"%s+0+%d"}}\n%s\n' % (index.encode(), topic.encode(), number, line(number))
            for number in range(begin, min(begin + BULK_RECORDS, records))
        )
        for begin in range(0, records, BULK_RECORDS)
    ]
    left = iter(bodies)
    async with aiohttp.ClientSession(url, headers={"Content-Type": "application/x-ndjson"}) as session:

        async def send() -> None:
            for body in left:
                async with session.post("/_bulk", data=body) as answer:
                    assert b'"errors":false' in await answer.read()

        await asyncio.wait_for(session.put(f"/{index}"), 60)
        began_at = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(BULKS_IN_FLIGHT):
                group.create_task(send())
        return records / (time.perf_counter() - began_at)


async def run_sink(field: Field, name: str, properties: Mapping[str, str], count: Count, *, records: int) -> float:
    """A worker with one sink until its target has all records; as ``watched``."""
    own = f"bench-sink-{name}-{time.time_ns()}"
    file = write_properties(field.folder / f"{own}.properties", {"name": own, "tasks.max": "1", **properties})
    worker = field.worker(own, offset_flush_interval_ms="1000")
    with headrace("standalone", str(worker), str(file), log=field.folder / f"{own}.log"):
        return await watched(records, count)


async def watched(records: int, count: Count) -> float:
    """Records a second, from the first look at the target that saw any to the one that saw all."""
    first: tuple[int, float] | None = None
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while True:
            found, now = await count(), time.monotonic()
            if found and first is None:
                first = (found, now)
            elif first is not None and found >= records:
                return (found - first[0]) / (now - first[1])
            await asyncio.sleep(POLL_SECONDS)
