"""Shows what is wrong with a configuration: all of it, at once."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.cli.printing import printable
from service.job import ConfigRefusedError, SourceFindings


def print_refusal(refusal: ConfigRefusedError) -> None:
    """One table on standard error: file, key, value (masked), what was expected."""
    _print("Configuration refused", refusal.sources)


def print_warnings(warnings: Sequence[SourceFindings]) -> None:
    """The same of what is odd about a configuration that is taken; nothing where nothing is."""
    if any(source.findings for source in warnings):
        _print("Configuration taken, with warnings", warnings)


def _print(title: str, sources: Sequence[SourceFindings]) -> None:
    if all(not finding.key for source in sources for finding in source.findings):
        # What is about files as a whole is a sentence, and no row of a table.
        for source in sources:
            for finding in source.findings:
                text = (
                    finding.message
                    if finding.message.startswith(source.source)
                    else f"{source.source}: {finding.message}"
                )
                Console(stderr=True, soft_wrap=True, highlight=False).print(Text(printable(f"headrace: {text}")))
        return
    table = Table(title=title, title_justify="left", show_lines=False)
    for column in ("file", "", "key", "value", "finding"):
        table.add_column(column, overflow="fold")
    for source in sources:
        for finding in source.findings:
            cells = (source.source, finding.severity.value, finding.key, finding.value or "", finding.message)
            # As plain text: what users write is no markup.
            table.add_row(*(Text(printable(cell)) for cell in cells))
    Console(stderr=True, width=None).print(table)
