"""The server of a sink is killed (SIGKILL) while it works for it, and started again with the same data."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Retriable, SystemClock
from metrics.events import discard
from service.embedded.child import GuardedJvm
from service.embedded.ports import free_ports
from service.sinks.contract import SinkContext, StartAnew
from service.sinks.http.config import HttpSinkConfig
from service.sinks.http.sink import HttpSink
from service.sinks.iceberg.config import IcebergSinkConfig
from service.sinks.iceberg.sink import IcebergSink
from service.sinks.s3.sink import S3Sink
from tests.apis.sinks.test_http_sink import batch_of as http_batch
from tests.apis.sinks.test_s3_sink import config_of, feed, running
from tests.bound import bound
from tests.fault_proxy import FaultProxy
from tests.iceberg_rest import RestLake, started_catalog
from tests.object_storage import Bucket, started_storage
from tests.unit.sinks.iceberg.iceberg_runs import HERE, batch_of

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[3]
LOOK_SECONDS = 0.05
RECORDS, DIES_AT = 40, 17


async def killed(server: GuardedJvm) -> None:
    """Kill it; it is gone on return."""
    os.kill(server.pid, signal.SIGKILL)
    await server.wait_exited()


@asynccontextmanager
async def hook(port: int, journal: Path, *, dies_at: int = 0) -> AsyncIterator[subprocess.Popen[bytes]]:
    """The web server of ``hook_process.py``, which listens when the block begins and is ended with it."""
    program = Path(__file__).with_name("hook_process.py")
    command = [sys.executable, str(program), str(port), str(journal), str(dies_at)]
    process = await asyncio.to_thread(subprocess.Popen, bound(command), cwd=ROOT)
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                assert process.poll() is None, "it ended before it listened"
                await asyncio.sleep(LOOK_SECONDS)
            else:
                writer.close()
                break
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


async def test_a_web_server(tmp_path: Path) -> None:
    """It dies with a record that it has noted: that one and those behind it come again, in order, and no other."""
    (port,), journal = free_ports(1), tmp_path / "journal"
    keys = {"http.api.url": f"http://127.0.0.1:{port}/", "idempotency.header": "Idempotency-Key"}
    config = HttpSinkConfig.parse(keys).config
    assert config is not None
    refused: list[Any] = []
    batch = http_batch(list(range(RECORDS)), refused=refused)
    held = DIES_AT - 1
    async with shared_http() as http:
        sink = HttpSink(config)
        await sink.start(SinkContext("hook", 0, SystemClock(), discard, http))
        async with hook(port, journal, dies_at=DIES_AT) as server:
            with pytest.raises(Retriable) as told:
                await sink.put(batch)
            assert told.value.rows == list(range(held, RECORDS))
            assert await asyncio.to_thread(server.wait) == -signal.SIGKILL
        left = batch.slice(held, RECORDS - held)
        with pytest.raises(Retriable) as told:
            await sink.put(left)
        assert told.value.rows == list(range(len(left)))
        async with hook(port, journal):
            await sink.put(left)
        await sink.stop()
    sent = [*range(DIES_AT), *range(held, RECORDS)]
    # The records of the batch begin at offset 10.
    assert journal.read_text().splitlines() == [f"orders/x-0-{10 + number} {number}" for number in sent]
    assert refused == []


async def test_a_rest_catalogue(tmp_path: Path) -> None:
    """Killed before a commit has reached it, and behind one whose answer is lost: each record is one row."""
    (port,) = free_ports(1)
    lake = RestLake(f"http://127.0.0.1:{port}")
    proxy = FaultProxy(port, keep=b"add-snapshot")
    keys = {**lake.properties, "iceberg.catalog.uri": f"http://127.0.0.1:{proxy.port}"}
    config = IcebergSinkConfig.parse(keys).config
    assert config is not None
    server = await started_catalog(tmp_path, port)
    try:
        async with proxy.serving():
            async with asyncio.TaskGroup() as group:
                group.create_task(appended(config, RECORDS))
                await proxy.kept.wait()
                await killed(server)
                proxy.may_go.set()
                server = await started_catalog(tmp_path, port)
            assert await asyncio.to_thread(lake.numbers) == list(range(RECORDS))
            proxy.lose_after = b"add-snapshot"
            async with asyncio.TaskGroup() as group:
                group.create_task(appended(config, 2 * RECORDS))
                while not proxy.lost:
                    await asyncio.sleep(LOOK_SECONDS)
                await killed(server)
                server = await started_catalog(tmp_path, port)
            assert await asyncio.to_thread(lake.numbers) == list(range(2 * RECORDS))
    finally:
        await server.stop()


async def appended(config: IcebergSinkConfig, count: int) -> None:
    """Put and flush so many records in all, and begin anew where the sink wants to, as the worker does."""
    rows = [{"n": number} for number in range(count)]
    while True:
        sink = IcebergSink(config)
        try:
            async with shared_http() as http:
                await sink.start(SinkContext("lake", 0, SystemClock(), discard, http))
                begin = (await sink.open({HERE: None})).get(HERE, 0)
                if begin < count:
                    await sink.put(batch_of(rows[begin:], begin=begin))
                    await sink.flush({HERE: count})
            return
        except StartAnew:
            await asyncio.sleep(LOOK_SECONDS)
        finally:
            await sink.stop()


async def test_an_object_storage(tmp_path: Path) -> None:
    """Killed before a commit's entry has reached it, and behind one whose answer is lost: each record is there once.

    The server keeps its objects in memory; started again it is given them by its own record of what it was asked.
    """
    settings = ("MOTO_ENABLE_RECORDING=1", f"MOTO_RECORDER_FILEPATH={tmp_path}/recorded")
    (port,) = free_ports(1)
    server = await started_storage(tmp_path, port, *settings)
    proxy = FaultProxy(port, keep=entry(2), lose_at=b" 200 OK")

    async def started_again() -> GuardedJvm:
        """At another port behind the same door, so that nobody asks it before it has its objects."""
        (port,) = free_ports(1)
        again = await started_storage(tmp_path, port, *settings)
        replay = f"http://127.0.0.1:{port}/moto-api/recorder/replay-recording"
        async with aiohttp.ClientSession() as client, client.post(replay) as told:
            assert told.ok
        proxy.server_port = port
        return again

    try:
        async with proxy.serving():
            bucket = await asyncio.to_thread(Bucket, f"http://127.0.0.1:{proxy.port}")
            async with asyncio.TaskGroup() as group:
                group.create_task(stored(bucket, RECORDS))
                await proxy.kept.wait()
                await killed(server)
                proxy.may_go.set()
                server = await started_again()
            assert await asyncio.to_thread(numbers, bucket) == list(range(RECORDS))
            (last,) = await asyncio.to_thread(bucket.names, "logs/orders/0/")
            claim = int(Path(last).stem) + 1
            proxy.lose_after = entry(claim + 1)
            async with asyncio.TaskGroup() as group:
                group.create_task(stored(bucket, 2 * RECORDS))
                while not proxy.lost:
                    await asyncio.sleep(LOOK_SECONDS)
                await killed(server)
                server = await started_again()
            assert await asyncio.to_thread(numbers, bucket) == list(range(2 * RECORDS))
    finally:
        await server.stop()


def entry(number: int) -> bytes:
    """How a request about an entry of the sink's log begins; the first one makes it."""
    return b"/%020d.commit HTTP/1.1" % number


async def stored(bucket: Bucket, count: int) -> None:
    """Put so many records in all, ten an object, and begin anew where the sink wants to, as the worker does."""
    config = config_of(bucket, flush__size="10")
    while True:
        try:
            async with running(S3Sink(config)) as sink:
                await feed(sink, [{"n": number} for number in range(count)])
        except StartAnew:
            await asyncio.sleep(LOOK_SECONDS)
        else:
            return


def numbers(bucket: Bucket) -> list[int]:
    """What stands in the objects that have their final names, in order."""
    lines = [line for text in bucket.objects().values() for line in text.splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)
