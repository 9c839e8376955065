"""Sixty things that go wrong at first, and what each gets: run as a module this prints the table of the guide."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from service.cli import standalone
from service.cli.main import main
from tests.apis.rest.serving import served

WORKER = "bootstrap.servers=127.0.0.1:1\n"
CONNECTOR = "name=orders\nconnector.class=FileStreamSource\nfile=/tmp/x\ntopic=orders\n"
HTTP = "name=quakes\nconnector.class=HttpSource\ntopic=quakes\n"
CONTRACT = 'value.converter=json\ncontract.schema={"type":"record","name":"O","fields":[%s]}\n'
AMOUNT = '{"name":"amount","type":"int"}'
TOLD_CHARACTERS_MAX = 400


@dataclass(frozen=True, slots=True)
class Mistake:
    """What somebody did, in words, and how it is done here."""

    title: str
    words: tuple[str, ...] = ("standalone", "w.properties", "c.properties")
    """Of the command line."""
    connector: str = CONNECTOR
    worker: str = WORKER
    request: tuple[str, str, Any] | None = None
    """Method, path and body, over REST."""


def of_connector(title: str, text: str) -> Mistake:
    """In a connector's file."""
    return Mistake(title, connector=text)


def of_worker(title: str, text: str) -> Mistake:
    """In a worker's file."""
    return Mistake(title, worker=text)


def of_command(title: str, *words: str) -> Mistake:
    """On the command line."""
    return Mistake(title, words)


def over_rest(title: str, method: str, path: str, body: Any = None) -> Mistake:
    """In a request."""
    return Mistake(title, request=(method, path, body))


def field(text: str) -> str:
    """A connector whose contract has this one field."""
    return CONNECTOR + CONTRACT % text


MISTAKES = (
    of_command("a connector's file in the place of the worker's", "standalone", "c.properties", "c.properties"),
    of_command("a connector's file and no worker's", "standalone", "c.properties"),
    of_command("a worker's file in the place of a connector's", "standalone", "w.properties", "w.properties"),
    of_command("a connector's file for `worker`", "worker", "c.properties"),
    of_command("a connector's file twice", "standalone", "w.properties", "c.properties", "c.properties"),
    of_command("a worker's file that is not there", "standalone", "nope.properties", "c.properties"),
    of_command("a connector's file that is not there", "standalone", "w.properties", "nope.properties"),
    of_command("no file at all", "standalone"),
    of_command("a folder for a file", "standalone", ".", "c.properties"),
    of_command("a time to idle that is negative", "standalone", "w.properties", "c.properties", "--until-idle", "-1"),
    of_command("a command misspelt", "conectors"),
    of_command("an option misspelt", "status", "orders", "--jsn"),
    of_command("a config without a name", "create", "connector.class=FileStreamSource"),
    of_command("a setting without a value", "create", "name"),
    of_command("a file that is not there, for a worker", "create", "-f", "nope.properties"),
    of_command("no worker at the address", "status", "orders", "--url", "http://127.0.0.1:1"),
    of_command("an address without http://", "status", "orders", "--url", "localhost:8083"),
    of_command("an address with a wrong port", "status", "orders", "--url", "http://localhost:80x"),
    of_command("a path for an address", "connectors", "--url", "/connectors"),
    of_command("offsets that are no JSON", "offsets", "set", "orders", "{file", "{}"),
    of_command("a place that is none", "topic", "read", "orders", "--from", "yesterday"),
    of_command("a partition that is no number", "topic", "read", "orders", "--partition", "x"),
    of_command("a data folder that is none", "topic", "read", "orders", "--data", "."),
    of_command("brokers that are no address", "topic", "read", "orders", "--bootstrap", "http://localhost:9092"),
    of_command("a file to validate that is not there", "validate", "nope.properties"),
    of_command("a redrive without a connector's file", "redrive", "orders-dead-letters", "w.properties"),
    of_command("a shell without completion", "completion", "tcsh"),
    of_connector("an empty connector's file", ""),
    of_connector("no name", CONNECTOR.replace("name=orders\n", "")),
    of_connector("no class", CONNECTOR.replace("connector.class=FileStreamSource\n", "")),
    of_connector("a class misspelt", CONNECTOR.replace("FileStreamSource", "FileStreamSorce")),
    of_connector("a class of Kafka Connect's that is not here", CONNECTOR.replace("FileStream", "io.example.Jdbc")),
    of_connector("a number that is none", CONNECTOR + "tasks.max=many\n"),
    of_connector("a word that is none of those allowed", CONNECTOR + "errors.tolerance=some\n"),
    of_connector("a converter misspelt", CONNECTOR + "value.converter=avrro\n"),
    of_connector("Avro without a registry", CONNECTOR + CONTRACT % AMOUNT + "value.converter=avro\n"),
    of_connector("a transformation misspelt", CONNECTOR + "transforms=a\ntransforms.a.type=InsertFild$Value\n"),
    of_connector("a transformation without a type", CONNECTOR + "transforms=a\n"),
    of_connector("key fields that the contract does not have", field(AMOUNT) + "key.fields=amuont\n"),
    of_connector("a variable that is not set", HTTP + "http.url=http://127.0.0.1:1/${env:HEADRACE_NOT_SET}\n"),
    of_connector("a variable of a provider that is not there", CONNECTOR.replace("/tmp/x", "${vault:paths:orders}")),
    of_connector("no address", HTTP),
    of_connector("an address without http:// in a config", HTTP + "http.url=example.org/feed\n"),
    of_connector("a contract's file that is not there", CONNECTOR + "contract.schema=file:/nope.avsc\n"),
    of_connector("a contract that is no JSON", CONNECTOR + "contract.schema={\n"),
    of_connector("a contract in JSON Schema", CONNECTOR + 'contract.schema={"type":"object","properties":{}}\n'),
    of_connector("a contract without fields", CONNECTOR + 'contract.schema={"type":"record","name":"O"}\n'),
    of_connector("a contract that is a list", CONNECTOR + "contract.schema=[1]\n"),
    of_connector("a type misspelt", field('{"name":"by","type":"strng"}')),
    of_connector("a type of another language", field('{"name":"by","type":"integer"}')),
    of_connector("a type that may be null, written with ?", field('{"name":"by","type":"int?"}')),
    of_connector("an item's type misspelt", field('{"name":"by","type":{"type":"array","items":"lng"}}')),
    of_connector("a default of another type", field('{"name":"by","type":"int","default":"x"}')),
    of_connector("a field twice", field(f"{AMOUNT},{AMOUNT}")),
    of_connector("a field's name that Avro forbids", field('{"name":"placed-at","type":"string"}')),
    of_connector(
        "a decimal without a precision", field('{"name":"by","type":{"type":"bytes","logicalType":"decimal"}}')
    ),
    of_worker("brokers as a URL", "bootstrap.servers=http://localhost:9092\n"),
    of_worker("a listener without http://", WORKER + "listeners=localhost:8083\n"),
    of_worker("a port that is too large", "bootstrap.servers=embedded\nembedded.kafka.port=99999\n"),
    of_worker("a level of logging that is none", WORKER + "log.level=LOUD\n"),
    of_worker("a protocol that is none", WORKER + "security.protocol=SASL\n"),
    over_rest("a body that is no JSON", "POST", "/connectors", b"name=orders"),
    over_rest("a body that is a list", "POST", "/connectors", []),
    over_rest("a request without a config", "POST", "/connectors", {"name": "orders"}),
    over_rest("a config whose value is a list", "PUT", "/connectors/orders/config", {"topic": ["a", "b"]}),
    over_rest("two names for one connector", "PUT", "/connectors/orders/config", {"name": "other"}),
    over_rest("a connector that is not there", "GET", "/connectors/nope/config"),
    over_rest("a path that is none", "GET", "/conectors"),
    over_rest("a method that a path does not have", "POST", "/connectors/orders/pause"),
    over_rest("a task that is no number", "GET", "/connectors/orders/tasks/first/status"),
)


def outcome(mistake: Mistake, folder: Path) -> tuple[str, str]:
    """Exit code or status, and what is said, in one line without the paths of this machine."""
    if mistake.request is not None:
        return asyncio.run(_answer(*mistake.request))
    (folder / "w.properties").write_text(mistake.worker, encoding="utf-8")
    (folder / "c.properties").write_text(mistake.connector, encoding="utf-8")
    with _inside(folder), _not_starting():
        result = CliRunner().invoke(main, list(mistake.words), env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return str(result.exit_code), told(result.output)


async def _answer(method: str, path: str, body: Any) -> tuple[str, str]:
    async with served() as worker:
        answer = await worker.ask(method, path, body)
    return str(answer.status), told(json.loads(answer.text)["message"])


def told(output: str) -> str:
    """Usage lines and the drawing of tables left out."""
    lines = [line for line in output.splitlines() if not line.startswith(("Usage:", "Try ", "Configuration "))]
    text = " ".join(line for line in lines if not re.search("[┏┡└]", line))
    text = re.sub(r"\s+", " ", re.sub("[│┃]", " ", text)).strip()
    # Lists of what there is grow; the advice behind them is what matters.
    text = re.sub(r"(available connectors are|Known|Built): [^;]*", r"\1: …", text)
    return text.removeprefix("file key value finding ")[:TOLD_CHARACTERS_MAX]


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _not_starting() -> Iterator[None]:
    """A mistake that is not seen must not start a worker: it ends as if it had run."""

    async def run_job(*_: object, **__: object) -> int:
        click.echo("STARTED")
        return 0

    kept: tuple[Any, Callable[..., Any]] = standalone.run_job, standalone.configure_job_logging
    standalone.run_job, standalone.configure_job_logging = run_job, lambda *_: None
    try:
        yield
    finally:
        standalone.run_job, standalone.configure_job_logging = kept


def page() -> str:
    """The guide's page, all of it."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [(each.title, *outcome(each, Path(folder))) for each in MISTAKES]
    cells = [f"| {title} | {code} | {_cell(text)} |" for title, code, text in rows]
    return HEAD + "\n".join(cells) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


HEAD = """# Mistakes, and what each gets

What goes wrong in the first hours, and the words that a worker or the command line has for it. A command's code is its
exit code, a request's the HTTP status. A test makes each of these mistakes and compares this page with what it got;
`python -m tests.apis.cli.mistakes` prints it anew.

| mistake | code | what is said |
|---|---|---|
"""

if __name__ == "__main__":
    sys.stdout.write(page())
