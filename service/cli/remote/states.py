"""States: look at them, wait for them, ask for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import click
from rich.text import Text

from service.cli.remote.client import AnsweredError, RemoteWorker
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
    """Show a connector's state and its tasks'; exit code 1 where one is FAILED."""

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        if awaited is not None:
            return await wait_for_state(worker, output, name, awaited.upper(), seconds=timeout)
        found = await worker.get("connectors", name, "status")
        show_status(output, found)
        return Exit.FAILED if "FAILED" in set(states_of(found)) else Exit.OK

    return work


@click.command()
@click.argument("name")
@click.option("--follow", is_flag=True, help="Go on, and tell every change of state, until interrupted.")
@asks_worker
def logs(name: str, *, follow: bool) -> Work:
    """Show why a connector or its tasks failed: their traces."""

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        told: dict[str, Mapping[str, Any]] = {}
        while True:
            found = await worker.get("connectors", name, "status")
            now = dict(_instances(found))
            for who, state in now.items():
                if told.get(who) != state and (follow or "trace" in state):
                    _tell(output, who, state)
            told = now
            if not follow:
                return Exit.FAILED if "FAILED" in set(states_of(found)) else Exit.OK
            await asyncio.sleep(1.0)

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

    async def work(worker: RemoteWorker, output: Output) -> Exit:
        if task is not None:
            await worker.ask("POST", "connectors", name, "tasks", str(task), "restart")
            output.say(f"{name}-{task} restarts")
            return Exit.OK
        query = {"includeTasks": str(has_tasks).lower(), "onlyFailed": str(is_failed_only).lower()}
        answer = await worker.ask("POST", "connectors", name, "restart", query=query)
        if answer.body is None:
            output.say(f"{name} restarts")
        else:
            show_status(output, answer.body)
        return Exit.OK

    return work


def show_status(output: Output, found: Mapping[str, Any]) -> None:
    """A table of the connector and its tasks; the first line of a trace, `logs` has all of it."""
    rows = [
        (who, state["state"], state.get("worker_id"), state.get("trace", "").strip().rpartition("\n")[2])
        for who, state in _instances(found)
    ]
    output.show(found, ("", "state", "worker", "failure"), rows)


def states_of(found: Mapping[str, Any]) -> Iterator[str]:
    """Of the connector and all tasks."""
    return (state["state"] for _, state in _instances(found))


async def wait_for_state(
    worker: RemoteWorker, output: Output, name: str, state: str, *, seconds: float, settled_seconds: float = 0.0
) -> Exit:
    """Until the connector and its tasks are in a state, one is FAILED, or the time is over.

    Only states that have not changed for ``settled_seconds`` count.
    """
    ends_at = time.monotonic() + seconds
    before, since = None, time.monotonic()
    while True:
        found = await _status_or_none(worker, name)
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
        await asyncio.sleep(_LOOK_SECONDS)


async def _status_or_none(worker: RemoteWorker, name: str) -> Mapping[str, Any] | None:
    """None right after the creation, when nobody has told a state yet."""
    try:
        found: Mapping[str, Any] = await worker.get("connectors", name, "status")
    except AnsweredError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            return None
        raise
    return found


def _target(verb: str, state: str, names: tuple[str, ...]) -> Work:
    async def work(worker: RemoteWorker, output: Output) -> Exit:
        for name in names:
            await worker.ask("PUT", "connectors", name, verb)
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
    output.console.print(Text.assemble((who, "bold"), f" {state['state']} on {state.get('worker_id')}"))
    if "trace" in state:
        output.console.print(Text(state["trace"].rstrip()))
