"""A sink with `Sql` in two real workers, each with its Spark, that are killed by turns while they write."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cluster.processes import REAL, Field, WorkerProcess, wait_for
from tests.integration.sinks.sink_runs import make_topic, produce
from tests.stack import KafkaStack

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.faults,
    pytest.mark.timeout(900),
]

SCHEMA = {"type": "struct", "fields": [{"field": "n", "type": "int64"}, {"field": "text", "type": "string"}]}
PARTITIONS = 4
RECORDS = 4_000
"""At a time."""
SPARK_SECONDS_MAX = 300.0
"""Two of them start at once, on few cores."""
LOOK_SECONDS = 0.005
"""So that a commit of a dozen files is seen while it is made."""


def files(folder: Path, topic: str) -> Iterator[Path]:
    """Committed ones."""
    return folder.glob(f"topics/{topic}/**/*.json")


def numbers(folder: Path, topic: str) -> list[int]:
    """What stands in them, in order. Raises AssertionError for a record that is not what the text makes of it."""
    found = [json.loads(text) for file in files(folder, topic) for text in file.read_bytes().splitlines()]
    for each in found:
        n = each["n"]
        assert each == {"n": n, "kind": n % 10, "loud": f"RECORD {n}"}
    return sorted(each["n"] for each in found)


def expected(count: int) -> list[int]:
    """What is not dropped."""
    return [n for n in range(count) if n % 7]


async def write(bootstrap: str, topic: str, begin: int) -> None:
    """So many more records, over all partitions."""
    rows = [{"schema": SCHEMA, "payload": {"n": n, "text": f"record {n}"}} for n in range(begin, begin + RECORDS)]
    keys: list[bytes | None] = [b"%d" % n for n in range(begin, begin + RECORDS)]
    await produce(bootstrap, topic, [json.dumps(each).encode() for each in rows], keys)


async def test_workers_killed_in_the_middle_of_a_put(kafka: KafkaStack, tmp_path: Path) -> None:
    """Each record that `Sql` keeps is in one file, once, after each kill and each rebalance."""
    folder = tmp_path / "lake"
    async with Field.opened(kafka.bootstrap, tmp_path, command=REAL) as field:
        topic, name = f"{field.name}-rows", f"{field.name}-sink"
        await make_topic(kafka.bootstrap, topic, partitions=PARTITIONS)
        await write(kafka.bootstrap, topic, 0)
        workers = await field.start(2)
        config = {
            "connector.class": "FileSystemSink",
            "topics": topic,
            "tasks.max": "2",
            "store.url": f"file://{folder}",
            "format.class": "JsonFormat",
            "partitioner.class": "FieldPartitioner",
            "partition.field.name": "kind",
            "flush.size": "200",
            "rotate.idle.interval.ms": "3000",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
            "consumer.override.max.poll.records": "100",
            "consumer.override.session.timeout.ms": "6000",
            "transforms": "picked",
            "transforms.picked.type": "Sql",
            "transforms.picked.sql": "SELECT n, n % 10 AS kind, upper(text) AS loud FROM record WHERE n % 7 <> 0",
        }
        await workers[0].done("POST", "/connectors", {"name": name, "config": config})
        await wait_whole(folder, topic, RECORDS)
        for turn, victim in enumerate(workers, start=1):
            other = workers[2 - turn]
            await wait_shared(other, name)
            before = len(list(files(folder, topic)))
            async with asyncio.TaskGroup() as group:
                group.create_task(write(kafka.bootstrap, topic, turn * RECORDS))
                await wait_for(
                    partial(is_committing, folder, topic, before),
                    "a commit",
                    seconds_max=SPARK_SECONDS_MAX,
                    look_seconds=LOOK_SECONDS,
                )
                await victim.kill()
            await wait_whole(folder, topic, (turn + 1) * RECORDS)
            victim.start()
            await victim.wait_ready()
        await write(kafka.bootstrap, topic, 3 * RECORDS)
        await wait_whole(folder, topic, 4 * RECORDS)
        await wait_shared(workers[0], name)
    assert numbers(folder, topic) == expected(4 * RECORDS)


async def is_committing(folder: Path, topic: str, files_before: int) -> bool:
    """Whether files of a commit are being written, or the first commit was missed between two looks."""
    try:
        is_writing = any((folder / "topics/+tmp" / topic).glob("*/*"))
    except FileNotFoundError:  # of a folder that went away while it was being listed
        is_writing = True
    return is_writing or len(list(files(folder, topic))) > files_before


async def wait_shared(asked: WorkerProcess, name: str) -> None:
    """Until each of two workers runs a task."""

    async def is_so() -> bool:
        states = await asked.states(name)
        tasks = [states.get(number, ("", "")) for number in ("0", "1")]
        return all(state == "RUNNING" for state, _ in tasks) and tasks[0][1] != tasks[1][1]

    await wait_for(is_so, "shared", seconds_max=SPARK_SECONDS_MAX)


async def wait_whole(folder: Path, topic: str, count: int) -> None:
    """Until so many records have been dropped or written; fails when one is there twice."""

    async def is_so() -> bool:
        found = await asyncio.to_thread(numbers, folder, topic)
        assert len(found) == len(set(found))
        return len(found) >= len(expected(count))

    await wait_for(is_so, f"{count} records", seconds_max=SPARK_SECONDS_MAX, look_seconds=0.5)
    assert numbers(folder, topic) == expected(count)
