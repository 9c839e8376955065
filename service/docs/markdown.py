"""Markdown as the pages need it: tables, and docstrings as table cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

NOTICE = "<!-- Written by `./headrace docs` from the code; do not edit by hand. -->\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells may hold anything."""
    lines = [_line(headings), "|" + "---|" * len(headings)]
    lines += [_line([cell(text) for text in row]) for row in rows]
    return "\n".join(lines) + "\n"


def cell(text: str) -> str:
    """One line without the signs that mean something in a cell; double back-ticks of docstrings become Markdown's."""
    parts = " ".join(text.replace("``", "`").split()).replace("|", r"\|").split("`")
    # Every second part is code, where < is only itself.
    parts[::2] = [part.replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)


def code(text: str) -> str:
    """Text to be typed as it is; nothing where there is nothing."""
    return f"`{text}`" if text else ""


def first_paragraph(docstring: str | None) -> str:
    """What a docstring says in its first paragraph."""
    return (docstring or "").strip().split("\n\n")[0]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
