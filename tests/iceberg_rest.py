"""A real REST catalogue of Apache Iceberg, its own server for tests, for the whole run; ends with the run."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog

from service.embedded.child import GuardedJvm, JvmCommand
from service.embedded.jars import class_path, java_program
from service.embedded.ports import free_ports
from service.embedded.running import running
from service.embedded.server import stopped_unless_ready

HEAP_MIB = 256
START_SECONDS_MAX = 300.0


async def started_catalog(folder: Path, port: int) -> GuardedJvm:
    """Its process, once it answers at the port of loopback; its tables and the warehouse stay below ``folder``."""
    command = JvmCommand(
        arguments=(
            "env", f"CATALOG_REST_PORT={port}", f"CATALOG_WAREHOUSE=file://{folder}/lake",
            f"CATALOG_URI=jdbc:sqlite:{folder}/catalog.db",
            str(java_program()), f"-Xmx{HEAP_MIB}m", "-XX:+UseSerialGC", "-cp", class_path("icebergrest"),
            "org.apache.iceberg.rest.RESTCatalogServer",
        ),
        working_folder=folder,
        console=folder / "console.log",
        grace_seconds=5.0,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    server = await GuardedJvm.start("iceberg rest catalogue", command)
    async with stopped_unless_ready(server):
        await server.wait_ready(lambda: _answers(url), seconds_max=START_SECONDS_MAX)
    return server


@asynccontextmanager
async def opened_catalog(folder: Path) -> AsyncIterator[str]:
    """Its address, as long as the block lasts."""
    (port,) = free_ports(1)
    server = await started_catalog(folder, port)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/config") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


@pytest.fixture(scope="session")
def iceberg_rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the run's catalogue; tests keep apart by their namespaces."""
    with running(opened_catalog(tmp_path_factory.mktemp("iceberg")), name="iceberg") as server:
        yield server.server


@dataclass
class RestLake:
    """A namespace of its own, and how it is reached."""

    address: str
    namespace: str = field(default_factory=lambda: f"n{uuid.uuid4().hex}")

    @property
    def catalog(self) -> Catalog:
        """The catalogue, as somebody else opens it."""
        return RestCatalog("other", uri=self.address)

    @property
    def properties(self) -> dict[str, str]:
        """Keys of ``IcebergSink`` that lead to it."""
        return {
            "iceberg.catalog.type": "rest",
            "iceberg.catalog.uri": self.address,
            "iceberg.tables": f"{self.namespace}.orders",
            "iceberg.tables.auto-create-enabled": "true",
        }

    def numbers(self) -> list[int]:
        """The column ``n`` of the table, in order."""
        found: list[Any] = self.catalog.load_table(f"{self.namespace}.orders").scan().to_arrow()["n"].to_pylist()
        return sorted(found)


@pytest.fixture
def rest_lake(iceberg_rest: str) -> RestLake:
    """An empty namespace."""
    return RestLake(iceberg_rest)
