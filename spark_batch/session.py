"""The Spark session: started with the settings the job relies on, and started again after its JVM was lost."""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import psutil
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_batch.jvm import LOG4J_SETTINGS, launch_jvm
from spark_batch.pinned_settings import PINNED_SETTINGS
from spark_batch.scratch import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ASKED = "spark.sql.session.timeZone"
"""A setting of every session, which a server is asked for to see whether it knows the session."""
_SHELL = "pyspark-shell"
"""What PySpark has its JVM run; the last word of its command line."""
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_LATE_OPTIMIZATION = (
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
"""Ten times HotSpot's own: only what each record goes through is worth its second compiler. Otherwise that takes half
of the JVM's time over the first million records, most of it for what runs a few times in each micro-batch."""
_HEAP_OF_A_START = {"MaxHeapFreeRatio": 35, "MinHeapFreeRatio": 10}
"""Percent of the old generation that may be free, and has to be, after a full collection while Spark starts. It goes
through a few of them, and would keep a third more than it needs from then on where Spark converts nothing."""
_HEAP_OF_WORK = {"MaxHeapFreeRatio": 100, "MinHeapFreeRatio": 0}
"""What the parallel collector has by itself, and is set to once Spark has started: a heap that is kept as small as that
is collected as a whole again and again. HotSpot calls both options manageable: they may be set in a JVM that runs."""
_LAUNCH_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    _JAVA_OPTIONS: " ".join(
        (
            "-Xms16m",
            "-XX:+UseParallelGC",
            *(f"-XX:{option}={percent}" for option, percent in _HEAP_OF_A_START.items()),
            "-XX:+ExitOnOutOfMemoryError",
            "-Darrow.enable_unsafe_memory_access=true",
            "-Darrow.enable_null_check_for_get=false",
            *_LATE_OPTIMIZATION,
        )
    ),
}
"""Of a launched JVM. Its heap grows from little, where HotSpot would begin with a 64th of the machine's memory and keep
it, idle or not. Throughput, not pauses, is what a conversion needs from the collector; a JVM whose heap is full is
lost at once, where otherwise a thread of it would be, and its conversion hang; and Spark itself checks what Arrow's
Java library would check once more for every value."""
Begun: TypeAlias = "Callable[[SparkSession], None]"
"""Told of a session before anything is asked of it; for Spark Connect, before its server is."""
_scratches: list[Scratch] = []
"""Of the launched JVM, of which PySpark keeps one a process; none or one."""


@dataclass(frozen=True)
class SparkSettings:
    """Where and how Spark runs.

    `remote` (e.g. `sc://host:15002`) means Spark Connect, and then the server brings its own spark-avro; otherwise a
    JVM is launched for `master` with `avro_jar` on its class path. `options` are `spark.*` settings passed through,
    except to `PINNED_SETTINGS`.
    """

    master: str = "local[2]"
    remote: str | None = None
    avro_jar: Path | None = None
    driver_memory: str = "1g"
    java_options: tuple[str, ...] = ()
    """More for a launched JVM, whatever ``spark.driver.extraJavaOptions`` says."""
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class SessionChange:
    """The session became usable after so long, or it is not: lost, or not to be started, which ``detail`` says."""

    is_ready: bool
    detail: str = ""
    start_seconds: float = 0.0
    is_restart: bool = False
    """Whether it replaces one that was lost."""


def start_session(settings: SparkSettings, begun: Begun = lambda _: None) -> SparkSession:
    """A session ready for conversions; blocks for seconds while a JVM starts. Raises what Spark raises."""
    session = _launch(settings) if settings.remote is None else connect(settings.remote)
    begun(session)
    for name, value in session_settings(settings).items():
        session.conf.set(name, value)
    return session


def connect(remote: str) -> SparkSession:
    """A session of Spark Connect of which the server knows nothing yet; `close_remote` ends whatever waits for it.

    PySpark's client sleeps up to a minute, or as long as a server says, before it asks again, and its ``close``, which
    a finalizer too calls in whatever thread, waits under a lock that every other session's calls need, for what all of
    them have not been answered yet. Both are replaced for this client. And each client that there ever was is kept
    until the process ends, where it asks its server once more for as long; but not one that was closed.
    """
    from pyspark.sql.connect.client.retries import Retrying  # noqa: PLC0415 - for gRPC, which nothing else needs

    session: SparkSession = SparkSession.builder.remote(remote).create()
    client, closed = cast("Any", session).client, threading.Event()

    def close() -> None:
        if not closed.is_set():
            closed.set()
            atexit.unregister(client._cleanup_ml_cache)  # noqa: SLF001 - see above
            client._closed = True  # noqa: SLF001 - what PySpark's next call goes by
            client._channel.close()  # noqa: SLF001 - see above

    client.close = close
    client._retrying = lambda: Retrying(client._retry_policies, sleep=cast("Any", closed.wait))  # noqa: SLF001 - see above
    return session


def session_settings(settings: SparkSettings) -> dict[str, str]:
    """What a running session is told: passed-through settings where no launch has taken them, and ours above all."""
    passed = {} if settings.remote is None else dict(settings.options)
    return {name: value for name, value in passed.items() if name.startswith("spark.sql.")} | PINNED_SETTINGS


def kill_jvm(session: SparkSession | None) -> None:
    """End the launched JVM at once, whatever it is doing, and clear what PySpark remembers of it."""
    gateway = pyspark.SparkContext._gateway  # noqa: SLF001 - PySpark offers no public way to end a hanging JVM
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()
        with suppress(OSError):
            process.stdin.close()
    _remove_scratch()
    _forget_jvm(gateway, session)


def end_jvm(session: SparkSession, *, seconds_max: float) -> None:
    """Let the launched JVM end in its own way, as it does when its standard input is closed; else as `kill_jvm`."""
    process = getattr(pyspark.SparkContext._gateway, "proc", None)  # noqa: SLF001 - no public way
    session.stop()
    if process is not None:
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds_max)
    kill_jvm(session)


def kill_starting_jvm() -> None:
    """End the JVM that `start_session` waits for in another thread, which then soon raises.

    PySpark does not tell its JVM before it is connected to it, so it is looked for among the children.
    """
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.cmdline()[-1:] == [_SHELL]:
                child.kill()


def release_remote(session: SparkSession) -> None:
    """Have the server end what it does for this session, and forget it; blocks until it answers, or `close_remote`."""
    with suppress(Exception):  # the session is given up, whatever is said
        cast("Any", session).client.release_session()


def close_remote(session: SparkSession) -> None:
    """Close the channel to the server; calls that wait on it, in whatever threads, end with an error.

    PySpark's ``stop`` asks a server that is gone for ten minutes, under a lock that every new session needs.
    """
    kind, client = cast("Any", type(session)), cast("Any", session).client
    with suppress(Exception):
        client.close()
    if getattr(kind, "_default_session", None) is session:
        kind._default_session = None  # noqa: SLF001 - as its ``stop`` does


def jvm_pid() -> int | None:
    """Process id of the launched JVM, None where there is none (Spark Connect, or not started)."""
    process = getattr(pyspark.SparkContext._gateway, "proc", None)  # noqa: SLF001 - no public way
    return None if process is None else int(process.pid)


def is_jvm_alive() -> bool:
    """Whether the launched JVM still runs."""
    process = getattr(pyspark.SparkContext._gateway, "proc", None)  # noqa: SLF001 - no public way
    return process is not None and process.poll() is None


def is_session_answering(session: SparkSession) -> bool:
    """Whether the server or a JVM that runs answers for this session that it can work; blocks as long as it hangs.

    A JVM that is being killed answers a while. Spark stops a context itself when its cluster has ended the application,
    or when its scheduler has failed, and the JVM lives on.
    """
    try:
        if is_remote(session):
            session.conf.get(_ASKED)
            return True
        return is_jvm_alive() and not session.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - no public way
    except Exception:  # noqa: BLE001 - there are many ways to say that Spark is gone
        return False


def go_by_settings_of(session: SparkSession) -> None:
    """Have the calling thread's part of the JVM go by this session's settings; for a conversion, before anything else.

    Spark asks for them in the thread that parses, compiles or runs an expression, and takes its own defaults where that
    thread has no active session: with them a cast raises that gives null by ours, and texts are times of another zone.
    """
    if not is_remote(session):
        jvm: Any = session._jvm  # noqa: SLF001 - what PySpark itself does in createDataFrame, offered nowhere
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(session._jsparkSession)  # noqa: SLF001


def is_remote(session: SparkSession) -> bool:
    """By what it is: PySpark's own question goes by the environment."""
    return hasattr(session, "session_id")


def _launch(settings: SparkSettings) -> SparkSession:
    builder = SparkSession.builder.master(settings.master).appName("headrace")
    if settings.master.startswith("local"):
        # Otherwise Spark looks its own host name up, which containers need not be able to resolve.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    java_options = f"{_LAUNCH_SETTINGS[_JAVA_OPTIONS]} -Dlog4j2.configurationFile={LOG4J_SETTINGS.as_uri()}"
    launch = {**_LAUNCH_SETTINGS, "spark.driver.memory": settings.driver_memory}
    is_launched = is_jvm_alive()
    if not is_launched:
        _remove_scratch()
        _scratches.append(Scratch.make())
        launch["spark.local.dir"] = str(_scratches[0].folder)
        java_options += f' "-Djava.io.tmpdir={_scratches[0].folder}"'
    launch[_JAVA_OPTIONS] = java_options
    if settings.avro_jar is not None:
        launch["spark.jars"] = str(settings.avro_jar)
    launch |= dict(settings.options)
    launch[_JAVA_OPTIONS] += "".join(f' "{option}"' for option in settings.java_options)
    if not is_launched:
        launch_jvm(launch)
    for name, value in launch.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    if not is_launched and _JAVA_OPTIONS not in dict(settings.options):
        with suppress(Py4JJavaError):  # a JVM that is no HotSpot has not heeded them at its start either
            _set_options(session, _HEAP_OF_WORK)
    return session


def _set_options(session: SparkSession, options: Mapping[str, int]) -> None:
    """Set manageable options of the launched JVM; raises ``Py4JJavaError`` where it is no HotSpot."""
    jvm, gateway = cast("Any", session)._jvm, cast("Any", session.sparkContext)._gateway  # noqa: SLF001 - no public way
    kind = jvm.java.lang.Class.forName("com.sun.management.HotSpotDiagnosticMXBean")
    bean = jvm.java.lang.management.ManagementFactory.getPlatformMXBean(kind)
    texts = gateway.new_array(jvm.java.lang.Class, 2)
    texts[0] = texts[1] = jvm.java.lang.Class.forName("java.lang.String")
    # By its interface, because nobody may call the class that the bean is of.
    method = kind.getMethod("setVMOption", texts)
    for name, number in options.items():
        given = gateway.new_array(jvm.java.lang.Object, 2)
        given[0], given[1] = name, str(number)
        method.invoke(bean, given)


def _remove_scratch() -> None:
    while _scratches:
        _scratches.pop().remove()


def _forget_jvm(gateway: Any, session: SparkSession | None) -> None:
    """PySpark keeps the gateway of a dead JVM; until it is cleared every new session is refused a connection."""
    context = pyspark.SparkContext
    if gateway is not None:
        # Finalizers of Java objects would each try to tell the dead JVM, and log that they could not.
        gateway._gateway_client.is_connected = False  # noqa: SLF001 - see above
        gateway.shutdown_callback_server(raise_exception=False)
    accumulators = getattr(context._active_spark_context, "_accumulatorServer", None)  # noqa: SLF001 - see above
    if accumulators is not None:
        accumulators.shutdown()
    context._active_spark_context = None  # noqa: SLF001 - see above
    context._gateway = None  # noqa: SLF001 - see above
    context._jvm = None  # noqa: SLF001 - see above
    SparkSession._instantiatedSession = None  # noqa: SLF001 - see above
    if session is not None:
        type(session)._activeSession = None  # noqa: SLF001 - see above
