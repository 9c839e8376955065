"""What keeps a command from starting is one line on standard error and standalone's exit code, never a trace."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from service.cli import demo, redrive
from service.embedded.errors import DataDirectoryBusy, EmbeddedError, PortBusy, StartFailed
from service.embedded.ownership import owned
from service.kafka.errors import DeliveryFatal
from service.redrive.run import TypedRowsError, UnknownDeadLetterTopicError
from service.rest.server import ListenError

ROOT = Path(__file__).parents[3]
LONG = "a folder of this name " * 10
REFUSALS: list[tuple[Exception, int]] = [
    (DataDirectoryBusy(LONG), 2),
    (PortBusy("port 1"), 1),
    (StartFailed("kafka was not ready within 60 s"), 1),
    (EmbeddedError("x"), 2),
    (ListenError("Cannot listen on http://127.0.0.1:8083: taken"), 1),
    (OSError(errno.ENOSPC, "No space left on device"), 1),
    (DeliveryFatal("login refused"), 2),
    (PermissionError(errno.EACCES, "no access"), 2),
]


def headrace(*words: str) -> subprocess.CompletedProcess[str]:
    """One command, as people run it."""
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def job(tmp_path: Path) -> tuple[Path, Path]:
    """A worker's file, with everything embedded, and a connector's."""
    worker, connector = tmp_path / "worker.properties", tmp_path / "connector.properties"
    worker.write_text(
        f"bootstrap.servers=embedded\ndata.dir={tmp_path / 'data'}\nlisteners=http://127.0.0.1:0\n"
        "key.converter=string\nvalue.converter=json\n",
        encoding="utf-8",
    )
    connector.write_text("name=n\nconnector.class=FileStreamSource\ntopic=t\nfile=/tmp/x\n", encoding="utf-8")
    return worker, connector


@pytest.fixture
def taken() -> Iterator[None]:
    """Someone listens on the demo's port; whoever did already will do."""
    with closing(socket.socket()) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", 8083))
            listener.listen()
        except OSError:
            pass
        yield


async def test_a_redrive_beside_the_running_worker_s_own_broker(tmp_path: Path, job: tuple[Path, Path]) -> None:
    """The data directory is the worker's; the line says so."""
    async with owned(tmp_path / "data" / "kafka", wait_seconds_max=0):
        done = headrace("redrive", "n-dead-letters", *map(str, job))
    assert done.returncode == 2, done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("headrace: "))
    assert "in use by another worker" in line
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("taken")
def test_a_demo_that_is_kept_where_the_port_is_taken(tmp_path: Path) -> None:
    """The line names the address."""
    done = headrace("demo", "--keep", "--data", str(tmp_path))
    assert done.returncode == 1, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("headrace: Cannot listen on http://127.0.0.1:8083: ")


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in this process leave its logs and limits alone."""
    monkeypatch.setattr(redrive, "configure_job_logging", lambda _: None)
    monkeypatch.setattr(demo, "configure_logging", lambda **_: None)
    for command in (redrive, demo):
        monkeypatch.setattr(command, "raise_file_limit", lambda: None)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(
    ("refusal", "code"),
    [*REFUSALS, (UnknownDeadLetterTopicError("no connector"), 2), (TypedRowsError("rows"), 2)],
    ids=repr,
)
async def test_each_refusal_of_a_redrive(
    *,
    refusal: Exception,
    code: int,
    job: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """However long, it is one line."""

    async def refused(*_: object) -> None:
        raise refusal

    monkeypatch.setattr(redrive, "redrive", refused)
    assert await redrive.run_redrive("t", job[0], [job[1]]) == code
    assert capsys.readouterr().err == f"headrace: {refusal}\n"


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("refusal", "code"), REFUSALS, ids=repr)
async def test_each_refusal_of_a_demo(
    *,
    refusal: Exception,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """However long, it is one line."""

    def refused(*_: object, **__: object) -> None:
        raise refusal

    monkeypatch.setattr(demo, "open_demo", refused)
    assert await demo.run_demo(folder=tmp_path, json_file=None, is_kept=False) == code
    assert capsys.readouterr().err == f"headrace: {refusal}\n"
