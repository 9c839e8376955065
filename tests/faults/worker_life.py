"""A worker as its operator runs it, and the ways to kill it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """A properties file."""
    escaped = {key: value.replace("\\", "\\\\") for key, value in properties.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()), encoding="utf-8")
    return path


class WorkerLife:
    """One ``headrace standalone`` after another, on the same job."""

    def __init__(self, worker: Path, *connectors: Path, log: Path) -> None:
        """Nothing runs yet."""
        self._files = [str(worker), *map(str, connectors)]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running, or the last, process."""
        if self._process is None:
            message = "no worker was started"
            raise RuntimeError(message)
        return self._process

    def start(self, *arguments: str) -> None:
        """Start a worker."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", "service.cli", "standalone", *self._files, *arguments]
            self._process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def kill(self) -> list[psutil.Process]:
        """SIGKILL; returns the children it leaves, which must end by themselves."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        return children

    def kill_spark(self) -> bool:
        """SIGKILL to the Spark JVM alone; False when there is none at this moment."""
        for child in psutil.Process(self.process.pid).children(recursive=True):
            if child.name() == "java":
                child.kill()
                return True
        return False

    def stop(self, *, seconds_max: float, number: int = signal.SIGTERM) -> int:
        """Signal it and wait; its exit code."""
        self.process.send_signal(number)
        return self.process.wait(seconds_max)

    def wait(self, *, seconds_max: float) -> int:
        """Wait until it ends by itself; its exit code."""
        return self.process.wait(seconds_max)

    def end(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def log_text(self) -> str:
        """Everything every life has logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")


def wait_until(condition: Callable[[], bool], *, seconds_max: float, pause: Callable[[float], object]) -> bool:
    """Poll ``condition``, pausing between looks; False when it does not come true in time."""
    for _ in range(int(seconds_max / 0.1)):
        if condition():
            return True
        pause(0.1)
    return condition()
