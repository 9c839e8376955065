"""Where conversion tests run: a Spark JVM launched by PySpark, or a Spark Connect server in a process of its own.

Both answer the same question, `convert(plan, payloads)`. An engine heals itself, since crash tests kill JVMs.
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from service.embedded.jars import archive_options, spark_avro_jar
from spark_batch.compiled import CompiledPlan, compile_plan
from spark_batch.convert import convert_table
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import ConversionPlan, Finding
from spark_batch.rule_check import rule_findings
from spark_batch.session import SparkSettings, is_jvm_alive, kill_jvm, start_session

GUARD = Path(__file__).parents[2] / "service" / "embedded" / "guard.py"
CONNECT_FLAG = "SPARK_CONNECT_MODE_ENABLED"
"""PySpark's switch between its two kinds of columns; a process normally has one kind only."""


def avro_jar() -> Path:
    """The spark-avro jar: given by the environment, or fetched by set-up."""
    given = os.environ.get("HEADRACE_SPARK_AVRO_JAR")
    return Path(given) if given else spark_avro_jar()


def local_settings() -> SparkSettings:
    """As a worker launches Spark."""
    return SparkSettings(avro_jar=avro_jar(), java_options=archive_options("spark"))


def table(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int | None] | None = None,
) -> pa.Table:
    """A micro-batch of these payloads."""
    columns = {
        "key": pa.array(keys if keys is not None else [None] * len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(timestamps if timestamps is not None else [None] * len(values), pa.int64()),
    }
    return pa.table(columns, schema=INPUT_SCHEMA)


class Engine(Protocol):
    """Runs conversions for tests."""

    def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch."""
        ...

    def check(self, plan: ConversionPlan) -> list[Finding]:
        """What Spark finds in the plan's rules."""
        ...

    def stop(self) -> None:
        """End every process that belongs to it."""
        ...


class LocalEngine:
    """Spark in a JVM that PySpark launches."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._compiled: dict[ConversionPlan, CompiledPlan] = {}

    def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch."""
        session = self._ready()
        if plan not in self._compiled:
            self._compiled[plan] = compile_plan(plan)
        return convert_table(session, self._compiled[plan], batch)

    def compiled(self, plan: ConversionPlan) -> CompiledPlan:
        """The plan, for a test that takes paths away from it."""
        self._ready()
        return compile_plan(plan)

    def convert_by(self, compiled: CompiledPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch by such a plan."""
        return convert_table(self._ready(), compiled, batch)

    def check(self, plan: ConversionPlan) -> list[Finding]:
        """What Spark finds in the plan's rules."""
        return rule_findings(self._ready(), plan)

    def stop(self) -> None:
        """Kill the JVM: nothing in it is worth a slow end."""
        kill_jvm(self._session)
        self._session = None

    def _ready(self) -> SparkSession:
        if self._session is None or not is_jvm_alive():
            kill_jvm(self._session)
            self._compiled.clear()
            self._session = _start_persistently()
        return self._session


def _start_persistently() -> SparkSession:
    """A JVM that ends while it starts is started again, as a worker does it."""
    try:
        return start_session(local_settings())
    except PySparkRuntimeError as error:
        print(f"Spark did not start: {error}", file=sys.stderr)  # noqa: T201 - the tests are its log
    # PySpark leaves the pipe to such a JVM to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return start_session(local_settings())


class ConnectEngine:
    """Spark Connect: the server in a process of its own, the client here."""

    def __init__(self, folder: Path) -> None:
        self.server = ConnectServer(folder)
        os.environ[CONNECT_FLAG] = "1"
        try:
            self._session = start_session(SparkSettings(remote=self.server.url))
        finally:
            del os.environ[CONNECT_FLAG]
        self._compiled: dict[ConversionPlan, CompiledPlan] = {}

    def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch."""
        os.environ[CONNECT_FLAG] = "1"
        try:
            if plan not in self._compiled:
                self._compiled[plan] = compile_plan(plan)
            return convert_table(self._session, self._compiled[plan], batch)
        finally:
            del os.environ[CONNECT_FLAG]

    def check(self, plan: ConversionPlan) -> list[Finding]:
        """What Spark finds in the plan's rules."""
        os.environ[CONNECT_FLAG] = "1"
        try:
            return rule_findings(self._session, plan)
        finally:
            del os.environ[CONNECT_FLAG]

    def stop(self) -> None:
        """Close the client's channel, then end the server."""
        os.environ[CONNECT_FLAG] = "1"
        try:
            self._session.stop()
        finally:
            os.environ.pop(CONNECT_FLAG, None)
            self.server.stop()


class ConnectServer:
    """A Spark Connect server on a free port of this machine."""

    def __init__(self, folder: Path) -> None:
        self.port = _free_port()
        self.url = f"sc://127.0.0.1:{self.port}"
        home = Path(str(pyspark.__file__)).parent
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
        self._process.wait(timeout=30)
        self._reader.join(timeout=10)
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
        is_ready.wait(timeout=90)
        if not any(b"Spark Connect server started" in line for line in seen):
            self._process.kill()
            raise RuntimeError(b"".join(seen[-20:]).decode(errors="replace"))


def rows(outcome: pa.Table) -> list[dict[str, Any]]:
    """The outcome's rows, nulls left out."""
    return [{name: value for name, value in row.items() if value is not None} for row in outcome.to_pylist()]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
