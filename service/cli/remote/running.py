"""What every command that asks a worker shares: options, exit codes, output for people or for scripts."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from service.cli.figures import STATE_STYLES
from service.cli.printing import printable, printable_json
from service.cli.remote.client import (
    DEFAULT_URL,
    AnsweredError,
    RemoteError,
    RemoteSettings,
    RemoteWorker,
    UnreachableError,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class Exit(IntEnum):
    """Exit codes of the commands that ask a worker, for scripts."""

    OK = 0
    FAILED = 1
    """It is there, but FAILED; or it has not become what was waited for."""
    REFUSED = 2
    """Wrong usage, wrong config, no permission."""
    NOT_FOUND = 3
    UNREACHABLE = 4
    CONFLICT = 5
    """Not now (a rebalance that does not end), or the name is taken."""


_EXITS: Mapping[int, Exit] = {HTTPStatus.NOT_FOUND: Exit.NOT_FOUND, HTTPStatus.CONFLICT: Exit.CONFLICT}


@dataclass(frozen=True, slots=True)
class Output:
    """Tables for people, JSON for scripts. Colours only on a terminal, never where ``NO_COLOR`` is set.

    What draws tables is imported when one is drawn: a worker is asked often, and by scripts.
    """

    is_json: bool

    def show(self, body: object, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """The worker's own body as JSON, or a table of it."""
        if self.is_json:
            self.show_json(body)
            return
        from rich.table import Table  # noqa: PLC0415 - see above

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(_cell(value) for value in row))
        _console().print(table)

    def show_json(self, body: object) -> None:
        """Indented, keys in the worker's order."""
        click.echo(printable_json(json.dumps(body, indent=2, ensure_ascii=False)))

    def say(self, text: str, body: object = None) -> None:
        """One line; in JSON mode ``body``, if there is one."""
        if not self.is_json:
            self.tell(text)
        elif body is not None:
            self.show_json(body)

    def tell(self, text: str, style: str = "") -> None:
        """One line for people, not broken and never taken for markup."""
        click.echo(click.style(printable(text), **_STYLES.get(style, {})), color=_COLOUR)


_COLOUR = False if "NO_COLOR" in os.environ else None
_STYLES: Mapping[str, Mapping[str, Any]] = {
    "red": {"fg": "red"},
    "bold": {"bold": True},
    "dim": {"dim": True},
}


def complain(text: str, colour: str) -> None:
    """One line on standard error, in colour where that is a terminal."""
    click.secho(printable(text), fg=colour, err=True, color=_COLOUR)


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415 - as above

    return Console(highlight=False)


def _cell(value: object) -> Text:
    from rich.text import Text  # noqa: PLC0415 - as above

    text = "" if value is None else printable(str(value))
    return Text(text, style=STATE_STYLES.get(text, ""))


Work = Callable[[RemoteWorker, Output], Exit]


def asks_worker(command: Callable[..., Work]) -> Callable[..., None]:
    """Give a command the options of the connection, run the work that it returns, and exit with its code."""

    @click.option("--url", envvar="HEADRACE_URL", default=DEFAULT_URL, show_default=True, help="REST of any worker.")
    @click.option("--user", envvar="HEADRACE_USER", default=None, metavar="NAME:PASSWORD", help="HTTP Basic.")
    @click.option("--token", envvar="HEADRACE_TOKEN", default=None, help="Bearer token.")
    @click.option(
        "--ca-file",
        envvar="HEADRACE_CA_FILE",
        default=None,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="PEM of the authority that signed the worker's certificate.",
    )
    @click.option(
        "--certificate-file",
        envvar="HEADRACE_CERTIFICATE_FILE",
        default=None,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="PEM of the client's certificate and key.",
    )
    @click.option("--json", "is_json", is_flag=True, help="The worker's answer as JSON.")
    @functools.wraps(command)
    def run(
        *arguments: Any,
        url: str,
        user: str | None,
        token: str | None,
        ca_file: Path | None,
        certificate_file: Path | None,
        is_json: bool,
        **options: Any,
    ) -> None:
        settings = RemoteSettings(url, user, token, ca_file, certificate_file)
        output = Output(is_json)
        sys.exit(_run(settings, output, command(*arguments, **options)))

    return run


def _run(settings: RemoteSettings, output: Output, work: Work) -> Exit:
    try:
        with RemoteWorker.opened(settings) as worker:
            return work(worker, output)
    except RemoteError as error:
        complain(f"headrace: {error}", "red")
        return exit_of(error)


def exit_of(error: RemoteError) -> Exit:
    """What a script is told of an error."""
    if isinstance(error, UnreachableError):
        return Exit.UNREACHABLE
    if isinstance(error, AnsweredError):
        return _EXITS.get(error.status, Exit.REFUSED)
    return Exit.REFUSED
