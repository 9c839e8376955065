"""A real OpenSearch server for the whole run, started when a test first asks for it; ends with the run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from service.embedded.child import GuardedJvm, JvmCommand
from service.embedded.jars import class_path, java_program
from service.embedded.ports import free_ports
from service.embedded.running import running

HEAP_MIB = 256
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 15.0
_PROGRAM = Path(__file__).parent / "java" / "SearchServer.java"


@asynccontextmanager
async def opened_search(folder: Path) -> AsyncIterator[str]:
    """Its address, once it answers; data below ``folder``."""
    jars = class_path("opensearch")
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(_PROGRAM)], check=True, capture_output=True)  # noqa: ASYNC221 - once a run, before anything else runs on this loop
    http_port, transport_port = free_ports(2)
    command = JvmCommand(
        arguments=(
            str(java_program()), f"-Xmx{HEAP_MIB}m", "-XX:+UseSerialGC", "-cp", f"{jars}:{folder}",
            "SearchServer", str(folder / "data"), str(http_port), str(transport_port),
        ),
        working_folder=folder,
        console=folder / "console.log",
        grace_seconds=STOP_SECONDS_MAX,
    )  # fmt: skip
    url = f"http://127.0.0.1:{http_port}"
    jvm = await GuardedJvm.start("opensearch", command)
    try:
        await jvm.wait_ready(lambda: _is_healthy(url), seconds_max=START_SECONDS_MAX)
        yield url
    finally:
        await jvm.stop()


async def _is_healthy(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/_cluster/health") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


@pytest.fixture(scope="session")
def opensearch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the run's server; tests keep apart by the names of their indices."""
    if shutil.which("javac") is None:
        pytest.skip("needs javac, the compiler of a JDK")
    with running(opened_search(tmp_path_factory.mktemp("opensearch")), name="opensearch") as server:
        yield server.server
