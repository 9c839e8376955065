"""Rows of CSV over HTTP: a contract inferred of them has numbers, and the rows meet it, as values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner

from service.cli.main import main

ROWS = b"id,price,paid,ordered,note\n" + b"".join(
    b"%d,%d.50,%s,21.11.2026 9:%02d,%s\n" % (number, number, b"TRUE" if number else b"", number, b"x" * number)
    for number in range(12)
)


class _Export(BaseHTTPRequestHandler):
    """Gives the rows; nothing on ``/empty``, not even a header."""

    def do_GET(self) -> None:
        """Answer."""
        body = b"" if self.path.startswith("/empty") else ROWS
        self.send_response(200)
        self.send_header("Content-Type", "text/csv")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is to be told on standard error."""


@pytest.fixture
def export() -> Iterator[str]:
    """The URL of a source."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Export) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def connector(folder: Path, url: str, **keys: str) -> Path:
    """The file of a source of CSV."""
    file = folder / "c.json"
    properties = {"name": "c", "connector.class": "HttpSource", "http.url": url, "topic": "t", "http.format": "csv"}
    file.write_text(json.dumps({**properties, **{key.replace("_", "."): value for key, value in keys.items()}}))
    return file


def test_rows_become_values(tmp_path: Path, export: str) -> None:
    """By the inferred schema alone, without another key of the config."""
    out = tmp_path / "rows.avsc"
    result = CliRunner().invoke(main, ["contract", "infer", str(connector(tmp_path, export)), "--out", str(out)])
    assert result.exit_code == 0, result.output
    schema: dict[str, Any] = {field["name"]: field for field in json.loads(out.read_text())["fields"]}
    assert (schema["id"]["type"], schema["id"]["json.coerce"]) == ("long", ["numbers"])
    assert (schema["price"]["type"]["scale"], schema["price"]["json.coerce"]) == (2, ["numbers"])
    assert (schema["paid"]["type"], schema["paid"]["json.coerce"]) == (["null", "boolean"], ["booleans", "empty"])
    assert schema["ordered"]["json.pattern"] == "d.M.yyyy H:mm"
    assert schema["note"]["type"] == "string"

    file = connector(tmp_path, export, contract_schema=f"file:{out}", contract_coerce="")
    shown = json.loads(CliRunner().invoke(main, ["preview", str(file), "--json"]).stdout)
    assert shown["counts"]["valid"] == 12
    assert shown["records"][1]["value"]["id"] == 1
    assert [shown["records"][at]["value"]["paid"] for at in (0, 1)] == [None, True]


def test_numbers_are_taken_by_default(tmp_path: Path, export: str) -> None:
    """Of CSV; a config that wants none of it says so."""
    schema = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
    for coerce, valid in (({}, 12), ({"contract_coerce": ""}, 0)):
        file = connector(tmp_path, export, contract_schema=schema, errors_tolerance="all", **coerce)
        shown = json.loads(CliRunner().invoke(main, ["preview", str(file), "--json"]).stdout)
        assert (shown["counts"]["records"], shown["counts"]["valid"]) == (12, valid)


def test_a_source_that_answers_nothing(tmp_path: Path, export: str) -> None:
    """One sentence, with what to try; and of one that is away, with the reason."""
    result = CliRunner().invoke(main, ["contract", "infer", str(connector(tmp_path, f"{export}/empty"))])
    assert result.exit_code == 2
    assert "the sample is empty: try again when the source has records" in result.output
    result = CliRunner().invoke(main, ["contract", "infer", str(connector(tmp_path, "http://127.0.0.1:1/"))])
    assert result.exit_code == 1
    assert "the source gave nothing:" in result.output
