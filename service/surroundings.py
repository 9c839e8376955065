"""What a worker stands on, started before its connectors and kept running: Spark, a broker, a schema registry.

Each may be a part of this process's own (embedded servers, a Spark driver) or somebody else's, which is only watched.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Protocol

import pyarrow as pa

from fetchers.sdk import Clock
from fetchers.sdk.clock import SystemClock
from metrics.events import ComponentStateChanged, Emit
from service.background import Background
from service.config.worker import EMBEDDED, WorkerConfig
from service.embedded.broker import embedded_kafka
from service.embedded.jars import archive_options, spark_avro_jar
from service.embedded.registry import embedded_registry
from service.embedded.server import EmbeddedServer
from service.embedded.supervision import keep_running
from service.job import Job
from service.kafka.reach import trouble_reaching
from spark_batch.plan import ConversionPlan, PlanFinding
from spark_batch.session import SparkSettings

LOOK_SECONDS = 2.0
"""Between two looks at brokers that are not embedded."""
FREED_MEMORY_KEPT_MS = 300
"""Longer than from one micro-batch under load to the next."""
FREED_BYTES_KEPT = 8 * 1024 * 1024
"""At the end of each of the heaps of the C library. Parts of a page of records are far smaller, and come and go."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of glibc's ``mallopt``."""


class Conversion(Protocol):
    """What converts micro-batches: Spark, except in tests of the control plane."""

    @property
    def is_ready(self) -> bool:
        """Whether it would answer now."""

    async def run(self) -> None:
        """Start, however often it takes; runs until it is cancelled."""

    async def stop(self) -> None:
        """End what ``run`` has started."""

    async def convert(self, plan: ConversionPlan, batch: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """The outcome of a micro-batch, row by row; ``is_alone``: with no other converted beside it."""

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """What only it can find wrong with a plan."""


async def start_conversion(conversion: Conversion, stack: AsyncExitStack) -> None:
    """Beside everything else: tasks wait for it when they have something to convert; stopped when ``stack`` closes."""
    stack.push_async_callback(conversion.stop)
    background = await stack.enter_async_context(Background())
    background.start(conversion.run(), name="spark")


async def start_kafka(config: WorkerConfig, stack: AsyncExitStack, emit: Emit) -> str:
    """Start the embedded broker if it is asked for, and keep it running; watch any other. Returns ``host:port,…``."""
    if config.bootstrap_servers != EMBEDDED:
        watching = watch_brokers(config.bootstrap_servers, clock=SystemClock(), emit=emit)
        background = await stack.enter_async_context(Background())
        background.start(watching, name="brokers")
        return config.bootstrap_servers
    broker = await stack.enter_async_context(embedded_kafka(data_dir=config.data_dir, port=config.embedded_kafka_port))
    await _keep(broker, "kafka", stack, emit)
    return broker.address


async def watch_brokers(bootstrap: str, *, clock: Clock, emit: Emit) -> None:
    """Look every ``LOOK_SECONDS`` for ever; tell what has changed."""
    was_ready: bool | None = None
    while True:
        trouble = await trouble_reaching(bootstrap)
        is_ready = trouble is None
        if is_ready is not was_ready:
            emit(ComponentStateChanged(component="kafka", is_ready=is_ready, detail=trouble or bootstrap))
            was_ready = is_ready
        await clock.sleep(LOOK_SECONDS)


async def start_registry(job: Job, stack: AsyncExitStack, emit: Emit) -> str | None:
    """Start the embedded registry if anything names it, and keep it running. Returns the worker's URL, if any."""
    if not job.needs_embedded_registry:
        url = job.worker.schema_registry_url
        return None if url == EMBEDDED else url
    registry = await stack.enter_async_context(
        embedded_registry(data_dir=job.worker.data_dir, port=job.worker.embedded_registry_port)
    )
    await _keep(registry, "registry", stack, emit)
    return registry.address


async def _keep(server: EmbeddedServer, name: str, stack: AsyncExitStack, emit: Emit) -> None:
    """A server that dies is started again; entered after it, so that its own stop is taken for no accident."""

    def tell(text: str) -> None:
        emit(ComponentStateChanged(component=name, is_ready=server.is_alive(), detail=text))

    keeping = await stack.enter_async_context(Background())
    keeping.start(keep_running(server, tell=tell), name=f"embedded {name}")
    tell("runs")


def return_freed_memory() -> None:
    """Let Arrow give back what it frees once the next micro-batch has not taken it.

    Kept for longer it comes to a quarter of the process. Given back at once, its pages are cleared by the system for
    each micro-batch anew, at a tenth of the throughput. So it is with what numpy and Python free: glibc by itself gives
    back every array of more than 128 KiB at once. Who names an allocator in the environment has decided already.
    """
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ and "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())
        pa.jemalloc_set_decay_ms(FREED_MEMORY_KEPT_MS)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt") and not any(name.startswith("MALLOC_") for name in os.environ):
        libc.mallopt(_M_MMAP_THRESHOLD, FREED_BYTES_KEPT // 2)
        libc.mallopt(_M_TRIM_THRESHOLD, FREED_BYTES_KEPT)


def spark_settings(job: Job) -> SparkSettings:
    """Of the worker's Spark session: ``spark.*`` keys as they are, the jar where set-up put it."""
    config = job.worker
    options = tuple((key, value) for key, value in job.worker_properties.items() if key.startswith("spark."))
    own = {"spark.master", "spark.remote", "spark.driver.memory"}
    return SparkSettings(
        master=config.spark_master,
        remote=config.spark_remote,
        avro_jar=None if config.spark_remote else spark_avro_jar(),
        driver_memory=job.worker_properties.get("spark.driver.memory", "1g"),
        java_options=() if config.spark_remote else archive_options("spark"),
        options=tuple((key, value) for key, value in options if key not in own),
    )
