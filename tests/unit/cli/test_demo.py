"""What the demo's command says and how it ends; that a demo balances is tested with the real one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.cli import demo as command
from service.demo.accounts import Accounts
from service.demo.run import DemoReport
from tests.integration.test_demo import report


class _FakeWorker:
    """Has been asked to stop already."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self) -> None:
        """Count."""
        self.runs += 1

    def request_stop(self, reason: str) -> None:
        """Nothing runs."""


@pytest.fixture
def worker() -> _FakeWorker:
    """What ``--keep`` goes on with."""
    return _FakeWorker()


def give(monkeypatch: pytest.MonkeyPatch, result: DemoReport, worker: _FakeWorker) -> None:
    """Have every demo end with this report."""
    addresses = SimpleNamespace(rest="http://h:8083", bootstrap="h:9092", registry="http://h:8081")

    async def run() -> DemoReport:
        return result

    @asynccontextmanager
    async def opened(folder: Path, accounts: Accounts, *, listener: str) -> AsyncIterator[SimpleNamespace]:
        del folder, accounts, listener
        yield SimpleNamespace(run=run, running=SimpleNamespace(addresses=addresses, new_worker=lambda: worker))

    monkeypatch.setattr(command, "open_demo", opened)
    monkeypatch.setattr(command, "configure_logging", lambda **_: None)


@pytest.mark.parametrize(("letters", "exit_code", "words"), [(2, 0, "every record exactly once"), (1, 1, "do not")])
async def test_the_exit_code_says_whether_the_accounts_balance(
    tmp_path: Path,
    worker: _FakeWorker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    letters: int,
    exit_code: int,
    words: str,
) -> None:
    """A script that runs the demo need not read the table."""
    give(monkeypatch, report(letters=letters), worker)
    assert await command.run_demo(folder=tmp_path, json_file=None, is_kept=False) == exit_code
    assert words in capsys.readouterr().out
    assert worker.runs == 0


async def test_a_demo_that_is_kept_says_where_everything_is(
    tmp_path: Path, worker: _FakeWorker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And goes on until a signal."""
    give(monkeypatch, report(), worker)
    assert await command.run_demo(folder=tmp_path, json_file=None, is_kept=True) == 0
    told = dict(
        line.split(":", 1) for line in capsys.readouterr().out.splitlines() if "://h:" in line or "h:9092" in line
    )
    assert {name: address.strip() for name, address in told.items()} == {
        "REST": "http://h:8083",
        "health": "http://h:8083/health/ready",
        "metrics": "http://h:8083/metrics",
        "Kafka": "h:9092",
        "registry": "http://h:8081",
    }
    assert worker.runs == 1
