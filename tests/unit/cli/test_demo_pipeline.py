"""The accounts of the demo of the pipeline; that they balance is tested with the real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics.events import SinkOffsetsCommitted, SinkRecordsPut
from service.cli.demo import run_pipeline_demo
from service.demo.pipeline import FILES, SEARCH, Counted, PipelineAccounts, PipelineReport
from service.setup.__main__ import OWN_SETS

ALL = Counted(60, 60, 30)


def report(**changes: Counted) -> PipelineReport:
    """Sixty rows, of which half have the later column."""
    accounts = PipelineAccounts()
    accounts.source.delivered["mysql-login-connector"] = 60
    held = {"rows": ALL, "records": ALL, "documents": ALL, "parquet": ALL} | changes
    return PipelineReport(ALL, accounts, held["rows"], held["records"], held["documents"], held["parquet"], 2, 1.0)


def test_a_pipeline_that_balances_says_so() -> None:
    """Nothing differs."""
    assert report().differences() == []
    assert report().figures()["balanced"] is True


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": Counted(59, 59, 30)}, "rows of MariaDB"),
        ({"records": Counted(61, 60, 30)}, "records of the topic"),
        ({"documents": Counted(60, 60, 29)}, "documents of OpenSearch"),
        ({"parquet": Counted(60, 60, 0)}, "rows of Parquet"),
    ],
)
def test_a_hop_that_does_not_balance_is_named(changes: dict[str, Counted], words: str) -> None:
    """A row lost, a record twice, a value of the later column lost at one sink or the other."""
    (difference,) = report(**changes).differences()
    assert difference.startswith(words)
    assert report(**changes).figures()["balanced"] is False


def test_what_the_sinks_say_is_summed_by_connector() -> None:
    """Records taken, and records committed, apart."""
    accounts = PipelineAccounts()
    accounts(SinkRecordsPut(connector=SEARCH, task=0, records=3, seconds=0.1))
    accounts(SinkRecordsPut(connector=FILES, task=0, records=2, seconds=0.1))
    accounts(SinkOffsetsCommitted(connector=FILES, task=0, number=1, records=1, seconds=0.1))
    assert (accounts.put, accounts.committed) == ({SEARCH: 3, FILES: 2}, {SEARCH: 0, FILES: 1})


async def test_without_mariadb_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2."""
    monkeypatch.setattr("service.embedded.mariadb.shutil.which", lambda *_, **__: None)
    code = await run_pipeline_demo(folder=tmp_path / "demo", json_file=None, is_kept=False)
    assert code == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith("headrace: there is no mariadb-install-db on the PATH: install MariaDB")
    assert "\n" not in told


def test_set_up_fetches_the_search_server_for_this_demo_alone() -> None:
    """Other demos need none of it."""
    assert OWN_SETS == {("demo", "pipeline"): ("opensearch",)}
