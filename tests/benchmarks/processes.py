"""What is measured runs in processes of its own, exactly as users start it; all of it ends with the measurement."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Servers:
    """A broker and a registry in a process of their own."""

    bootstrap: str
    registry: str
    pid: int


@dataclass(slots=True)
class Child:
    """A running program."""

    process: subprocess.Popen[bytes]
    started_at: float

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Signal it and wait; exit code and seconds."""
        started_at = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(STOP_SECONDS_MAX)
        return code, time.monotonic() - started_at

    def memory_bytes(self) -> int:
        """Resident memory of the process itself, without its children."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def jvm_memory_bytes(self) -> int:
        """Resident memory of its JVM children."""
        children = psutil.Process(self.pid).children(recursive=True)
        return sum(child.memory_info().rss for child in children if child.name() == "java")

    def jvm_heap_bytes_max(self) -> int:
        """What the heaps of its JVM children may grow to, by the last ``-Xmx`` each was started with."""
        children = psutil.Process(self.pid).children(recursive=True)
        return sum(_heap_bytes_max(child.cmdline()) for child in children if child.name() == "java")


def _heap_bytes_max(command: Sequence[str]) -> int:
    """Raises ValueError for a JVM that was started without a bound."""
    bounds = [re.fullmatch(r"-Xmx(\d+)([kmg]?)", word, re.IGNORECASE) for word in command]
    number, unit = [found for found in bounds if found][-1].groups()
    return int(number) << {"": 0, "k": 10, "m": 20, "g": 30}[unit.lower()]


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """``headrace broker --registry``."""
    with headrace("broker", "--registry", "--data", str(folder), log=folder.with_suffix(".log"), pipe=True) as child:
        line = child.process.stdout.readline().decode() if child.process.stdout else ""
        words = dict(word.split("=", 1) for word in line.split()[1:])
        yield Servers(words["bootstrap"], words["registry"], child.pid)


@contextmanager
def headrace(*arguments: str, log: Path, pipe: bool = False) -> Iterator[Child]:
    """The command line in a child process."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "service.cli", *arguments]
    with running(command, log=log, environment=environment, pipe=pipe) as child:
        yield child


@contextmanager
def running(
    command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None, pipe: bool = False
) -> Iterator[Child]:
    """A program whose output goes to ``log``; with ``pipe`` its standard output can be read."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE if pipe else output,
            stderr=output,
        )
    try:
        yield Child(process, time.monotonic())
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def write_properties(path: Path, properties: Mapping[str, str]) -> Path:
    """A properties file; values may hold anything but line ends."""
    lines = (f"{key}={value.replace(chr(92), chr(92) * 2)}\n" for key, value in properties.items())
    path.write_text("".join(lines), encoding="utf-8")
    return path


def http_get(url: str) -> bytes:
    """The body at a loopback address."""
    with urllib.request.urlopen(url, timeout=5) as response:  # noqa: S310 - loopback only
        body: bytes = response.read()
    return body
