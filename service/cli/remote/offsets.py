"""Offsets of a connector: look at them, move them, forget them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from service.cli.remote.client import RemoteWorker
from service.cli.remote.running import Exit, Output, Work, asks_worker


@click.group()
def offsets() -> None:
    """Offsets of a connector; it must be stopped before they are changed."""


@offsets.command("show")
@click.argument("name")
@asks_worker
def show_offsets(name: str) -> Work:
    """Show where a connector stands: source offsets, or a sink's consumer offsets."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        found = worker.get("connectors", name, "offsets")
        rows = [(_text(entry["partition"]), _text(entry["offset"])) for entry in found["offsets"]]
        output.show(found, ("partition", "offset"), rows)
        return Exit.OK

    return work


@offsets.command("set")
@click.argument("name")
@click.argument("partition", metavar="PARTITION_JSON")
@click.argument("offset", metavar="OFFSET_JSON")
@asks_worker
def set_offset(name: str, partition: str, offset: str) -> Work:
    """Set the offset of one partition; null forgets it."""
    entry = {"partition": _json(partition), "offset": _json(offset)}

    def work(worker: RemoteWorker, output: Output) -> Exit:
        answer = worker.ask("PATCH", "connectors", name, "offsets", body={"offsets": [entry]})
        output.say(_message(answer.body), answer.body)
        return Exit.OK

    return work


@offsets.command("reset")
@click.argument("name")
@asks_worker
def reset_offsets(name: str) -> Work:
    """Forget all offsets: the connector begins at its beginning."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        answer = worker.ask("DELETE", "connectors", name, "offsets")
        output.say(_message(answer.body), answer.body)
        return Exit.OK

    return work


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        message = f"'{text}' is not JSON: {error}"
        raise click.UsageError(message) from error


def _message(body: Mapping[str, Any]) -> str:
    return str(body.get("message", "done"))
