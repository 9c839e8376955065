"""``headrace standalone``, ``worker`` and ``dev``: a job, run until idle or until told to stop."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

from rich.console import Console
from rich.text import Text

from metrics.logging import LogFormat, configure_logging
from service.app import Addresses, open_worker
from service.cli.findings import print_refusal, print_warnings
from service.cli.progress import LinesAbove, showing, terminal
from service.embedded.errors import EmbeddedError, PortBusy, StartFailed
from service.herder.run import WorkerRun
from service.job import ConfigRefusedError, Job
from service.kafka.errors import DeliveryFatal, DeliveryRetriable
from service.registry.errors import RegistryRetriable
from service.worker.garbage_collection import collecting_gently
from spark_batch.errors import ConversionRetriable

EXIT_CLEAN, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2
_LASTING = frozenset(
    {errno.EACCES, errno.EPERM, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EROFS, errno.EADDRNOTAVAIL}
)
"""What the system refuses until somebody changes a path, a permission or an address."""
_GRACE_SECONDS = 30.0
"""For Spark, the embedded servers and the HTTP server to end, after the tasks' own deadline."""


async def run_to_end(
    read: Callable[[], Job],
    *,
    idle_seconds: float | None = None,
    is_distributed: bool = False,
    tell: Callable[[Addresses], None] = lambda _addresses: None,
) -> int:
    """Read a job and run it until it is told to stop, or idle for ``idle_seconds``; what is wrong with it is shown.

    ``tell`` hears where the worker is. Exit code: 0 clean, 1 a task FAILED or the start may succeed another time, 2
    configuration.
    """
    try:
        job = read()
        print_warnings(job.warnings)
        console = terminal()
        configure_job_logging(job, console)
        return await run_job(job, idle_seconds=idle_seconds, is_distributed=is_distributed, tell=tell, console=console)
    except ConfigRefusedError as refusal:
        print_refusal(refusal)
        return EXIT_CONFIG
    except (EmbeddedError, DeliveryFatal, OSError) as error:
        Console(stderr=True).print(Text(f"headrace: {error}", style="red"))
        return exit_code_of(error)


def exit_code_of(error: Exception) -> int:
    """Of what kept a worker from running: whether it is worth another try, or somebody has to change something."""
    # A port that is taken may be free the next time, whoever it is that listens there.
    if isinstance(error, (PortBusy, StartFailed, DeliveryRetriable, RegistryRetriable, ConversionRetriable)):
        return EXIT_FAILED
    if not isinstance(error, OSError):
        return EXIT_CONFIG
    # A listener's error only tells of the system's, with its number, that caused it.
    told = (error, error.__cause__)
    is_lasting = any(isinstance(each, OSError) and each.errno in _LASTING for each in told)
    return EXIT_CONFIG if is_lasting else EXIT_FAILED


def configure_job_logging(job: Job, console: Console | None = None) -> None:
    """As the worker file says, with the job's secrets hidden; onto ``console``, where progress is shown below it."""
    redactor = job.providers.redactor
    for secret in job.secrets():
        redactor.learn(secret)
    stream = None if console is None else cast("TextIO", LinesAbove(console))
    configure_logging(
        format=LogFormat(job.worker.log_format), level=job.worker.log_level, stream=stream, redactor=redactor
    )


async def run_job(
    job: Job,
    *,
    idle_seconds: float | None,
    is_distributed: bool = False,
    tell: Callable[[Addresses], None] = lambda _addresses: None,
    console: Console | None = None,
) -> int:
    """Run a valid job to its end; ``console``: the terminal on which its progress is shown, else in the log."""
    raise_file_limit()
    async with open_worker(job, is_distributed=is_distributed) as running:
        tell(running.addresses)
        with stopping_on_signals(running.worker), collecting_gently():
            async with showing(running.progress, running.parts.flow.emit, console):
                await running.worker.run(idle_seconds=idle_seconds)
        return EXIT_FAILED if running.worker.has_failed else EXIT_CLEAN


@contextmanager
def stopping_on_signals(worker: WorkerRun) -> Iterator[None]:
    """SIGTERM and SIGINT begin the staged stop; the second of them ends the process at once."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGTERM, signal.SIGINT)

    def begin_stop(number: signal.Signals) -> None:
        for each in signals:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)
        worker.request_stop(number.name)
        _end_in_any_case(after_seconds=worker.stop_seconds_max + _GRACE_SECONDS)

    for number in signals:
        loop.add_signal_handler(number, begin_stop, number)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _end_in_any_case(*, after_seconds: float) -> None:
    """A fetcher that swallows its cancellation must not keep the process: what is not committed is fetched again.

    In a thread, because such a fetcher may hold the event loop itself.
    """
    watchdog = threading.Timer(after_seconds, os._exit, args=(EXIT_FAILED,))
    watchdog.daemon = True
    watchdog.start()


def raise_file_limit() -> None:
    """As many open files as the system lets us have: each task costs two sockets."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
