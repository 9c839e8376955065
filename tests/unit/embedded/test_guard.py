"""The guard ends its child when its own standard input ends, and never before."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import psutil
import pytest

from service.embedded import child as child_module
from service.embedded.child import GuardedJvm, JvmCommand
from service.embedded.errors import StartFailed

_WAIT_SECONDS_MAX = 60

# Says when its handler stands, so that a signal cannot come too early.
_STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"


def _command(folder: Path, program: str, *, grace_seconds: float = 60) -> JvmCommand:
    return JvmCommand(
        arguments=(sys.executable, "-I", "-S", "-c", program),
        working_folder=folder,
        console=folder / "console.log",
        grace_seconds=grace_seconds,
    )


async def test_program_that_is_not_there_is_a_failed_start(tmp_path: Path) -> None:
    """A missing Java is told as such, with what the system said."""
    command = JvmCommand(("/nowhere/java",), tmp_path, tmp_path / "console.log", 1)
    with pytest.raises(StartFailed, match="No such file"):
        await GuardedJvm.start("it", command)


async def test_exit_code_is_passed_on(tmp_path: Path) -> None:
    """The child's exit code is the guard's."""
    child = await GuardedJvm.start("it", _command(tmp_path, "raise SystemExit(7)"))
    assert await child.wait_exited() == 7
    assert not child.is_alive()


async def test_killed_child_counts_as_128_plus_signal(tmp_path: Path) -> None:
    """A child that somebody kills ends the guard with the shell's code for it."""
    child = await GuardedJvm.start("it", _command(tmp_path, "import signal; signal.pause()"))
    psutil.Process(child.pid).kill()
    assert await child.wait_exited() == 128 + signal.SIGKILL


async def test_stop_ends_the_child_politely(tmp_path: Path) -> None:
    """Stopping sends SIGTERM, which a JVM answers with its shutdown hooks."""
    child = await GuardedJvm.start("it", _command(tmp_path, "import signal; signal.pause()"))
    process = psutil.Process(child.pid)
    await child.stop()
    assert not process.is_running()
    assert await child.wait_exited() == 128 + signal.SIGTERM


async def test_stubborn_child_is_killed_after_the_grace(tmp_path: Path) -> None:
    """A child that ignores SIGTERM does not outlive the grace."""
    child = await GuardedJvm.start("it", _command(tmp_path, _STUBBORN, grace_seconds=0.2))

    async def is_deaf() -> bool:
        return "deaf" in child.log_tail()

    await child.wait_ready(is_deaf, seconds_max=_WAIT_SECONDS_MAX)
    await child.stop()
    assert await child.wait_exited() == 128 + signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot bind a child's life to its parent's")
async def test_a_guard_that_does_not_come_to_its_turn_is_no_error_of_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine that hardly moves: the kernel ends both then, as it does where a guard is killed."""
    monkeypatch.setattr(child_module, "_GUARD_END_SECONDS_MAX", 0.2)
    child = await GuardedJvm.start("it", _command(tmp_path, "import signal; signal.pause()", grace_seconds=0.2))
    process = psutil.Process(child.pid)
    guard = process.parent()
    assert guard is not None
    guard.suspend()
    await child.stop()
    assert not child.is_alive()
    await asyncio.to_thread(process.wait, _WAIT_SECONDS_MAX)


async def test_start_that_ends_early_carries_the_log(tmp_path: Path) -> None:
    """Waiting for a child that has ended fails with the last lines it wrote, not with a time-out."""
    child = await GuardedJvm.start("it", _command(tmp_path, "raise SystemExit('the reason')"))

    async def never() -> bool:
        return False

    with pytest.raises(StartFailed, match="the reason"):
        await child.wait_ready(never, seconds_max=_WAIT_SECONDS_MAX)


async def test_child_that_is_never_ready_fails_in_time(tmp_path: Path) -> None:
    """The wait for readiness has an end."""
    child = await GuardedJvm.start("it", _command(tmp_path, "import signal; signal.pause()"))

    async def never() -> bool:
        return False

    with pytest.raises(StartFailed, match=r"not ready within 0\.2 s"):
        await child.wait_ready(never, seconds_max=0.2)
    await child.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot bind a child's life to its parent's")
async def test_killed_guard_takes_the_child_along(tmp_path: Path) -> None:
    """Even SIGKILL of the guard leaves no child."""
    child = await GuardedJvm.start("it", _command(tmp_path, "import signal; signal.pause()"))
    process = psutil.Process(child.pid)
    guard = process.parent()
    assert guard is not None
    guard.kill()
    await asyncio.to_thread(process.wait, _WAIT_SECONDS_MAX)
    await child.wait_exited()
