"""The broker command says when it is ready, stops when told, and leaves nothing behind, even when killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from service.embedded.probe import is_broker_ready

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_ROOT = Path(__file__).parents[2]
_COMMAND = """
import asyncio, sys
from pathlib import Path
from service.embedded.command import run_broker

sys.exit(asyncio.run(run_broker(data_dir=Path(sys.argv[1]), has_registry=sys.argv[2] == "registry")))
"""
_TEST_THAT_NEVER_ENDS = """
import threading

def test_waits(kafka):
    print("broker", kafka.pid, flush=True)
    threading.Event().wait()
"""
_WAIT_SECONDS_MAX = 120


async def _started(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )


async def _line_with(stream: asyncio.StreamReader | None, word: str) -> str:
    assert stream
    async with asyncio.timeout(_WAIT_SECONDS_MAX):
        while line := (await stream.readline()).decode():
            if word in line:
                return line.rstrip("\n")
    raise AssertionError(f"the output ended without {word!r}")


def _java_children(pid: int) -> list[psutil.Process]:
    found = []
    for child in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it was there for a moment
            if "java" in child.name():
                found.append(child)
    return found


async def test_command_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    """One line `ready` with both addresses; SIGTERM ends it with 0 and without a JVM left."""
    command = await _started("-c", _COMMAND, str(tmp_path), "registry")
    line = await _line_with(command.stdout, "ready")
    first, bootstrap, registry = line.split(" ")
    assert first == "ready"
    async with asyncio.timeout(_WAIT_SECONDS_MAX):
        while not await is_broker_ready(int(bootstrap.removeprefix("bootstrap=127.0.0.1:"))):
            await asyncio.sleep(0.02)  # the probe itself waits two seconds for an answer, and no longer
    assert registry.startswith("registry=http://127.0.0.1:")
    assert registry.endswith("/apis/ccompat/v7")
    servers = _java_children(command.pid)
    assert len(servers) == 2

    command.send_signal(signal.SIGTERM)
    assert await command.wait() == 0
    assert not [server for server in servers if server.is_running()]


async def test_second_command_on_the_same_data_ends_with_2(tmp_path: Path) -> None:
    """A directory in use is a matter of configuration: one line on standard error and exit code 2."""
    first = await _started("-c", _COMMAND, str(tmp_path), "alone")
    assert "registry=" not in await _line_with(first.stdout, "ready")
    second = await _started("-c", _COMMAND, str(tmp_path), "alone")
    _, error = await second.communicate()
    assert second.returncode == 2
    assert error.decode().startswith("headrace: ")
    assert error.count(b"\n") == 1
    first.send_signal(signal.SIGINT)
    assert await first.wait() == 0


async def test_command_ends_when_its_broker_does(tmp_path: Path) -> None:
    """A broker that ends by itself ends the command with 1 and a line that says so."""
    command = await _started("-c", _COMMAND, str(tmp_path), "alone")
    await _line_with(command.stdout, "ready")
    (server,) = _java_children(command.pid)
    server.kill()
    _, error = await command.communicate()
    assert command.returncode == 1
    assert b"ended by itself" in error


async def test_command_can_be_stopped_while_starting(tmp_path: Path) -> None:
    """SIGTERM before the line `ready` ends it with 0 as well, and nothing is left."""
    command = await _started("-c", _COMMAND, str(tmp_path), "alone")
    async with asyncio.timeout(_WAIT_SECONDS_MAX):
        while not (servers := _java_children(command.pid)):
            await asyncio.sleep(0.02)
    command.send_signal(signal.SIGTERM)
    assert await command.wait() == 0
    assert not [server for server in servers if server.is_running()]


@pytest.mark.faults
async def test_killed_test_run_leaves_no_broker(tmp_path: Path) -> None:
    """Pytest with the fixture `kafka`, killed with SIGKILL, takes the broker along."""
    (tmp_path / "test_waits.py").write_text(_TEST_THAT_NEVER_ENDS, encoding="utf-8")
    run = await _started(
        "-m", "pytest", "-s", "-p", "tests.stack", "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)
    )
    line = await _line_with(run.stdout, "broker")
    server = psutil.Process(int(line.split()[-1]))
    assert server.is_running()
    run.kill()
    await run.communicate()
    await asyncio.to_thread(server.wait, _WAIT_SECONDS_MAX)
