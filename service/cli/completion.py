"""Shell completion: the script that a shell sources, made by click."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_HEADRACE_COMPLETE"
"""Set by the script when it asks for completions."""
SHELLS = ("bash", "zsh", "fish")


def completion_script(group: click.Group, shell: str) -> str:
    """For ``shell``, to be sourced; it calls ``headrace``, which must be on the PATH or an alias."""
    kind = get_completion_class(shell)
    if kind is None:
        message = f"unknown shell {shell}"
        raise click.UsageError(message)
    return kind(group, {}, "headrace", VARIABLE).source()
