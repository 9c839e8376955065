"""No test holds up a run: each of those below would, and pytest-timeout does not end it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGING = {
    "teardown_of_a_failed_test": """
@pytest.fixture
async def never():
    yield
    await asyncio.Event().wait()

@pytest.mark.timeout(1)
async def test_hangs(never):
    raise ValueError
""",
    "task_that_keeps_the_exception": """
@pytest.mark.timeout(1)
async def test_hangs():
    while True:
        with contextlib.suppress(BaseException):
            signal.pause()
""",
    "code_in_c_that_keeps_the_lock": """
def never():
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)

@pytest.mark.timeout(1)
def test_hangs():
    never()
""",
}
BEGIN = "import asyncio, contextlib, ctypes, signal, pytest\n\ndef test_before():\n    pass\n"
END = "\ndef test_after():\n    pass\n\ndef test_last():\n    pass\n"


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of the tests in the folder, with this project's plugins of limits and groups."""
    folder.joinpath("pytest.ini").write_text(
        "[pytest]\nasyncio_mode=auto\nasyncio_default_fixture_loop_scope=function\ntimeout=600\ntimeout_grace=2\n"
    )
    folder.joinpath("conftest.py").write_text("pytest_plugins = ['tests.spread', 'tests.time_limit']\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *options]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=500
    )


def test_the_run_goes_on_behind_each_and_names_it(tmp_path: Path) -> None:
    """Once each, however their process ends; their neighbours and the others pass."""
    for name, hanging in HANGING.items():
        tmp_path.joinpath(f"test_{name}.py").write_text(f"{BEGIN}{hanging}{END}")
    for number in range(3):
        tmp_path.joinpath(f"test_small_{number}.py").write_text("def test_one():\n    pass\n")
    done = run(tmp_path, "-n2")
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    for name in HANGING:
        assert f"crashed while running 'test_{name}.py::test_hangs'" in done.stdout, said
    assert done.stderr.count("(most recent call first):") >= len(HANGING), said
    # That of the teardown has failed before, which may be told before its process ends.
    assert re.search(r"\b[34] failed, 12 passed", done.stdout), said


@pytest.mark.parametrize("name", HANGING)
def test_without_other_processes_the_run_ends(tmp_path: Path, name: str) -> None:
    """All threads are shown on its stderr, which is captured while tests run."""
    tmp_path.joinpath("test_it.py").write_text(f"{BEGIN}{HANGING[name]}{END}")
    done = run(tmp_path, "-n0")
    assert done.returncode == 1, done
    assert re.search(r"^Timeout \(.*\n.*most recent call first", done.stderr, re.MULTILINE), done
