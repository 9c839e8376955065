"""No program of a test run outlives it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.bound import bound

ROOT = Path(__file__).parents[2]
STARTER = """
import subprocess, sys
from tests.bound import bound
child = subprocess.Popen(bound([sys.executable, "-c", "import time; time.sleep(600)"]))
print(child.pid, flush=True)
child.wait()
"""
SLEEP_SECONDS_MAX = 60


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux kills a child with its parent")
def test_a_program_ends_with_the_run_that_was_killed() -> None:
    """SIGKILL: nothing of the run can clear up behind it."""
    command = [sys.executable, "-c", STARTER]
    with subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        child = psutil.Process(int(run.stdout.readline()))
        run.kill()
    psutil.wait_procs([child], timeout=SLEEP_SECONDS_MAX)
    assert not child.is_running()


def test_it_is_the_program_itself() -> None:
    """Its process id, its arguments and its exit code."""
    command = bound([sys.executable, "-c", "import os, sys; print(os.getpid(), *sys.argv[1:]); sys.exit(7)", "a b", ""])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
        said, _ = run.communicate()
    assert (said, run.returncode) == (f"{run.pid} a b \n", 7)
