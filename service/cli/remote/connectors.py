"""List, create, change and delete connectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from service.cli.remote.client import AnsweredError, RemoteWorker
from service.cli.remote.figures import COLUMNS, figure_cells, figures_by_connector, tell_trouble
from service.cli.remote.running import Exit, Output, Work, asks_worker, complain
from service.cli.remote.states import (
    SETTLED_SECONDS,
    WAIT_SECONDS,
    failed_of,
    failure_of,
    wait_for_commit,
    wait_for_state,
)

_EXPANDED = [("expand", "status"), ("expand", "info")]
_STATES = click.Choice(["RUNNING", "PAUSED", "STOPPED"], case_sensitive=False)
_URGENT = ("FAILED", "RESTARTING", "UNASSIGNED")
"""States of a task that say more than that its connector is RUNNING, the most urgent first."""
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
    """List all connectors: states, counts, rate, lag, last commit, and what troubles them."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        found = (worker.ask("GET", "connectors", query=_EXPANDED)).body
        by_name = dict(sorted(found.items()))
        figures = figures_by_connector(worker)
        known = figures or {}
        if output.is_json:
            output.show_json({name: _with_figures(entry, known.get(name)) for name, entry in by_name.items()})
            return Exit.OK
        columns = () if figures is None else COLUMNS
        rows = [
            (*_row(name, entry), *(() if figures is None else figure_cells(known.get(name))))
            for name, entry in by_name.items()
        ]
        output.show(by_name, ("name", "type", "state", "tasks", *columns), rows)
        for name, entry in by_name.items():
            failures = [f"{name}: {failure_of(state)}" for state in failed_of(entry.get("status"))]
            for text in failures:
                output.tell(text, "red")
            if not failures:
                tell_trouble(output, name, known.get(name))
        return Exit.OK

    return work


def _with_figures(entry: Mapping[str, Any], figures: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The worker's own body, and the figures under a key of their own."""
    return entry if figures is None else {**entry, "progress": figures}


@click.command()
@_settings
@click.option("--initial-state", type=_STATES, help="State to create it in; RUNNING when not given.")
@click.option("--wait", is_flag=True, help="Wait for its first commit or its first failure, and say which.")
@click.option("--timeout", default=WAIT_SECONDS, show_default=True, help="Seconds to wait at most.")
@asks_worker
def create(
    file: Path | None, settings: tuple[str, ...], *, initial_state: str | None, wait: bool, timeout: float
) -> Work:
    """Create a connector: name=… connector.class=… and its own keys."""
    config = _config(file, settings)
    name = _name_of(config)

    def work(worker: RemoteWorker, output: Output) -> Exit:
        request: dict[str, Any] = {"name": name, "config": config}
        if initial_state is not None:
            request["initial_state"] = initial_state
        answer = worker.ask("POST", "connectors", body=request)
        output.say(f"{name} created", _unless_waited(answer.body, wait=wait))
        _tell_warnings(worker, config)
        if not wait:
            return Exit.OK
        if initial_state is not None and initial_state.upper() != "RUNNING":
            return wait_for_state(worker, output, name, initial_state.upper(), seconds=timeout)
        return wait_for_commit(worker, output, name, seconds=timeout)

    return work


@click.command()
@_settings
@click.option("--wait", is_flag=True, help="Wait for its first commit or its first failure, and say which.")
@click.option("--timeout", default=WAIT_SECONDS, show_default=True, help="Seconds to wait at most.")
@asks_worker
def apply(file: Path | None, settings: tuple[str, ...], *, wait: bool, timeout: float) -> Work:
    """Create a connector, or give it this whole config if it is there."""
    config = _config(file, settings)
    name = _name_of(config)

    def work(worker: RemoteWorker, output: Output) -> Exit:
        answer = worker.ask("PUT", "connectors", name, "config", body=config)
        is_new = answer.status == HTTPStatus.CREATED
        output.say(f"{name} {'created' if is_new else 'changed'}", _unless_waited(answer.body, wait=wait))
        _tell_warnings(worker, config)
        if not wait:
            return Exit.OK
        settled_seconds = 0.0 if is_new else SETTLED_SECONDS
        return wait_for_commit(worker, output, name, seconds=timeout, settled_seconds=settled_seconds)

    return work


@click.command()
@click.argument("name")
@asks_worker
def config(name: str) -> Work:
    """Show the config of a connector, as the worker has it."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        found = worker.get("connectors", name, "config")
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

    def work(worker: RemoteWorker, output: Output) -> Exit:
        answer = worker.ask("PATCH", "connectors", name, "config", body=patched)
        output.say(f"{name} changed", answer.body)
        _tell_warnings(worker, answer.body["config"])
        return Exit.OK

    return work


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@asks_worker
def delete(names: tuple[str, ...]) -> Work:
    """Delete connectors; what they have delivered stays."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        for name in names:
            worker.ask("DELETE", "connectors", name)
            output.say(f"{name} deleted")
        return Exit.OK

    return work


def _tell_warnings(worker: RemoteWorker, config: Mapping[str, str]) -> None:
    """Print to standard error what is odd about a config that was taken; Kafka Connect's own workers do not say."""
    class_name = config.get("connector.class", "")
    if not class_name:
        return
    query = {"warnings": "true"}
    try:
        answer = worker.ask("PUT", "connector-plugins", class_name, "config", "validate", query=query, body=config)
    except AnsweredError:
        return
    for warning in answer.body.get("warnings", ()):
        complain(f"warning: {warning['key']}: {warning['message']}", "yellow")


def _unless_waited(body: object, *, wait: bool) -> object:
    """One answer as JSON: of a command that waits it is the last, the state."""
    return None if wait else body


def _row(name: str, entry: Mapping[str, Any]) -> tuple[object, ...]:
    status, info = entry.get("status") or {}, entry.get("info") or {}
    states = [task["state"] for task in status.get("tasks", ())]
    kind = status.get("type") or info.get("type")
    return name, kind, _whole_state(status.get("connector", {}).get("state"), states), _tasks_told(states)


def _whole_state(connector: str | None, tasks: Sequence[str]) -> str:
    """Of a connector and its tasks together: one that is RUNNING without a task that runs does not."""
    if connector != "RUNNING":
        return connector or "UNASSIGNED"
    return next((state for state in _URGENT if state in tasks), connector)


def _tasks_told(states: Sequence[str]) -> str:
    """How many run; where not all of them do, what the others are."""
    if not states:
        return "none yet"
    others = Counter(state for state in states if state != "RUNNING")
    told = [f"{states.count('RUNNING')} of {len(states)} running", *(f"{n} {s.lower()}" for s, n in others.items())]
    return ", ".join(told) if others else str(len(states))


def _config(file: Path | None, settings: tuple[str, ...]) -> dict[str, str]:
    from service.config.files import ConfigFileError, read_properties  # noqa: PLC0415 - help must not wait for parsers

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
