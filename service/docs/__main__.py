"""``./headrace docs``: write the reference pages from the code."""

from __future__ import annotations

import sys

import click

from service.docs.generate import main


@click.command()
@click.option("--check", is_flag=True, help="Only say what is not fresh.")
def docs(*, check: bool) -> None:
    """Write the reference pages from the code."""
    sys.exit(main(check=check))


docs(prog_name="headrace docs")
