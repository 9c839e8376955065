"""A real HDFS of one data node for the whole run, started when a test first asks for it; ends with the run."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service.embedded.child import GuardedJvm, JvmCommand
from service.embedded.jars import class_path, java_program
from service.embedded.ports import free_ports
from service.embedded.running import running

HEAP_MIB = 256
START_SECONDS_MAX = 300.0
STOP_SECONDS_MAX = 15.0
_PROGRAM = Path(__file__).parent / "java" / "HdfsServer.java"


@asynccontextmanager
async def opened_hdfs(folder: Path, *, ports: Sequence[int] = ()) -> AsyncIterator[str]:
    """Its URL, once it answers; data below ``folder``, which stay there for the next one of the same ports."""
    jars = class_path("hdfs")
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(_PROGRAM)], check=True, capture_output=True)  # noqa: ASYNC221 - once a run, before anything else runs on this loop
    port, http_port = ports or free_ports(2)
    console = folder / "console.log"
    console.unlink(missing_ok=True)
    command = JvmCommand(
        arguments=(
            str(java_program()), "--add-opens", "java.base/java.lang=ALL-UNNAMED", f"-Xmx{HEAP_MIB}m",
            "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}:{folder}",
            "HdfsServer", str(folder / "data"), str(port), str(http_port),
        ),
        working_folder=folder,
        console=console,
        grace_seconds=STOP_SECONDS_MAX,
    )  # fmt: skip
    jvm = await GuardedJvm.start("hdfs", command)
    try:
        await jvm.wait_ready(lambda: _is_ready(console), seconds_max=START_SECONDS_MAX)
        yield f"hdfs://127.0.0.1:{port}"
    finally:
        await jvm.stop()


async def _is_ready(console: Path) -> bool:
    return console.exists() and "READY" in console.read_text(errors="replace").splitlines()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the run's HDFS; tests keep apart by their folders."""
    if shutil.which("javac") is None:
        pytest.skip("needs javac, the compiler of a JDK")
    with running(opened_hdfs(tmp_path_factory.mktemp("hdfs")), name="hdfs") as server:
        yield server.server
