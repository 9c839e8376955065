"""Writes every reference page, or says which ones are not what the code would write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from metrics import reference as metrics_reference
from service.docs import commands, configuration, errors, rules, sdk

ROOT = Path(__file__).parents[2]
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/commands.md": commands.page,
    "docs/reference/configuration.md": configuration.page,
    "docs/reference/errors.md": errors.page,
    "docs/reference/metrics.md": metrics_reference.page,
    "docs/reference/rules.md": rules.page,
    "docs/reference/sdk.md": sdk.page,
}
"""Each generated page, relative to the root of the repository, and what writes it."""


def stale_pages(root: Path = ROOT) -> list[str]:
    """Pages that are missing or not as the code would write them."""
    return [name for name, write in PAGES.items() if _text(root / name) != write()]


def write_pages(root: Path = ROOT) -> list[str]:
    """Write the stale pages; which ones that were."""
    stale = stale_pages(root)
    for name in stale:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(PAGES[name](), encoding="utf-8")
    return stale


def main(*, check: bool) -> int:
    """Write the pages, or with ``check`` only compare; the exit code, 1 when a page was found stale by ``check``."""
    for name in stale_pages() if check else write_pages():
        click.echo(f"{name}: {'not fresh, run ./headrace docs' if check else 'written'}")
    return 1 if check and stale_pages() else 0


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None
