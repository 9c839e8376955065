"""The embedded broker: a real Apache Kafka in KRaft mode with one node, for as long as its owner lives."""

from __future__ import annotations

import asyncio
import base64
import shutil
import uuid
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from service.embedded.broker_settings import LOG, LOGGING, broker_properties, properties_text
from service.embedded.child import GuardedJvm, JvmCommand, log_tail, shown_folder
from service.embedded.errors import StartFailed
from service.embedded.jars import archive_options, class_path, java_program
from service.embedded.ports import LOOPBACK, free_ports
from service.embedded.probe import is_broker_ready
from service.embedded.server import EmbeddedServer, serving, stopped_unless_ready

HEAP_MIB = 512
FORMAT_HEAP_MIB = 128
START_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 20.0

_FORMAT_PROGRAM = "kafka.tools.StorageTool"
_TOPICS = "logs"
_UNFINISHED_TOPICS = "logs.new"
_LOGGING_FILE = "log4j2.properties"


@dataclass(frozen=True, slots=True)
class BrokerJvm:
    """How the broker's JVM is run."""

    heap_mib: int = HEAP_MIB
    options: tuple[str, ...] = ()
    stop_seconds_max: float = STOP_SECONDS_MAX


class BrokerProgram:
    """How the broker is formatted, configured and started."""

    name = "the embedded Kafka broker"
    port_key = "embedded.kafka.port"
    port_taken_text = "Address already in use"

    def __init__(self, folder: Path, jvm: BrokerJvm, *, lock: int) -> None:
        """Take the owned directory."""
        self._folder = folder
        self._jvm = jvm
        self._lock = lock

    def address(self, port: int) -> str:
        """What clients take as `bootstrap.servers`."""
        return f"{LOOPBACK}:{port}"

    async def launch(self, port: int) -> GuardedJvm:
        """Format the directory if it is new, start the broker and wait until it serves clients."""
        controller_port = next(free for free in free_ports(2) if free != port)
        settings = self._write_settings(port, controller_port)
        if not (self._folder / _TOPICS).exists():
            await self._format(port, controller_port)
        (self._folder / "console.log").unlink(missing_ok=True)
        own = f"-Xmx{self._jvm.heap_mib}m", *self._jvm.options
        jvm = await GuardedJvm.start(self.name, self._command(own, "kafka.Kafka", settings.name))
        async with stopped_unless_ready(jvm):
            try:
                await jvm.wait_ready(lambda: is_broker_ready(port), seconds_max=START_SECONDS_MAX)
            except StartFailed as failure:
                raise StartFailed(f"{failure}\n{log_tail(self._folder / LOG)}") from failure
        return jvm

    async def _format(self, port: int, controller_port: int) -> None:
        """Write the identity of a new cluster; whole or not at all, by renaming."""
        unfinished = self._folder / _UNFINISHED_TOPICS
        shutil.rmtree(unfinished, ignore_errors=True)
        properties = broker_properties(port=port, controller_port=controller_port, log_folder=_UNFINISHED_TOPICS)
        settings = self._folder / "format.properties"
        settings.write_text(properties_text(properties), encoding="utf-8")
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # As one argument: an identity may begin with a dash.
        arguments = ("format", f"--cluster-id={cluster}", "--config", settings.name)
        own = (f"-Xmx{FORMAT_HEAP_MIB}m", *archive_options("kafka"))
        jvm = await GuardedJvm.start("kafka-storage", self._command(own, _FORMAT_PROGRAM, *arguments))
        try:
            async with asyncio.timeout(START_SECONDS_MAX):
                code = await jvm.wait_exited()
        except TimeoutError:
            message = f"the broker's directory was not formatted within {START_SECONDS_MAX:g} s:\n{jvm.log_tail()}"
            raise StartFailed(message) from None
        finally:
            await jvm.stop()
        if code != 0:
            raise StartFailed(f"the broker's directory could not be formatted:\n{jvm.log_tail()}")
        unfinished.rename(self._folder / _TOPICS)

    def _write_settings(self, port: int, controller_port: int) -> Path:
        (self._folder / _LOGGING_FILE).write_text(LOGGING, encoding="utf-8")
        properties = broker_properties(port=port, controller_port=controller_port, log_folder=_TOPICS)
        settings = self._folder / "server.properties"
        settings.write_text(properties_text(properties), encoding="utf-8")
        return settings

    def _command(self, own: Sequence[str], main_class: str, *arguments: str) -> JvmCommand:
        options = (
            *own,
            shown_folder(self._folder),
            "-XX:+UseSerialGC",
            "-XX:+ExitOnOutOfMemoryError",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={_LOGGING_FILE}",
        )
        return JvmCommand(
            arguments=(str(java_program()), *options, "-cp", class_path("kafka"), main_class, *arguments),
            working_folder=self._folder,
            console=self._folder / "console.log",
            grace_seconds=self._jvm.stop_seconds_max,
            inherited_lock=self._lock,
        )


def embedded_kafka(
    *, data_dir: Path, port: int = 0, jvm: BrokerJvm | None = None
) -> AbstractAsyncContextManager[EmbeddedServer]:
    """Run a broker with its data under `data_dir`/kafka, as `service.embedded.server.serving` does.

    `port` 0 chooses a free one; `address` is what clients take as `bootstrap.servers`.
    """
    folder = data_dir.absolute() / "kafka"
    chosen = BrokerJvm(options=archive_options("kafka")) if jvm is None else jvm

    def make_program(lock: int) -> BrokerProgram:
        return BrokerProgram(folder, chosen, lock=lock)

    return serving(folder, make_program, port=port, stop_seconds_max=chosen.stop_seconds_max)
