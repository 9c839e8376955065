"""`Sql` at a sink, on the real broker and with a real Spark: drops, failures, a JVM that dies or hangs in mid-poll."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fetchers.sdk import SystemClock
from metrics.events import RecordsFiltered, RetryScheduled, SinkOffsetsCommitted
from service.background import Background
from service.config.worker import WorkerConfig
from service.domain.errors import RecordRejectedError
from service.worker.conversion import ConversionService
from service.worker.kinds import ConnectorRefusedError
from tests import journal
from tests.faults import worker_life
from tests.faults.worker_life import WorkerLife, write_properties
from tests.integration.end_to_end_job import RUN_SECONDS_MAX
from tests.integration.sinks.sink_runs import Sinks, lines_of, produce, sink_properties, stored, wait_until
from tests.integration.sinks.test_file_sink import committed_offset
from tests.spark.engines import local_settings
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SCHEMA = {
    "type": "struct",
    "fields": [{"field": "n", "type": "int64"}, {"field": "text", "type": "string", "optional": True}],
}
SQL = "SELECT n, 100 / (n - 3) AS x, upper(text) AS loud FROM record WHERE n % 5 <> 4"
"""Fails on 3, drops 4 and 9 and so on."""
STOP_SECONDS_MAX = 60.0
"""Far less than a conversion may take, so that a stop that waits for one is seen."""


def values(count: int, *, begin: int = 0) -> list[bytes | None]:
    """Records as Connect writes them with their schema."""
    made = ({"schema": SCHEMA, "payload": {"n": n, "text": "a"}} for n in range(begin, begin + count))
    return [json.dumps(each).encode() for each in made]


def printed(*numbers: int) -> list[bytes]:
    """What the file sink writes of them."""
    return [f"Struct{{n={n},x={100 / (n - 3)!r},loud=A}}".encode() for n in numbers]


def kept(count: int) -> list[int]:
    """The numbers that are neither dropped nor fail."""
    return [n for n in range(count) if n % 5 != 4 and n != 3]


@asynccontextmanager
async def a_spark() -> AsyncIterator[ConversionService]:
    """The conversion service of a worker, its Spark starting in the background."""
    config = WorkerConfig.parse({}).config
    assert config is not None
    service = ConversionService(local_settings(), config, clock=SystemClock(), emit=lambda _event: None)
    try:
        async with Background() as background:
            background.start(service.run(), name="spark")
            yield service
    finally:
        await service.stop()


def sql_properties(topic: str, file: Path, **more: str) -> dict[str, str]:
    """A file sink with `Sql`."""
    return {
        **sink_properties(topic, topic, file, **more),
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "true",
        "transforms": "picked",
        "transforms.picked.type": "Sql",
        "transforms.picked.sql": SQL,
    }


def tolerant(topic: str) -> Mapping[str, str]:
    """Keys by which refused records become dead letters."""
    return {
        "errors__tolerance": "all",
        "errors__deadletterqueue__topic__name": f"{topic}-letters",
        "errors__deadletterqueue__topic__replication__factor": "1",
        "errors__deadletterqueue__context__headers__enable": "true",
    }


async def test_records_are_selected_dropped_and_refused(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Others of their poll are written once, dead letters say why, and the offsets of all are committed."""
    file = tmp_path / "out.txt"
    await produce(kafka.bootstrap, topic_name, [*values(9), None])
    async with a_spark() as spark:
        sinks = Sinks(kafka.bootstrap, sql_properties(topic_name, file, **tolerant(topic_name)), spark=spark)
        async with sinks.running():
            await wait_until(lambda: len(lines_of(file)) == len(kept(9)) + 1)
            await produce(kafka.bootstrap, topic_name, [values(1, begin=14)[0]])  # which is dropped, and comes last
            await wait_until(lambda: len(sinks.told(RecordsFiltered)) >= 2)
    assert lines_of(file) == [*printed(*kept(9)), b"null"]
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 11
    (letter,) = await stored(kafka.bootstrap, f"{topic_name}-letters")
    headers = journal.headers_of(letter)
    assert letter.value == values(1, begin=3)[0]
    assert headers["__connect.errors.stage"] == "TRANSFORMATION"
    assert headers["__connect.errors.class.name"] == "headrace.transforms.Sql$Value"
    assert headers["__connect.errors.offset"] == "3"


async def test_the_first_failing_record_fails_the_task(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Where nothing is tolerated, at exactly that record; nothing behind it is committed. So does a refused text."""
    file = tmp_path / "out.txt"
    await produce(kafka.bootstrap, topic_name, values(9))
    async with a_spark() as spark:
        task = await Sinks(kafka.bootstrap, sql_properties(topic_name, file), spark=spark).task()
        with pytest.raises(RecordRejectedError, match=rf"topic '{topic_name}', .* offset 3, stage TRANSFORMATION"):
            await task.run()
        assert await committed_offset(kafka.bootstrap, topic_name, topic_name) in {None, 3}
        attack = {"transforms.picked.sql": "SELECT IDENTIFIER('java_' || 'method')('x', 'y') AS a FROM record"}
        refused = Sinks(kafka.bootstrap, {**sql_properties(topic_name, file), **attack}, spark=spark)
        with pytest.raises(ConnectorRefusedError, match=r"transforms\.picked\.sql"):
            await refused.task()


async def test_a_spark_that_dies_again_and_again(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """While records are on their way: the task waits, and each is written once, in order."""
    file, count = tmp_path / "out.txt", 3_000
    await produce(kafka.bootstrap, topic_name, values(count))
    more = {**tolerant(topic_name), "consumer__override__max__poll__records": "150"}
    async with a_spark() as spark:
        sinks = Sinks(kafka.bootstrap, sql_properties(topic_name, file, **more), spark=spark, flush_seconds=0.5)
        async with sinks.running():
            killed: set[int | None] = {None}
            for _ in range(2):
                seen = len(lines_of(file))

                # What was converted before a kill may be written while the next JVM is on its way.
                def is_at_work(seen: int = seen) -> bool:
                    return len(lines_of(file)) > seen and spark.runner.jvm_pid not in killed

                await wait_until(is_at_work, seconds_max=300)
                pid = spark.runner.jvm_pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            await wait_until(lambda: len(lines_of(file)) == len(kept(count)), seconds_max=300)
    assert lines_of(file) == printed(*kept(count))
    assert [event.stage for event in sinks.events if isinstance(event, RetryScheduled)]
    assert {event.stage for event in sinks.events if isinstance(event, RetryScheduled)} == {"convert"}
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == count
    assert len(await stored(kafka.bootstrap, f"{topic_name}-letters")) == 1


async def test_a_stop_does_not_wait_for_a_spark_that_hangs(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """What was on its way comes again with the next incarnation, once; what was put before is committed."""
    file = tmp_path / "out.txt"
    await produce(kafka.bootstrap, topic_name, values(3))
    async with a_spark() as spark:
        sinks = Sinks(kafka.bootstrap, sql_properties(topic_name, file, **tolerant(topic_name)), spark=spark)
        task = await sinks.task()
        async with asyncio.TaskGroup() as group:
            work = group.create_task(task.run())
            await wait_until(lambda: bool(sinks.told(SinkOffsetsCommitted)))
            pid = spark.runner.jvm_pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            try:
                await produce(kafka.bootstrap, topic_name, values(6, begin=3))
                await wait_until(lambda: spark.runner.statistics.running > 0)
                task.request_stop()
                async with asyncio.timeout(STOP_SECONDS_MAX):
                    await work
            finally:
                os.kill(pid, signal.SIGCONT)
        assert lines_of(file) == printed(*kept(3))
        assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 3
        async with sinks.running():
            await wait_until(lambda: len(lines_of(file)) == len(kept(9)))
    assert lines_of(file) == printed(*kept(9))
    assert await committed_offset(kafka.bootstrap, topic_name, topic_name) == 9


def test_a_standalone_worker_selects(kafka: KafkaStack, tmp_path: Path) -> None:
    """From a source's file by a topic to a sink's file; a text that only Spark refuses ends the worker with exit 2."""
    name = f"sqlsink-{uuid.uuid4().hex[:8]}"
    (tmp_path / "lines.txt").write_text("".join(f"{n},a\n" for n in range(9)))
    worker = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": name,
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(tmp_path / "data"),
        "offset.storage.topic": f"{name}-offsets",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    }
    source = {
        "name": f"{name}-source",
        "topic": name,
        "connector.class": "FileStreamSource",
        "file": str(tmp_path / "lines.txt"),
    }
    sink = {
        "name": f"{name}-sink",
        "topics": name,
        "connector.class": "FileStreamSink",
        "file": str(tmp_path / "out.txt"),
        "errors.tolerance": "all",
        "transforms": "hoisted,split,picked",
        "transforms.hoisted.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.hoisted.field": "line",
        "transforms.split.type": "Sql",
        "transforms.split.sql": "SELECT CAST(split_part(line, ',', 1) AS BIGINT) AS n, split_part(line, ',', 2) AS text"
        " FROM record",
        "transforms.picked.type": "headrace.transforms.Sql$Value",
        "transforms.picked.sql": SQL,
    }
    files = [
        write_properties(tmp_path / "worker.properties", worker),
        write_properties(tmp_path / "source.properties", source),
        write_properties(tmp_path / "sink.properties", sink),
    ]
    life = WorkerLife(*files, log=tmp_path / "worker.log")
    try:
        life.start()
        is_written = worker_life.wait_until(
            lambda: len(lines_of(tmp_path / "out.txt")) >= len(kept(9)), seconds_max=RUN_SECONDS_MAX
        )
        assert is_written, life.log_text()[-4000:]
        assert life.stop(seconds_max=300) == 0, life.log_text()[-4000:]
        assert lines_of(tmp_path / "out.txt") == printed(*kept(9))
        attack = "SELECT IDENTIFIER('java_' || 'method')('x', 'y') AS a FROM record"
        write_properties(files[2], {**sink, "transforms.split.sql": attack})
        life.start()
        assert life.wait(seconds_max=RUN_SECONDS_MAX) == 2, life.log_text()[-4000:]
    finally:
        life.end()
