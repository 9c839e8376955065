"""``headrace new`` writes sources and sinks that pass the contract suite at once, run where they were written."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from fetchers.sdk.testing import FetcherContract
from service.cli.main import main
from service.config.definition import read_definition
from service.config.files import read_properties
from service.sinks.definition import read_sink_definition
from service.sinks.testing import SinkContract

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "add-a-fetcher.md"
SECONDS_MAX = 170


def new(*arguments: str, kind: str = "source") -> tuple[int, str]:
    """Exit code and output of ``headrace new``."""
    result = CliRunner().invoke(main, ["new", kind, *arguments])
    return result.exit_code, result.output


@pytest.fixture(name="sources")
def sources_fixture(tmp_path: Path) -> Iterator[Path]:
    """A folder outside of the clone with a source of each sort, and a sink."""
    assert new("issues", "--http", "--in", str(tmp_path))[0] == 0
    assert new("acme_rows", "--in", str(tmp_path))[0] == 0
    assert new("webhook", "--in", str(tmp_path), kind="sink")[0] == 0
    yield tmp_path
    # A module that is there already is a name that cannot be taken.
    sys.modules.pop("webhook", None)


@pytest.mark.timeout(SECONDS_MAX + 30)
async def test_they_pass_where_they_are(sources: Path) -> None:
    """``./headrace test PATH`` from any folder; what is skipped says how to mend it."""
    process = await asyncio.create_subprocess_exec(
        ROOT / "headrace",
        "test",
        "-q",
        "issues",
        "acme_rows",
        "webhook",
        cwd=sources,
        env={name: text for name, text in os.environ.items() if not name.startswith("PYTEST")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(SECONDS_MAX):
        output, _ = await process.communicate()
    suite = [name for name in vars(FetcherContract) if name.startswith("test_")]
    assert process.returncode == 0, output.decode()
    sinks = [name for name in vars(SinkContract) if name.startswith("test_")]
    assert f"{2 * len(suite) + len(sinks) - 1} passed, 1 skipped" in output.decode()
    assert "define the property `records_given` in your ScriptedSource" in output.decode()


@pytest.mark.parametrize(("name", "options"), [("checked_list", ["--http"]), ("checked_rows", [])])
def test_their_connector_files_are_right(
    tmp_path: Path, name: str, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is found wrong with them, nor is there a key that nothing reads."""
    assert new(name, *options, "--in", str(tmp_path))[0] == 0
    monkeypatch.syspath_prepend(str(tmp_path / name))
    properties = read_properties(tmp_path / name / f"{name}.properties")
    reading = read_definition(properties, worker={"key.converter": "string", "value.converter": "json"})
    assert reading.definition is not None
    assert reading.findings == ()


def test_a_sinks_connector_file_is_right(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found wrong with it, and the guide shows what is written, file by file."""
    monkeypatch.syspath_prepend(str(sources / "webhook"))
    properties = read_properties(sources / "webhook" / "webhook.properties")
    reading = read_sink_definition(properties, worker={"key.converter": "string", "value.converter": "string"})
    assert reading.definition is not None
    assert reading.findings == ()
    guide = GUIDE.with_name("add-a-sink.md").read_text("utf-8")
    blocks = re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    written = [path for path in (sources / "webhook").iterdir() if path.is_file()]
    assert dict(blocks) == {path.name: path.read_text("utf-8") for path in written}


def test_the_guide_shows_what_is_written(sources: Path) -> None:
    """Its incremental source, which the test above runs, is the command's, file by file."""
    blocks = re.findall(r"^```\w+ file=(\S+)\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    shown = {name: text for name, text in blocks if "issues" in name}
    assert shown == {name: (sources / "issues" / name).read_text("utf-8") for name in shown}
    assert len(shown) == 2


def test_what_is_said_to_do_next_can_be_done(tmp_path: Path) -> None:
    """A wheel has no tests to run by; a clone has, by its launcher."""
    _, output = new("told_rows", "--in", str(tmp_path))
    assert f"./headrace test {tmp_path / 'told_rows'} (in a clone of headrace)" in output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("My-Source", "take small letters, digits and _"),
        ("class", "cannot be the name of a module"),
        ("../up", "cannot be the name of a module"),
        ("json", "there is a Python module json already"),
        ("there", "is there already: take another name"),
    ],
)
def test_names_that_cannot_be_taken_are_refused(tmp_path: Path, name: str, words: str) -> None:
    """In one sentence that says what to do, exit code 2, and nothing is written."""
    (tmp_path / "there").mkdir()
    exit_code, output = new(name, "--in", str(tmp_path))
    assert exit_code == 2
    assert words in output
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
