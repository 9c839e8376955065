"""``headrace preview`` of HTTP sources that refuse, are silent, or never end; and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from click.testing import CliRunner, Result

from service.cli.main import main
from tests.bound import bound


class _Api(BaseHTTPRequestHandler):
    """Refuses on ``/secret``, and gives one more page for every page on ``/endless``; tells what it was sent."""

    tokens: ClassVar[list[str | None]] = []
    """What each request had as ``Token``."""

    def do_GET(self) -> None:
        """Answer as the path says."""
        self.tokens.append(self.headers.get("Token"))
        is_refused = self.path.startswith("/secret")
        body = b'{"error":"bad token"}' if is_refused else json.dumps([{"id": at} for at in range(3)]).encode()
        self.send_response(401 if is_refused else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        number = int(self.path.partition("=")[2] or 0) if self.path.startswith("/endless") else 0
        self.send_header("Link", f'<http://{self.headers["Host"]}/endless?page={number + 1}>; rel="next"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is to be told on standard error."""


@pytest.fixture
def api() -> Iterator[str]:
    """The URL of a source."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Api) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def silent_source() -> Iterator[tuple[str, socket.socket]]:
    """A URL whose server takes the connection and says nothing, and its socket."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", listening


def connector(folder: Path, url: str, **keys: str) -> Path:
    """The file of an HTTP source."""
    file = folder / "c.json"
    properties = {"name": "c", "connector.class": "HttpSource", "http.url": url, "topic": "t"}
    file.write_text(json.dumps({**properties, **{key.replace("_", "."): value for key, value in keys.items()}}))
    return file


def previewed(file: Path, *options: str) -> Result:
    """What the command says."""
    return CliRunner().invoke(main, ["preview", str(file), *options])


def test_bad_credentials_are_told_in_one_sentence(tmp_path: Path, api: str) -> None:
    """With the source's own words, without the token, and without a trace."""
    result = previewed(connector(tmp_path, f"{api}/secret?token=s3same", http_headers_x_token="s3same"))
    words = " ".join(result.output.split())
    assert result.exit_code == 1
    assert "The source could not be read" in words
    assert "401" in words
    assert "s3same" not in words
    assert "Traceback" not in words


@pytest.mark.parametrize(
    "command", [["preview"], ["contract", "infer"], ["validate"], ["validate", "--deep"]], ids=" ".join
)
def test_a_variable_is_never_sent_itself(
    tmp_path: Path, api: str, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the worker's file it is resolved as by a worker that names no providers, or refused in one sentence."""
    monkeypatch.setattr(_Api, "tokens", [])
    monkeypatch.delenv("HEADRACE_TEST_NONE", raising=False)
    monkeypatch.setenv("HEADRACE_TEST_TOKEN", "s3same")
    (tmp_path / "worker.properties").write_text("config.providers=\n")
    known, unknown = "${env:HEADRACE_TEST_TOKEN}", "${env:HEADRACE_TEST_NONE}"
    for variable, options in ((known, ()), (unknown, ()), (known, ("--worker", str(tmp_path / "worker.properties")))):
        file = connector(tmp_path, f"{api}/list", http_header_token=variable)
        result = CliRunner().invoke(main, [*command, str(file), *options])
        is_known = variable == known and not options
        assert result.exit_code == (0 if is_known else 2), result.output
        assert ("error" in result.output and "resolved" in result.output) is not is_known
    assert set(_Api.tokens) <= {"s3same"}
    assert bool(_Api.tokens) is (command != ["validate"])


def test_a_source_that_never_ends_is_left_after_the_sample(tmp_path: Path, api: str) -> None:
    """Page after page, each with a link to the next."""
    file = connector(tmp_path, f"{api}/endless", http_pagination_type="link")
    result = previewed(file, "--max", "7", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["counts"]["valid"], found["source"]["has_more"], found["source"]["records_left"]) == (7, True, 2)


def test_a_source_that_answers_nothing_is_told_with_what_to_try(tmp_path: Path) -> None:
    """After the time that the command gives it."""
    with silent_source() as (url, _):
        result = previewed(connector(tmp_path, url), "--timeout", "0.2")
    assert result.exit_code == 1
    assert "The source gave no record within 0.2 s" in " ".join(result.output.split())


def test_interrupting_ends_it_and_leaves_neither_a_process_nor_a_file(tmp_path: Path) -> None:
    """Ctrl-C while the source is silent."""
    with silent_source() as (url, listening):
        file = connector(tmp_path, url)
        command = bound([sys.executable, "-m", "service.cli", "preview", str(file), "--timeout", "3000"])
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        root = Path(__file__).resolve().parents[3]
        process = subprocess.Popen(
            command, cwd=root, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        with process:
            asked, _ = listening.accept()
            with asked:
                process.send_signal(signal.SIGINT)
                _, told = process.communicate(timeout=300)
    assert (process.returncode, told) == (130, "headrace: interrupted; nothing was written\n")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert [*tmp_path.iterdir()] == [file]
