"""``headrace worker``: one more worker of a cluster, with the file that ``connect-distributed`` takes."""

from __future__ import annotations

from pathlib import Path

from service.cli.standalone import run_to_end
from service.job import read_job


async def run_worker(worker_file: Path) -> int:
    """Until told to stop. Exit code: 0 clean, 1 a task was FAILED, 2 configuration."""
    return await run_to_end(lambda: read_job(worker_file, ()), is_distributed=True)
