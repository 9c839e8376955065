"""The reference page of all commands, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import click

from service.cli.main import main
from service.docs.markdown import NOTICE, cell, code, table

LAUNCHER_COMMANDS = {
    "test": "Set up everything and run every test; arguments go to pytest. Of a folder of yours: its tests only.",
    "check": "Format, lint, types, import rules and the tests of the architecture: what CI runs first.",
    "site": "Make the documentation a site with search, under .headrace/site; a link that leads nowhere fails it.",
    "bench": "Measure headrace beside Kafka Connect and write the figures into docs/benchmarks; names choose figures.",
    "docs": "Write docs/reference from the code; `--check` only says what is not fresh.",
}
"""What the launcher does itself, before there is a command line."""

PAGE = """\
{notice}
# Commands

`./headrace COMMAND`. The first call sets everything up; it needs Python 3.11 or newer and Java 17 or newer.
`HEADRACE_PYTHON` names the Python to use, `HEADRACE_CACHE` the folder for the JVM parts.

Done by the launcher:

{launcher}
{commands}"""


def page() -> str:
    """Return the whole page, Markdown."""
    rows = [(code(f"./headrace {name}"), text) for name, text in LAUNCHER_COMMANDS.items()]
    sections = [_section(path, command) for path, command in walk(main)]
    return PAGE.format(notice=NOTICE, launcher=table(("command", "what it does"), rows), commands="\n".join(sections))


def walk(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command with the words that call it, in alphabetical order; groups themselves are left out."""
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        if isinstance(command, click.Group):
            yield from walk(command, (*path, name))
        else:
            yield (*path, name), command


def _section(path: tuple[str, ...], command: click.Command) -> str:
    words = " ".join(path)
    with click.Context(command, info_name=f"./headrace {words}") as context:
        usage = command.collect_usage_pieces(context)
        options = [parameter.to_info_dict() for parameter in command.params if isinstance(parameter, click.Option)]
    call = " ".join(["./headrace", words, *usage])
    about = cell(command.help or "")
    section = f"## {words}\n\n{about}\n\n```\n{call}\n```\n"
    if not options:
        return section
    return f"{section}\n{table(('option', 'value', 'default', 'meaning'), map(_option, options))}"


def _option(info: Mapping[str, Any]) -> tuple[str, str, str, str]:
    names = ", ".join(code(name) for name in (*info["opts"], *info["secondary_opts"]))
    value = "" if info["is_flag"] else _value(info)
    return names, value, _default(info), cast("str", info["help"] or "")


def _value(info: Mapping[str, Any]) -> str:
    choices = info["type"].get("choices")
    return " or ".join(code(str(choice)) for choice in choices) if choices else info["type"]["name"]


def _default(info: Mapping[str, Any]) -> str:
    default = info["default"]
    is_plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    return code(str(default)) if is_plain else ""
