"""A worker as its operator runs it, and the ways to kill it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import psutil

from tests.bound import bound

ROOT = Path(__file__).parents[2]
LOOK_SECONDS = 0.1
LOG_LOOK_SECONDS = 0.5
"""For a look that reads a whole log, beside a worker that is starting."""
ANSWER_SECONDS_MAX = 60.0
"""Who is not there refuses at once; who is there may be kept waiting by a busy machine."""


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """A properties file."""
    escaped = {key: value.replace("\\", "\\\\") for key, value in properties.items()}
    path.write_text("".join(f"{key}={value}\n" for key, value in escaped.items()), encoding="utf-8")
    return path


class WorkerLife:
    """One ``headrace standalone`` after another, on the same job."""

    def __init__(self, worker: Path, *connectors: Path, log: Path, python_path: tuple[Path, ...] = ()) -> None:
        """Nothing runs yet; ``python_path``: where the job's own connectors are."""
        self._files = [str(worker), *map(str, connectors)]
        self._log = log
        self._python_path = os.pathsep.join(map(str, (ROOT, *python_path)))
        self._process: subprocess.Popen[bytes] | None = None
        self._url, self._began_at = "", 0

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The running, or the last, process."""
        if self._process is None:
            message = "no worker was started"
            raise RuntimeError(message)
        return self._process

    @property
    def is_running(self) -> bool:
        """Whether there is a worker now."""
        return self._process is not None and self._process.poll() is None

    def start(self, *arguments: str) -> None:
        """Start a worker."""
        self._url = ""
        environment = {**os.environ, "PYTHONPATH": self._python_path}
        with self._log.open("ab") as log:
            self._began_at = log.tell()
            command = [sys.executable, "-m", "service.cli", "standalone", *self._files, *arguments]
            # A group of its own, as a terminal or a supervisor gives it.
            self._process = subprocess.Popen(
                bound(command), cwd=ROOT, env=environment, stdout=log, stderr=log, process_group=0
            )

    def kill(self) -> list[psutil.Process]:
        """SIGKILL; returns the children it leaves, which must end by themselves."""
        children = self.children()
        self.process.kill()
        self.process.wait()
        return children

    def children(self) -> list[psutil.Process]:
        """Every process the worker has started."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def kill_spark(self) -> bool:
        """SIGKILL to the Spark JVM alone; False when there is none at this moment."""
        for child in self.children():
            # A JVM that only makes the command line of another may be gone by now.
            with suppress(psutil.NoSuchProcess):
                if child.name() == "java":
                    child.kill()
                    return True
        return False

    def stop(self, *, seconds_max: float, number: int = signal.SIGTERM) -> int:
        """Signal its whole group, as a terminal does, and wait; its exit code."""
        os.killpg(self.process.pid, number)
        return self.process.wait(seconds_max)

    def wait(self, *, seconds_max: float) -> int:
        """Wait until it ends by itself; its exit code."""
        return self.process.wait(seconds_max)

    def end(self) -> None:
        """Leave nothing behind, whatever the test came to."""
        if self.is_running:
            self.kill()

    def log_text(self) -> str:
        """Everything every life has logged."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def events(self, name: str = "") -> list[dict[str, Any]]:
        """What every life has logged as events (``log.format=json``), all or those of one name."""
        return _events_in(self.log_text(), name)

    def get(self, path: str) -> tuple[int, str]:
        """Ask the running worker's HTTP server; status 0 when it does not answer."""
        self._url = self._url or self._told_url()
        if not self._url:
            return 0, ""
        try:
            with urllib.request.urlopen(self._url + path, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310 - our own
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (OSError, HTTPException):  # also where it ends in the middle of an answer
            return 0, ""

    def _told_url(self) -> str:
        """Of this life; empty until it is told."""
        with self._log.open("rb") as log:
            log.seek(self._began_at)
            starts = _events_in(log.read().decode(errors="replace"), "worker_started")
        return str(starts[0]["rest_url"]) if starts else ""


def _events_in(text: str, name: str) -> list[dict[str, Any]]:
    # The last line may be half written.
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.startswith('{"') and line[-1] == "\n"]
    return [line for line in lines if not name or line.get("event") == name]


def pause(seconds: float) -> None:
    """Let other processes get on."""
    threading.Event().wait(seconds)


def wait_until(condition: Callable[[], bool], *, seconds_max: float, look_seconds: float = LOOK_SECONDS) -> bool:
    """Look again and again; False when ``condition`` does not come true in time."""
    for _ in range(int(seconds_max / look_seconds)):
        if condition():
            return True
        pause(look_seconds)
    return condition()
