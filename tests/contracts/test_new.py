"""``headrace new`` writes sources and sinks that pass the contract suite at once, run where they were written."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

import service.cli.new
from fetchers.sdk.testing import FetcherContract
from service.cli.main import main
from service.config.definition import read_definition
from service.config.files import read_properties
from service.sinks.definition import read_sink_definition
from service.sinks.testing import SinkContract

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "add-a-fetcher.md"
SECONDS_MAX = 500


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
    # Of the rows nothing tells how many were given, and they have no limit of requests.
    assert f"{2 * len(suite) + len(sinks) - 2} passed, 1 skipped" in output.decode()
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


def test_what_is_printed_and_written_can_be_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher as it is called here; the connector file is valid, and previewed by its contract from any folder."""
    code, printed = new("tickets", "--http", "--in", str(tmp_path))
    folder = tmp_path / "tickets"
    launcher = "./headrace" if Path.cwd() == ROOT else ROOT / "headrace"
    assert code == 0
    assert f"test it:    {launcher} test {folder}\n" in printed
    assert f"look at it: PYTHONPATH={folder} {launcher} preview {folder}/tickets.properties\n" in printed
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.chdir(tmp_path)
    file = folder / "tickets.properties"
    assert CliRunner().invoke(main, ["validate", str(file)]).exit_code == 0
    monkeypatch.setenv("TICKETS_TOKEN", "s3same")
    text = file.read_text("utf-8")
    with tickets() as (url, tokens):
        text = (
            text.replace("https://api.example.com/v1/items", url)
            .replace("token=your-", "# ")
            .replace("# Better from the environment, or a file: ", "")
        )
        file.write_text(text, encoding="utf-8")
        shown = CliRunner().invoke(main, ["preview", str(file), "--json", "--timeout", "20"])
    assert shown.exit_code == 0, shown.output
    found = json.loads(shown.stdout)
    assert [record["verdict"] for record in found["records"]] == ["valid", "rejected"]
    assert (found["records"][0]["key"], found["records"][1]["reason"]) == ("1", "wrong_type")
    assert set(tokens) == {"Bearer s3same"}


@contextmanager
def tickets() -> Iterator[tuple[str, list[str | None]]]:
    """The address of a list of two tickets, the second of which does not meet the contract, and who has asked."""
    tokens: list[str | None] = []
    items = [{"id": id_, "updated_at": "2026-01-01T00:00:00Z"} for id_ in (1, "two")]

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            tokens.append(self.headers.get("Authorization"))
            body = json.dumps({"items": items, "next": None}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is to be told on standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", tokens
        server.shutdown()
        thread.join()


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
    assert len(shown) == 4


def test_a_wheel_says_what_can_be_done_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has its command on the path, and nothing to run tests by."""
    monkeypatch.setattr(service.cli.new, "__file__", str(tmp_path / "headrace/service/cli/new.py"))
    _, output = new("told_rows", "--in", str(tmp_path))
    assert "test it:    ./headrace test FOLDER in a clone of headrace\n" in output
    assert f" headrace preview {tmp_path}/told_rows/told_rows.properties\n" in output


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
