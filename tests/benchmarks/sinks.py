"""Topics into a file and into OpenSearch, seen from outside, each beside a peer.

A worker runs as users run it. How far it is says the target: the file's size, the server's own count.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from http import HTTPStatus
from pathlib import Path

import aiohttp
import click

from service.embedded.search import embedded_search
from tests.benchmarks.lines import line
from tests.benchmarks.peer import connect_file_sink
from tests.benchmarks.rows import Row
from tests.benchmarks.running_sinks import run_sink, watched
from tests.benchmarks.sink_service import fill, measure_latency, measure_upserts
from tests.benchmarks.throughput import Field
from tests.benchmarks.watching import Passage, processor_seconds

BULK_RECORDS = 2_000
"""Of one request, of the sink (its default ``batch.size``) and of the bare client alike."""
BULKS_IN_FLIGHT = 5
REJECTED_WAIT_SECONDS = 0.1
"""Until the bare client sends again what a busy server has not taken; counted in its time, as it is in the sink's."""


async def measure_sinks(field: Field, *, records: int, rounds: int, latency_records: int) -> list[Row]:
    """All figures; ``records`` of them in each topic."""
    lines = f"bench-lines-{time.time_ns()}"
    await fill(field.servers.bootstrap, lines, line, records=records)
    rows = await measure_file(field, lines, records=records, rounds=rounds)
    async with embedded_search(data_dir=field.folder / "search") as server:
        rows += await measure_search(field, server.address, lines, records=records, rounds=rounds)
        rows += await measure_latency(field, server.address, records=latency_records)
    rows += await measure_upserts(field, records=records)
    return rows


async def measure_file(field: Field, topic: str, *, records: int, rounds: int) -> list[Row]:
    """Texts into a file, beside Kafka Connect's own sink, by turns."""
    size_bytes = sum(len(line(number)) + 1 for number in range(records))
    passages: dict[str, list[Passage]] = {"Kafka Connect": [], "headrace": []}
    for number in range(rounds):
        for name, seen in passages.items():
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
                ) as child:
                    found = await watched(records, count, processor_seconds({"JVM": child.pid}))
            demand_lines(file, size_bytes=size_bytes, name=name)
            file.unlink()
            seen.append(found)
            cost = sum(found.cpu_micros_a_record.values())
            click.echo(
                f"  topic → file, {name}: {found.records_per_second:,.0f}/s, {cost:.1f} µs of processor time each"
            )
    rates = {name: statistics.median(each.records_per_second for each in runs) for name, runs in passages.items()}
    costs = {
        name: statistics.median(sum(each.cpu_micros_a_record.values()) for each in runs)
        for name, runs in passages.items()
    }
    ours, peer = rates["headrace"], rates["Kafka Connect"]
    what = f"topic → file, {ours:,.0f}/s ÷ Kafka Connect's FileStreamSink, {peer:,.0f}/s (medians of {rounds})"
    told = f"{costs['headrace']:.1f} µs, Kafka Connect's {costs['Kafka Connect']:.1f} µs"
    return [
        Row(what, f"{ours / peer:.2f}", "≥ 2.0", ours / peer >= 2),
        Row("topic → file: processor time a record, without the broker's", told, "", is_reached=None),
    ]


def demand_lines(file: Path, *, size_bytes: int, name: str) -> None:
    """Raise RuntimeError where the file is not the topic's texts, each once and in order."""
    if file.stat().st_size != size_bytes:
        raise RuntimeError(f"{name} has written {file.stat().st_size:,} bytes, and {size_bytes:,} were to be")
    with file.open("rb") as written:
        for number, found in enumerate(written):
            if found[:-1] != line(number):
                raise RuntimeError(f"{name} has written as line {number} what is not record {number}")


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

            passage = await run_sink(field, f"search-{number}", properties, count, records=records)
            await demand_documents(session, index, records=records)
            seen = passage.records_per_second
        rates.append(seen)
        shares.append(seen / bare)
        click.echo(f"  topic → OpenSearch: {rates[-1]:,.0f}/s, the bare client {bare:,.0f}/s")
    share = statistics.median(shares)
    what = f"topic → OpenSearch, {statistics.median(rates):,.0f}/s ÷ a bare client with the same bodies"
    return [Row(f"{what} (median of {rounds})", f"{share:.2f}", "≥ 0.9", share >= 0.9)]


async def demand_documents(session: aiohttp.ClientSession, index: str, *, records: int) -> None:
    """Raise RuntimeError where the index has not one document for each record; ids are made of their offsets."""
    async with session.post(f"/{index}/_refresh") as answer:
        answer.raise_for_status()
    async with session.get(f"/{index}/_count") as answer:
        found = int((await answer.json())["count"])
    if found != records:
        raise RuntimeError(f"index {index} holds {found:,} documents, and {records:,} were to be")


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
                rest = body
                while rest:
                    async with session.post("/_bulk", data=rest) as answer:
                        rest = not_taken(rest, answer.status, await answer.read())
                    if rest:
                        await asyncio.sleep(REJECTED_WAIT_SECONDS)

        await asyncio.wait_for(session.put(f"/{index}"), 60)
        began_at = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(BULKS_IN_FLIGHT):
                group.create_task(send())
        return records / (time.perf_counter() - began_at)


def not_taken(body: bytes, status: int, answer: bytes) -> bytes:
    """The part of a bulk request's body that a busy server has rejected (429) and that is to be sent again.

    Raises RuntimeError with what the server says, such as that its disk is full, for any other refusal.
    """
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return body
    if status == HTTPStatus.OK and b'"errors":false' in answer:
        return b""
    items = json.loads(answer)["items"] if status == HTTPStatus.OK else []
    statuses = [item["index"]["status"] for item in items]
    others = [
        item
        for item, told in zip(items, statuses, strict=True)
        if told >= HTTPStatus.BAD_REQUEST and told != HTTPStatus.TOO_MANY_REQUESTS
    ]
    if others or not items:
        raise RuntimeError(f"the server refused a bulk request: {json.dumps(others[:1]) if others else answer[:500]!r}")
    lines = body.split(b"\n")
    rejected = [row for row, told in enumerate(statuses) if told == HTTPStatus.TOO_MANY_REQUESTS]
    return b"".join(b"%s\n%s\n" % (lines[2 * row], lines[2 * row + 1]) for row in rejected)
