"""List, create, change and delete connectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from service.cli.remote.client import RemoteWorker
from service.cli.remote.running import Exit, Output, Work, asks_worker
from service.cli.remote.states import SETTLED_SECONDS, WAIT_SECONDS, wait_for_state
from service.config.files import ConfigFileError, read_properties

_EXPANDED = [("expand", "status"), ("expand", "info")]
_STATES = click.Choice(["RUNNING", "PAUSED", "STOPPED"], case_sensitive=False)
_STANDARD_INPUT = Path("/dev/stdin")


def _settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """The two ways to give a config: a file in any of Connect's forms, ``key=value`` words over it."""
    command = click.argument("settings", nargs=-1, metavar="[KEY=VALUE]...")(command)
    return click.option(
        "-f",
        "--file",
        type=click.Path(path_type=Path, allow_dash=True),
        help="Properties, a JSON map, or a create request; - reads standard input.",
    )(command)


@click.command("connectors")
@asks_worker
def list_connectors() -> Work:
    """List all connectors with their states."""

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        found = (await worker.ask("GET", "connectors", query=_EXPANDED)).body
        by_name = dict(sorted(found.items()))
        rows = [_row(name, entry) for name, entry in by_name.items()]
        output.show(by_name, ("name", "type", "state", "tasks", "worker"), rows)
        return Exit.OK

    return work


@click.command()
@_settings
@click.option("--initial-state", type=_STATES, help="State to create it in; RUNNING when not given.")
@click.option("--wait", is_flag=True, help="Wait until it and its tasks are in that state.")
@click.option("--timeout", default=WAIT_SECONDS, show_default=True, help="Seconds to wait at most.")
@asks_worker
def create(
    file: Path | None, settings: tuple[str, ...], *, initial_state: str | None, wait: bool, timeout: float
) -> Work:
    """Create a connector: name=… connector.class=… and its own keys."""
    config = _config(file, settings)
    name = _name_of(config)

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        request: dict[str, Any] = {"name": name, "config": config}
        if initial_state is not None:
            request["initial_state"] = initial_state
        answer = await worker.ask("POST", "connectors", body=request)
        output.say(f"{name} created", _unless_waited(answer.body, wait=wait))
        if not wait:
            return Exit.OK
        return await wait_for_state(worker, output, name, (initial_state or "RUNNING").upper(), seconds=timeout)

    return work


@click.command()
@_settings
@click.option("--wait", is_flag=True, help="Wait until it and its tasks are RUNNING, and stay so for two seconds.")
@click.option("--timeout", default=WAIT_SECONDS, show_default=True, help="Seconds to wait at most.")
@asks_worker
def apply(file: Path | None, settings: tuple[str, ...], *, wait: bool, timeout: float) -> Work:
    """Create a connector, or give it this whole config if it is there."""
    config = _config(file, settings)
    name = _name_of(config)

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        answer = await worker.ask("PUT", "connectors", name, "config", body=config)
        is_new = answer.status == HTTPStatus.CREATED
        output.say(f"{name} {'created' if is_new else 'changed'}", _unless_waited(answer.body, wait=wait))
        if not wait:
            return Exit.OK
        settled_seconds = 0.0 if is_new else SETTLED_SECONDS
        return await wait_for_state(worker, output, name, "RUNNING", seconds=timeout, settled_seconds=settled_seconds)

    return work


@click.command()
@click.argument("name")
@asks_worker
def config(name: str) -> Work:
    """Show the config of a connector, as the worker has it."""

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        found = await worker.get("connectors", name, "config")
        output.show(found, ("key", "value"), sorted(found.items()))
        return Exit.OK

    return work


@click.command()
@click.argument("name")
@click.argument("changes", nargs=-1, required=True, metavar="KEY=VALUE|KEY-...")
@asks_worker
def patch(name: str, changes: tuple[str, ...]) -> Work:
    """Change single keys of a connector's config: KEY=VALUE sets, KEY- removes."""
    patched = _patch_of(changes)

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        answer = await worker.ask("PATCH", "connectors", name, "config", body=patched)
        output.say(f"{name} changed", answer.body)
        return Exit.OK

    return work


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@asks_worker
def delete(names: tuple[str, ...]) -> Work:
    """Delete connectors; what they have delivered stays."""

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        for name in names:
            await worker.ask("DELETE", "connectors", name)
            output.say(f"{name} deleted")
        return Exit.OK

    return work


def _unless_waited(body: object, *, wait: bool) -> object:
    """One answer as JSON: of a command that waits it is the last, the state."""
    return None if wait else body


def _row(name: str, entry: Mapping[str, Any]) -> tuple[object, ...]:
    status, info = entry.get("status") or {}, entry.get("info") or {}
    connector = status.get("connector", {})
    states = [task["state"] for task in status.get("tasks", ())]
    running = sum(state == "RUNNING" for state in states)
    tasks = f"{running}/{len(states)} running" if states else "none"
    if "FAILED" in states:
        tasks += f", {states.count('FAILED')} failed"
    kind = status.get("type") or info.get("type")
    return name, kind, connector.get("state", "UNASSIGNED"), tasks, connector.get("worker_id")


def _config(file: Path | None, settings: tuple[str, ...]) -> dict[str, str]:
    try:
        base = {} if file is None else read_properties(_STANDARD_INPUT if str(file) == "-" else file)
    except ConfigFileError as error:
        raise click.UsageError(str(error)) from error
    return base | dict(map(_pair, settings))


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals or not key:
        message = f"'{word}' is not KEY=VALUE"
        raise click.UsageError(message)
    return key, value


def _patch_of(changes: tuple[str, ...]) -> dict[str, str | None]:
    return dict(map(_change, changes))


def _change(word: str) -> tuple[str, str | None]:
    is_removal = word.endswith("-") and "=" not in word
    return (word.removesuffix("-"), None) if is_removal else _pair(word)


def _name_of(config: Mapping[str, str]) -> str:
    name = config.get("name", "").strip()
    if not name:
        message = "the config has no name: add name=…"
        raise click.UsageError(message)
    return name
