"""``python -m tests.cluster.worker_process [SECONDS] FILE``: ``headrace worker FILE``, only that Spark is a stand-in.

So several of them fit on a small machine, and are at work a second after their start. ``SECONDS``: what a connector's
own code may take, so that nobody need wait long for one that hangs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from service.app import open_worker
from service.background import Background
from service.cli.standalone import configure_job_logging, raise_file_limit, stopping_on_signals
from service.herder.run import WorkerRun
from service.job import read_job
from service.worker.foreign_calls import CALL_SECONDS_MAX, ForeignCalls
from tests.scenarios.cluster_workers import InstantConversion

_LOOK_SECONDS = 0.5


async def _run(worker_file: Path, call_seconds_max: float) -> None:
    job = read_job(worker_file, ())
    configure_job_logging(job)
    raise_file_limit()
    opened = open_worker(
        job, is_distributed=True, conversion=InstantConversion(), calls=ForeignCalls(seconds_max=call_seconds_max)
    )
    async with opened as running, Background() as beside:
        beside.start(_stop_with_parent(running.worker), name="parent")
        with stopping_on_signals(running.worker):
            await running.worker.run()


async def _stop_with_parent(worker: WorkerRun) -> None:
    """A test run that is killed leaves nothing behind."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(_LOOK_SECONDS)
    worker.request_stop("orphaned")


if __name__ == "__main__":
    *seconds, file = sys.argv[1:]
    asyncio.run(_run(Path(file), float(seconds[0]) if seconds else CALL_SECONDS_MAX))
