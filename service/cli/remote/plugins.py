"""What a worker can run, and how loudly it logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from service.cli.remote.client import RemoteWorker
from service.cli.remote.running import Exit, Output, Work, asks_worker


@click.group()
def plugins() -> None:
    """Connectors, converters, transformations and predicates of a worker."""


@plugins.command("list")
@click.option("--all", "is_all", is_flag=True, help="Not only connectors.")
@asks_worker
def list_plugins(*, is_all: bool) -> Work:
    """List the plugins that the worker can run."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        found = worker.get("connector-plugins", query={"connectorsOnly": str(not is_all).lower()})
        rows = [(entry["class"], entry.get("type"), entry.get("version")) for entry in found]
        output.show(found, ("class", "type", "version"), rows)
        return Exit.OK

    return work


@plugins.command("config")
@click.argument("name")
@asks_worker
def plugin_config(name: str) -> Work:
    """Show the keys of one."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        found = worker.get("connector-plugins", name, "config")
        output.show(found, ("key", "type", "default", "importance", "meaning"), map(_key_row, found))
        return Exit.OK

    return work


@click.command("topics")
@click.argument("name")
@click.option("--reset", is_flag=True, help="Forget them; those still in use come back.")
@asks_worker
def used_topics(name: str, *, reset: bool) -> Work:
    """Show the topics a connector has used."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        if reset:
            worker.ask("PUT", "connectors", name, "topics", "reset")
            output.say(f"{name}: topics forgotten")
            return Exit.OK
        found = worker.get("connectors", name, "topics")
        output.show(found, ("topic",), [(topic,) for topic in sorted(found[name]["topics"])])
        return Exit.OK

    return work


@click.command()
@click.argument("logger", required=False)
@click.argument("level", required=False)
@click.option("--cluster", is_flag=True, help="On all workers, not only on the one asked.")
@asks_worker
def loggers(logger: str | None, level: str | None, *, cluster: bool) -> Work:
    """Show levels of loggers, or set one."""

    def work(worker: RemoteWorker, output: Output) -> Exit:
        if logger is not None and level is not None:
            query = {"scope": "cluster" if cluster else "worker"}
            answer = worker.ask("PUT", "admin", "loggers", logger, query=query, body={"level": level})
            output.say(f"{logger} is {level}", answer.body)
            return Exit.OK
        path = ("admin", "loggers") if logger is None else ("admin", "loggers", logger)
        found = worker.get(*path)
        named: Mapping[str, Any] = found if logger is None else {logger: found}
        output.show(found, ("logger", "level"), [(name, entry["level"]) for name, entry in sorted(named.items())])
        return Exit.OK

    return work


def _key_row(key: Mapping[str, Any]) -> tuple[object, ...]:
    default = "(required)" if key["required"] else key["default_value"]
    return key["name"], key["type"], default, key["importance"], key["documentation"]
