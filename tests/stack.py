"""Fixtures of the real servers: one broker and one registry for the whole run, started when first asked for.

A pytest plugin, loaded by tests/conftest.py. A test that kills or restarts a server leaves it running for the
others; a run that is killed leaves nothing behind, because the servers' guards notice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.embedded.broker import embedded_kafka
from service.embedded.probe import is_broker_ready
from service.embedded.registry import embedded_registry
from service.embedded.running import Running, running
from service.embedded.server import EmbeddedServer

SERVING_SECONDS_MAX = 120
LOOK_SECONDS = 0.1


@dataclass(frozen=True)
class KafkaStack:
    """The run's broker. `bootstrap` stays the same over restarts."""

    bootstrap: str
    broker: Running[EmbeddedServer]

    @property
    def pid(self) -> int:
        """The broker's process id."""
        return self.broker.server.pid

    def is_alive(self) -> bool:
        """Whether the broker runs."""
        return self.broker.server.is_alive()

    def kill(self) -> None:
        """Kill the broker with SIGKILL and return when it is gone; call `restart` before the test ends."""
        os.kill(self.pid, signal.SIGKILL)
        self.broker.call(EmbeddedServer.wait_exited)

    def restart(self) -> None:
        """Start the broker again on the same port and data; ready on return."""
        self.broker.call(EmbeddedServer.restart)

    def wait_serving(self) -> None:
        """Return when the broker names itself alive: after being suspended its controller may have given it up."""
        self.broker.call(_wait_serving)


async def _wait_serving(server: EmbeddedServer) -> None:
    port = int(server.address.rpartition(":")[2])
    async with asyncio.timeout(SERVING_SECONDS_MAX):
        while not await is_broker_ready(port):
            await asyncio.sleep(LOOK_SECONDS)


@dataclass(frozen=True)
class RegistryStack:
    """The run's schema registry. `url` stays the same over restarts."""

    url: str
    registry: Running[EmbeddedServer]

    def kill(self) -> None:
        """Kill the registry with SIGKILL and return when it is gone; call `restart` before the test ends."""
        os.kill(self.registry.server.pid, signal.SIGKILL)
        self.registry.call(EmbeddedServer.wait_exited)

    def restart(self) -> None:
        """Start the registry again on the same port and schemas; ready on return."""
        self.registry.call(EmbeddedServer.restart)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaStack]:
    """A real broker for the whole run; tests share it and keep apart by topic names."""
    data = tmp_path_factory.mktemp("kafka")
    with running(embedded_kafka(data_dir=data), name="kafka") as broker:
        yield KafkaStack(broker.server.address, broker)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryStack]:
    """A real schema registry for the whole run; tests share it and keep apart by subject names."""
    data = tmp_path_factory.mktemp("registry")
    with running(embedded_registry(data_dir=data), name="registry") as server:
        yield RegistryStack(server.server.address, server)


@pytest.fixture
def topic_name() -> str:
    """A topic name that no other test uses."""
    return f"topic-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def awkward_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what parts or quotes paths in Java programs, and letters that the locale cannot spell."""
    monkeypatch.setenv("LC_ALL", "C")
    return tmp_path / "a,é 日本;b #%i ${x}"
