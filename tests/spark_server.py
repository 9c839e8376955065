"""A Spark Connect server for the whole run: what is not about Spark itself need not start one of its own.

A pytest plugin, loaded by tests/conftest.py. Workers are given its address as ``spark.remote``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from service.embedded.jars import archive_options, spark_avro_jar
from service.embedded.ports import free_ports

ROOT = Path(__file__).parents[1]
GUARD = ROOT / "service" / "embedded" / "guard.py"
CONNECT_FLAG = "SPARK_CONNECT_MODE_ENABLED"
"""PySpark's switch between its two kinds of columns; a process normally has one kind only."""


@pytest.fixture(scope="session")
def spark_remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server listens that tests share and leave alone: who suspends or ends one starts it for itself."""
    server = ConnectServer(tmp_path_factory.mktemp("spark"))
    yield server.url
    server.stop()


class ConnectServer:
    """A Spark Connect server on a free port of this machine."""

    def __init__(self, folder: Path, *, port: int | None = None) -> None:
        self.port = port or free_ports(1)[0]
        self.url = f"sc://127.0.0.1:{self.port}"
        home = spark_home()
        settings = {
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.sql.shuffle.partitions": "2",
        }
        command = [
            str(home / "bin" / "spark-submit"),
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
        ]
        command += ["--master", "local[2]", "--jars", str(avro_jar())]
        command += ["--driver-java-options", " ".join(archive_options("spark"))]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        environment = {
            **{name: value for name, value in os.environ.items() if name != CONNECT_FLAG},
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            # Its Python processes import the data source.
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            # The server's heap comes from here, not from --driver-memory.
            "SPARK_DAEMON_MEMORY": "768m",
        }
        # Behind the guard of the embedded servers: a test run that is killed must leave no JVM behind.
        guarded = [sys.executable, "-I", "-S", str(GUARD), "2", *command, "spark-internal"]
        self._process = subprocess.Popen(
            guarded,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._wait_ready(self._process.stdout)

    def stop(self) -> None:
        """End the server; the reader of its output ends with it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(timeout=120)
        self._reader.join(timeout=60)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _wait_ready(self, output: IO[bytes] | None) -> None:
        assert output is not None
        seen: list[bytes] = []
        is_ready = threading.Event()

        def read() -> None:
            with suppress(ValueError):
                for line in output:
                    seen.append(line)
                    if b"Spark Connect server started" in line:
                        is_ready.set()
            is_ready.set()

        self._reader = threading.Thread(target=read, name="connect-server-output", daemon=True)
        self._reader.start()
        is_ready.wait(timeout=240)
        if not any(b"Spark Connect server started" in line for line in seen):
            self._process.kill()
            raise RuntimeError(b"".join(seen[-20:]).decode(errors="replace"))


def spark_home() -> Path:
    """Where PySpark is installed; to import it takes a second, in each process of a run."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def avro_jar() -> Path:
    """The spark-avro jar: given by the environment, or fetched by set-up."""
    given = os.environ.get("HEADRACE_SPARK_AVRO_JAR")
    return Path(given) if given else spark_avro_jar()
