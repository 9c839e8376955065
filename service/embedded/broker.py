"""The embedded broker: a real Apache Kafka in KRaft mode with one node, for as long as its owner lives."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from service.embedded.broker_settings import LOGGING, broker_properties, properties_text
from service.embedded.child import GuardedJvm, JvmCommand, log_tail
from service.embedded.errors import StartFailed
from service.embedded.jars import class_path, java_program
from service.embedded.ownership import owned
from service.embedded.ports import LOOPBACK, free_ports, require_free
from service.embedded.probe import is_broker_ready

HEAP_MIB = 512
FORMAT_HEAP_MIB = 128
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 20.0
START_ATTEMPTS_MAX = 3

_FORMAT_PROGRAM = "kafka.tools.StorageTool"


class EmbeddedBroker:
    """A running broker. It keeps its port for its whole life, however often it is restarted."""

    name = "the embedded Kafka broker"

    def __init__(self, folder: Path, *, port: int, heap_mib: int, lock: int) -> None:
        """Take the owned directory, the port that was asked for (0: any free one) and the heap's size."""
        self.folder = folder
        self.port = port
        self._is_port_chosen = port == 0
        self._heap_mib = heap_mib
        self._lock = lock
        self._jvm: GuardedJvm | None = None
        self._changing = asyncio.Lock()

    @property
    def bootstrap(self) -> str:
        """What clients take as `bootstrap.servers`."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the JVM that runs now, or ran last."""
        if self._jvm is None:
            raise StartFailed("the broker has never been started")
        return self._jvm.pid

    def is_alive(self) -> bool:
        """Whether its process runs; it may be busy starting."""
        return self._jvm is not None and self._jvm.is_alive()

    async def wait_exited(self) -> int:
        """Wait until the broker's process has ended; its exit code, 128 + signal if it was killed."""
        if self._jvm is None:
            raise StartFailed("the broker has never been started")
        return await self._jvm.wait_exited()

    async def start(self) -> None:
        """Format the directory if it is new, start the broker and wait until it serves clients."""
        async with self._changing:
            if not self.is_alive():
                await self._start()

    async def stop(self) -> None:
        """Stop the broker in its own way, by force after STOP_SECONDS_MAX."""
        async with self._changing:
            if self._jvm:
                await self._jvm.stop()

    async def restart(self) -> None:
        """Stop it, if it still runs, and start it again with the same port on the same data."""
        await self.stop()
        await self.start()

    async def _start(self) -> None:
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            if self._is_port_chosen and self._jvm is None:
                self.port, controller_port = free_ports(2)
            else:
                require_free(self.port)
                (controller_port,) = free_ports(1)
            try:
                await self._start_with(controller_port)
            except StartFailed as failure:
                # Somebody may have been quicker with a port that was free a moment ago.
                if attempt == START_ATTEMPTS_MAX or "Address already in use" not in str(failure):
                    raise
            else:
                return

    async def _start_with(self, controller_port: int) -> None:
        settings = self._write_settings(controller_port)
        if not (self.folder / "logs").exists():
            await self._format(controller_port)
        (self.folder / "console.log").unlink(missing_ok=True)
        command = self._command(self._heap_mib, "kafka.Kafka", str(settings))
        jvm = await GuardedJvm.start(self.name, command)
        async with contextlib.AsyncExitStack() as unless_ready:
            unless_ready.push_async_callback(jvm.stop)
            try:
                await jvm.wait_ready(lambda: is_broker_ready(self.port), seconds_max=START_SECONDS_MAX)
            except StartFailed as failure:
                raise StartFailed(f"{failure}\n{log_tail(self.folder / 'kafka.log')}") from failure
            unless_ready.pop_all()
        self._jvm = jvm

    async def _format(self, controller_port: int) -> None:
        """Write the identity of a new cluster; whole or not at all, by renaming."""
        unfinished = self.folder / "logs.new"
        shutil.rmtree(unfinished, ignore_errors=True)
        properties = broker_properties(port=self.port, controller_port=controller_port, log_folder=unfinished)
        settings = self.folder / "format.properties"
        settings.write_text(properties_text(properties), encoding="utf-8")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # As one argument: an identity may begin with a dash.
        arguments = ("format", f"--cluster-id={cluster}", "--config", str(settings))
        jvm = await GuardedJvm.start("kafka-storage", self._command(FORMAT_HEAP_MIB, _FORMAT_PROGRAM, *arguments))
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                code = await jvm.wait_exited()
        finally:
            await jvm.stop()
        if code != 0:
            raise StartFailed(f"the broker's directory could not be formatted:\n{jvm.log_tail()}")
        unfinished.rename(self.folder / "logs")

    def _write_settings(self, controller_port: int) -> Path:
        logging = self.folder / "log4j2.properties"
        logging.write_text(LOGGING.format(log=self.folder / "kafka.log"), encoding="utf-8")
        properties = broker_properties(port=self.port, controller_port=controller_port, log_folder=self.folder / "logs")
        settings = self.folder / "server.properties"
        settings.write_text(properties_text(properties), encoding="utf-8")
        return settings

    def _command(self, heap_mib: int, main_class: str, *arguments: str) -> JvmCommand:
        options = (
            f"-Xmx{heap_mib}m",
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
        )
        return JvmCommand(
            arguments=(str(java_program()), *options, "-cp", class_path("kafka"), main_class, *arguments),
            working_folder=self.folder,
            console=self.folder / "console.log",
            grace_seconds=STOP_SECONDS_MAX,
            inherited_lock=self._lock,
        )


@contextlib.asynccontextmanager
async def embedded_kafka(*, data_dir: Path, port: int = 0, heap_mib: int = HEAP_MIB) -> AsyncIterator[EmbeddedBroker]:
    """Run a broker with its data under `data_dir`/kafka; ready on entry, gone on exit.

    `port` 0 chooses a free one. Raises DataDirectoryBusy where another worker uses the directory, PortBusy
    where the port is taken, StartFailed with the end of its log where the broker does not come up.
    """
    folder = data_dir.absolute() / "kafka"
    async with owned(folder, wait_seconds_max=STOP_SECONDS_MAX + 5) as lock:
        broker = EmbeddedBroker(folder, port=port, heap_mib=heap_mib, lock=lock)
        try:
            await broker.start()
            yield broker
        finally:
            await broker.stop()
