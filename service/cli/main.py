"""The commands of ``./headrace``; what they do is elsewhere."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from service.version import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="headrace")
def main() -> None:
    """Records from anywhere into Kafka: validated by Spark, exactly once."""


@main.command()
@click.argument("worker", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("connectors", nargs=-1, required=True, type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--until-idle", metavar="SECONDS", type=click.FloatRange(min=0), help="End after all were idle that long."
)
def standalone(worker: Path, connectors: tuple[Path, ...], until_idle: float | None) -> None:
    """Run connectors in one process; the files are those of connect-standalone, .json too."""
    from service.cli.standalone import run_standalone  # noqa: PLC0415 - help must not wait for Spark's imports

    sys.exit(asyncio.run(run_standalone(worker, connectors, idle_seconds=until_idle)))


@main.command("help")
@click.pass_context
def show_help(context: click.Context) -> None:
    """Show this list."""
    click.echo(context.parent.get_help() if context.parent else "")
