"""States: look at them, wait for them, ask for them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import click

from service.cli.remote.client import AnsweredError, RemoteWorker, wait
from service.cli.remote.figures import COLUMNS, NO_FIGURES, figure_cells, figures_by_connector, tell_trouble
from service.cli.remote.running import Exit, Output, Work, asks_worker

WAIT_SECONDS = 60.0
SETTLED_SECONDS = 2.0
"""A changed connector's states count once they have been the same for so long: the first ones seen may still be those
of the tasks that ran before the change."""
_LOOK_SECONDS = 0.25
_TARGETS = click.Choice(["RUNNING", "PAUSED", "STOPPED"], case_sensitive=False)


@click.command()
@click.argument("name")
@click.option("--wait", "awaited", type=_TARGETS, help="Wait until the connector and its tasks are in this state.")
@click.option("--timeout", default=WAIT_SECONDS, show_default=True, help="Seconds to wait at most.")
@asks_worker
def status(name: str, *, awaited: str | None, timeout: float) -> Work:
    """Show a connector's and its tasks' states, counts, rate, lag, last commit; exit code 1 where one is FAILED."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        if awaited is not None:
            return wait_for_state(worker, output, name, awaited.upper(), seconds=timeout)
        found = worker.get("connectors", name, "status")
        show_status(output, found, (figures_by_connector(worker, name) or {}).get(name))
        return Exit.FAILED if "FAILED" in set(states_of(found)) else Exit.OK

    return work


@click.command()
@click.argument("name")
@click.option("--follow", is_flag=True, help="Go on, and tell every change of state, until interrupted.")
@asks_worker
def logs(name: str, *, follow: bool) -> Work:
    """Show why a connector or its tasks failed: their traces."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        told: dict[str, Mapping[str, Any]] = {}
        while True:
            found = worker.get("connectors", name, "status")
            now = dict(_instances(found))
            for who, state in now.items():
                if told.get(who) != state and (follow or "trace" in state):
                    _tell(output, who, state)
            told = now
            if not follow:
                return Exit.FAILED if "FAILED" in set(states_of(found)) else Exit.OK
            wait(1.0)

    return work


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@asks_worker
def pause(names: tuple[str, ...]) -> Work:
    """Pause connectors: what is fetched is delivered, then nothing is fetched until they are resumed."""
    return _target("pause", "PAUSED", names)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@asks_worker
def resume(names: tuple[str, ...]) -> Work:
    """Resume connectors that are paused or stopped."""
    return _target("resume", "RUNNING", names)


@click.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@asks_worker
def stop(names: tuple[str, ...]) -> Work:
    """Stop connectors: their tasks are given up, so that offsets can be changed."""
    return _target("stop", "STOPPED", names)


@click.command()
@click.argument("name")
@click.option("--task", type=int, help="Only this task.")
@click.option("--tasks", "has_tasks", is_flag=True, help="The tasks too.")
@click.option("--failed", "is_failed_only", is_flag=True, help="Only what is FAILED.")
@asks_worker
def restart(name: str, *, task: int | None, has_tasks: bool, is_failed_only: bool) -> Work:
    """Restart a connector, one of its tasks, or whatever is FAILED."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        if task is not None:
            worker.ask("POST", "connectors", name, "tasks", str(task), "restart")
            output.say(f"{name}-{task} restarts")
            return Exit.OK
        query = {"includeTasks": str(has_tasks).lower(), "onlyFailed": str(is_failed_only).lower()}
        answer = worker.ask("POST", "connectors", name, "restart", query=query)
        if answer.body is None:
            output.say(f"{name} restarts")
        else:
            show_status(output, answer.body)
        return Exit.OK

    return work


def show_status(output: Output, found: Mapping[str, Any], figures: Mapping[str, Any] | None = None) -> None:
    """A table of the connector and its tasks, below it what is wrong; of a trace the first line, `logs` has all of it.

    As JSON the worker's own body, and what it has in figures under ``progress``.
    """
    if output.is_json:
        output.show_json(found if figures is None else {**found, "progress": figures})
        return
    tasks = {} if figures is None else {f"{found['name']}-{each['task']}": each for each in figures["tasks"]}
    is_counted = figures is not None
    rows = []
    for who, state in _instances(found):
        cells = figure_cells(tasks.get(who)) if who in tasks else NO_FIGURES
        rows.append((who, state["state"], *(cells if is_counted else ()), state.get("worker_id")))
    output.show(found, ("", "state", *(COLUMNS if is_counted else ()), "worker"), rows)
    for who, state in _instances(found):
        if "trace" in state:
            output.tell(f"{who}: {failure_of(state)}", "red")
        else:
            tell_trouble(output, who, tasks.get(who))


def failure_of(state: Mapping[str, Any]) -> str:
    """The line of a trace that says what is wrong."""
    return str(state.get("trace", "")).strip().rpartition("\n")[2].strip()


def failed_of(found: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """The states of what is FAILED, of a connector and its tasks."""
    return (state for _, state in (_instances(found) if found else ()) if state["state"] == "FAILED")


def states_of(found: Mapping[str, Any]) -> Iterator[str]:
    """Of the connector and all tasks."""
    return (state["state"] for _, state in _instances(found))


def wait_for_state(
    worker: RemoteWorker, output: Output, name: str, state: str, *, seconds: float, settled_seconds: float = 0.0
) -> Exit:
    """Until the connector and its tasks are in a state, one is FAILED, or the time is over.

    Only states that have not changed for ``settled_seconds`` count.
    """
    ends_at = time.monotonic() + seconds
    before, since = None, time.monotonic()
    while True:
        found = _status_or_none(worker, name)
        now = time.monotonic()
        if found != before:
            before, since = found, now
        states = () if found is None else tuple(states_of(found))
        is_there = bool(states) and set(states) == {state} and (state != "RUNNING" or len(states) > 1)
        is_settled = now - since >= settled_seconds
        if found is not None and ((is_settled and (is_there or "FAILED" in states)) or now > ends_at):
            show_status(output, found)
            return Exit.OK if is_there and is_settled else Exit.FAILED
        if now > ends_at:
            output.say(f"{name} has no state yet")
            return Exit.FAILED
        wait(_LOOK_SECONDS)


def wait_for_commit(
    worker: RemoteWorker, output: Output, name: str, *, seconds: float, settled_seconds: float = 0.0
) -> Exit:
    """Until something is committed, something fails, or the source turns out to have nothing; says which.

    Of a worker that gives no figures, as Kafka Connect's own does not, RUNNING is all that can be waited for.
    """
    ends_at = time.monotonic() + seconds
    before, since = None, time.monotonic()
    while True:
        found = _status_or_none(worker, name)
        now = time.monotonic()
        if found != before:
            before, since = found, now
        states = () if found is None else tuple(states_of(found))
        outcome, figures = None, None
        if found is not None and now - since >= settled_seconds:
            figures = figures_by_connector(worker, name) if "FAILED" not in states else None
            outcome = _outcome(found, states, figures, name)
        if outcome is None and now > ends_at:
            outcome = Exit.FAILED, f"nothing was committed within {seconds:g} s, and nothing has failed"
        if outcome is not None:
            return _tell_outcome(output, found, (figures or {}).get(name), outcome, name=name)
        wait(_LOOK_SECONDS)


_Outcome = tuple[Exit, str]


def _outcome(
    found: Mapping[str, Any], states: tuple[str, ...], figures: Mapping[str, Any] | None, name: str
) -> _Outcome | None:
    """What the wait has come to, in words; None while it has come to nothing."""
    if "FAILED" in states:
        failed = next(failed_of(found))
        return Exit.FAILED, f"failed before its first commit: {failure_of(failed) or 'it is FAILED'}"
    if set(states) != {"RUNNING"} or len(states) == 1:
        return None
    if figures is None:
        return Exit.OK, "RUNNING"
    own = figures.get(name)
    return None if own is None or len(own["tasks"]) < len(states) - 1 else _outcome_of_running(own)


def _outcome_of_running(own: Mapping[str, Any]) -> _Outcome | None:
    """By the figures of a connector that runs with all its tasks."""
    tasks = own["tasks"]
    if any(task["commits"] for task in tasks):
        counts = f"{own['delivered_records']:,} delivered, {own['rejected_records']:,} rejected"
        return Exit.OK, f"first commit is done: {counts} so far"
    trouble = own["trouble"]
    # One try that failed is tried again; a second in a row is no accident.
    if trouble is not None and not trouble["is_over"] and trouble["attempt"] != 1:
        return Exit.FAILED, f"runs, but nothing is committed yet: {trouble['message']}"
    if all(task["is_caught_up"] and not task["records_in_hand"] for task in tasks):
        return Exit.OK, "runs; its source was read to the end, and there was nothing to deliver"
    return None


def _tell_outcome(
    output: Output,
    found: Mapping[str, Any] | None,
    figures: Mapping[str, Any] | None,
    outcome: _Outcome,
    *,
    name: str,
) -> Exit:
    code, text = outcome
    if found is None:
        output.say(f"{name} has no state yet")
    elif figures is None:
        show_status(output, found)
    elif output.is_json:
        output.show_json({**found, "progress": figures, "outcome": text})
    else:
        show_status(output, found, figures)
        output.say(f"{name}: {text}")
    return code


def _status_or_none(worker: RemoteWorker, name: str) -> Mapping[str, Any] | None:
    """None right after the creation, when nobody has told a state yet."""
    try:
        found: Mapping[str, Any] = worker.get("connectors", name, "status")
    except AnsweredError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    return found


def _target(verb: str, state: str, names: tuple[str, ...]) -> Work:
    def work(worker: RemoteWorker, output: Output) -> Exit:
        for name in names:
            worker.ask("PUT", "connectors", name, verb)
            output.say(f"{name}: {state} asked for")
        return Exit.OK

    return work


def _instances(found: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield found["name"], found["connector"]
    for task in found["tasks"]:
        yield f"{found['name']}-{task['id']}", task


def _tell(output: Output, who: str, state: Mapping[str, Any]) -> None:
    if output.is_json:
        output.show_json({"name": who, **state})
        return
    output.tell(f"{who} {state['state']} on {state.get('worker_id')}", "bold")
    if "trace" in state:
        output.tell(state["trace"].rstrip())
