"""The embedded broker is a real Kafka that keeps what was committed, whoever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from service.embedded.broker import BrokerJvm, embedded_kafka
from service.embedded.errors import DataDirectoryBusy, PortBusy, StartFailed
from service.embedded.folder import NoDataError, reading_folder
from service.embedded.ports import free_ports
from service.embedded.server import EmbeddedServer
from service.embedded.supervision import keep_running
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_OWNER = """
import asyncio, sys
from pathlib import Path
from service.embedded.broker import embedded_kafka

async def own():
    async with embedded_kafka(data_dir=Path(sys.argv[1])) as broker:
        print(broker.pid, broker.address, flush=True)
        await asyncio.Event().wait()

asyncio.run(own())
"""
_WAIT_SECONDS_MAX = 120


async def _produce(bootstrap: str, topic: str, values: list[bytes], *, is_committed: bool) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=f"{topic}-writer", max_request_size=4 * 1024 * 1024
    )
    await producer.start()
    try:
        await producer.begin_transaction()
        for value in values:
            await producer.send_and_wait(topic, value)
        await (producer.commit_transaction() if is_committed else producer.abort_transaction())
    finally:
        await producer.stop()


async def _committed(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=4 * 1024 * 1024,
    )
    await consumer.start()
    try:
        async with asyncio.timeout(_WAIT_SECONDS_MAX):
            return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


async def _owner(data: Path) -> tuple[asyncio.subprocess.Process, psutil.Process, str]:
    """A worker process with a broker; the worker, the broker's JVM, and its bootstrap address."""
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _OWNER, str(data)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert worker.stdout
    async with asyncio.timeout(_WAIT_SECONDS_MAX):
        pid, bootstrap = (await worker.stdout.readline()).split()
    return worker, psutil.Process(int(pid)), bootstrap.decode()


async def test_second_worker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    """A data directory in use is reported at once, and its owner is not disturbed."""
    async with embedded_kafka(data_dir=tmp_path) as broker:
        with pytest.raises(DataDirectoryBusy, match="in use by another worker"):
            async with embedded_kafka(data_dir=tmp_path):
                pass
        # Who only reads is shown where the one that runs is.
        async with reading_folder(tmp_path) as found:
            assert (found.kafka, found.registry) == (broker.address, None)
        assert broker.is_alive()


async def test_a_folder_that_is_none_is_refused_and_not_made(tmp_path: Path) -> None:
    """A path that was mistyped must not become an empty Kafka."""
    with pytest.raises(NoDataError, match="there is no embedded Kafka in"):
        async with reading_folder(tmp_path / "mistyped"):
            pass
    assert not (tmp_path / "mistyped").exists()


async def test_taken_port_is_named(tmp_path: Path) -> None:
    """A port that somebody listens on is refused before anything is started."""
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(PortBusy, match=str(port)):
            async with embedded_kafka(data_dir=tmp_path, port=port):
                pass


async def test_failing_start_shows_what_the_jvm_said(tmp_path: Path) -> None:
    """A broker that cannot start is an error that carries the end of its log."""
    async with embedded_kafka(data_dir=tmp_path):
        pass
    with pytest.raises(StartFailed, match="heap"):
        async with embedded_kafka(data_dir=tmp_path, jvm=BrokerJvm(heap_mib=1)):
            pass


async def test_killed_worker_takes_its_broker_along_and_the_next_goes_on(tmp_path: Path, topic_name: str) -> None:
    """After SIGKILL of the worker no JVM is left, and a new worker finds what was committed, not what was aborted."""
    worker, jvm, bootstrap = await _owner(tmp_path)
    await _produce(bootstrap, topic_name, [b"aborted"], is_committed=False)
    await _produce(bootstrap, topic_name, [b"one", b"two"], is_committed=True)

    worker.send_signal(signal.SIGKILL)
    await worker.wait()
    # At once, as an init system would: the old broker is still on its way out.
    async with reading_folder(tmp_path) as found:
        assert not jvm.is_running()
        await _produce(found.kafka, topic_name, [b"three"], is_committed=True)
        assert await _committed(found.kafka, topic_name, 3) == [b"one", b"two", b"three"]


@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot bind a child's life to its parent's")
async def test_killed_guard_takes_the_broker_along(tmp_path: Path) -> None:
    """Even where the guard itself is killed no JVM is left behind."""
    worker, jvm, _ = await _owner(tmp_path)
    guard = jvm.parent()
    assert guard is not None
    assert guard.pid != worker.pid
    guard.kill()
    await asyncio.to_thread(jvm.wait, _WAIT_SECONDS_MAX)
    worker.kill()
    await worker.wait()


async def test_given_port_is_used_and_kept(awkward_folder: Path) -> None:
    """A port that is given is the broker's, also after a restart; whatever the folder is called."""
    (port,) = free_ports(1)
    async with embedded_kafka(data_dir=awkward_folder, port=port) as broker:
        assert broker.address == f"127.0.0.1:{port}"
        await broker.restart()
        assert broker.address == f"127.0.0.1:{port}"
    assert (awkward_folder / "kafka" / "logs" / "meta.properties").is_file()
    assert (awkward_folder / "kafka" / "kafka.log").is_file()
    assert [path.name for path in awkward_folder.parent.iterdir()] == [awkward_folder.name]


@pytest.mark.faults
async def test_dead_broker_is_brought_back(kafka: KafkaStack, topic_name: str) -> None:
    """Under supervision a killed broker comes back on the same port with its data, and its end is told."""
    await _produce(kafka.bootstrap, topic_name, [b"kept"], is_committed=True)
    await asyncio.to_thread(kafka.broker.call, _killed_under_supervision)
    assert kafka.is_alive()
    assert await _committed(kafka.bootstrap, topic_name, 1) == [b"kept"]


async def _killed_under_supervision(broker: EmbeddedServer) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.TaskGroup() as group:
        supervision = group.create_task(keep_running(broker, tell=told.put_nowait))
        os.kill(broker.pid, signal.SIGKILL)
        async with asyncio.timeout(_WAIT_SECONDS_MAX):
            assert "code 137" in await told.get()
            assert not broker.is_alive()
            assert "runs again" in await told.get()
        supervision.cancel()


async def test_large_dead_letter_fits(kafka: KafkaStack, topic_name: str) -> None:
    """A record of 3 MiB, as a dead letter may be, is taken and given back whole."""
    letter = os.urandom(3 * 1024 * 1024)
    await _produce(kafka.bootstrap, topic_name, [letter], is_committed=True)
    assert await _committed(kafka.bootstrap, topic_name, 1) == [letter]
