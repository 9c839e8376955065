"""``headrace dead-letters``: what a connector could not deliver, why, and where in the payload the trouble is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.cli.access import AccessOptions, opened_access
from service.cli.findings import print_refusal
from service.cli.printing import printable, printable_json
from service.config.files import read_properties
from service.embedded.errors import EmbeddedError
from service.job import ConfigRefusedError
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal, KafkaFailure
from service.reading.decoding import as_json_text
from service.redrive.letters import Letter, LetterSummary, OffsetsUnknownError, read_letters, read_redriven

EXIT_CLEAN, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2
OFFSETS_KEY, OFFSETS_DEFAULT = "offset.storage.topic", "headrace-offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersWanted:
    """Whose letters, and how they are shown."""

    connector: str
    topic: str | None = None
    offsets_topic: str | None = None
    """None: as the worker's file says, or else by default."""
    is_listed: bool = False
    """Each open letter by itself."""
    export: str | None = None
    """A file, or ``-``."""
    is_json: bool = False

    @property
    def letters_topic(self) -> str:
        """Where the letters are; the default of ``errors.deadletterqueue.topic.name``."""
        return self.topic or f"{self.connector}-dead-letters"


async def run_dead_letters(access: AccessOptions, wanted: LettersWanted) -> int:
    """Exit code: 0 read to the end, 1 Kafka failed or a file cannot be written, 2 configuration."""
    error_console = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        async with opened_access(access, environ=os.environ) as reached:
            offsets_topic = wanted.offsets_topic or _offsets_topic(access.config)
            await _show(reached.kafka, replace(wanted, offsets_topic=offsets_topic), error_console)
    except ConfigRefusedError as refusal:
        print_refusal(refusal)
        return EXIT_CONFIG
    except EmbeddedError as error:
        error_console.print(Text(f"headrace: {error}", style="red"))
        return EXIT_CONFIG
    except (KafkaFailure, OSError) as error:
        hint = _hint(error, wanted)
        error_console.print(Text(f"headrace: {error}{hint}", style="red"))
        return EXIT_FAILED
    return EXIT_CLEAN


def _offsets_topic(config: Path | None) -> str:
    """As a worker's file names it, which was read before: it can be."""
    properties = {} if config is None else read_properties(config)
    return properties.get(OFFSETS_KEY, OFFSETS_DEFAULT)


def _hint(error: Exception, wanted: LettersWanted) -> str:
    if not isinstance(error, DeliveryFatal) or "does not exist" not in str(error):
        return ""
    return (
        f": nothing of {wanted.connector} was dead-lettered here yet, or its errors.deadletterqueue.topic.name "
        "names another topic (--topic)"
    )


async def _show(settings: KafkaSettings, wanted: LettersWanted, error_console: Console) -> None:
    redriven = await _redriven(settings, wanted, error_console)
    summary = LetterSummary()
    # Both the list and the export go by what comes: a topic has no end that memory could wait for.
    with _export(wanted.export) as export:
        async with aclosing(read_letters(settings, wanted.letters_topic, wanted.connector, redriven)) as letters:
            async for letter in letters:
                summary.add(letter)
                if letter.is_open and wanted.is_listed:
                    print_letter(letter, is_json=wanted.is_json)
                if letter.is_open and export is not None:
                    line = as_json_text(letter.exported())
                    export.write(f"{printable_json(line) if wanted.export == '-' else line}\n")
    if wanted.export == "-" or (wanted.is_listed and wanted.is_json):
        return
    if wanted.is_json:
        print(printable_json(as_json_text(summary_body(summary, wanted))))
    else:
        print_summary(summary, wanted)


async def _redriven(settings: KafkaSettings, wanted: LettersWanted, error_console: Console) -> dict[int, int]:
    try:
        return await read_redriven(
            settings, wanted.letters_topic, wanted.connector, offsets_topic=wanted.offsets_topic or OFFSETS_DEFAULT
        )
    except OffsetsUnknownError as error:
        error_console.print(
            Text(
                f"headrace: {error}: what was redriven is not known, and every letter is shown as open "
                "(--offsets names the offset topic of the worker)",
                style="yellow",
            )
        )
        return {}


@contextmanager
def _export(path: str | None) -> Iterator[TextIO | None]:
    """The file appears once it is whole; raises ``OSError``."""
    if path is None or path == "-":
        yield None if path is None else sys.stdout
        return
    whole = Path(path)
    part = whole.with_name(f"{whole.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(whole)
    finally:
        part.unlink(missing_ok=True)


def print_letter(letter: Letter, *, is_json: bool) -> None:
    """One letter: two lines for people, one of JSON."""
    if is_json:
        print(printable_json(as_json_text({**letter.exported(), "offending": letter.offending})))
        return
    console = Console(soft_wrap=True, highlight=False)
    tries = f", tried {letter.tries} times" if letter.tries > 1 else ""
    head = f"{letter.place}  {letter.reason}{tries}  {letter.message}"
    if letter.source_partition:
        head += f"  (from {letter.source_partition} {letter.source_offset})"
    console.print(Text(printable(head), style="bold"))
    console.print(Text(printable(f"    {letter.offending}")))


def summary_body(summary: LetterSummary, wanted: LettersWanted) -> dict[str, Any]:
    """The summary for scripts."""
    groups = [
        {
            "reason": reason,
            "field": name,
            "open": group.count,
            "tries_max": group.tries_max,
            "samples": [{**letter.exported(), "offending": letter.offending} for letter in group.samples],
        }
        for reason, name, group in summary.by_count()
    ]
    counts = {"open": summary.open, "redriven": summary.redriven, "nameless": summary.nameless}
    return {"connector": wanted.connector, "topic": wanted.letters_topic, **counts, "groups": groups}


def print_summary(summary: LetterSummary, wanted: LettersWanted) -> None:
    """Counts by reason and field with an example of each, and what can be done."""
    console = Console(highlight=False)
    topic = wanted.letters_topic
    redriven = f"; {summary.redriven:,} were redriven: delivered, or replaced by a later letter"
    console.print(Text(f"{topic}: {summary.open:,} open{redriven if summary.redriven else ''}"), soft_wrap=True)
    if summary.open:
        console.print(_table(summary))
        if summary.nameless:
            text = f"{summary.nameless:,} of them do not say whose they are: their writer has headers switched off"
            console.print(Text(text), soft_wrap=True)
        done = f"./headrace redrive {topic} WORKER_FILE CONNECTOR_FILE"
        console.print(
            Text(f"Each by itself: --open, --export FILE. Once the contract is mended: {done}"), soft_wrap=True
        )


def _table(summary: LetterSummary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("reason", no_wrap=True)
    table.add_column("field", overflow="fold", max_width=20)
    table.add_column("open", justify="right")
    table.add_column("tries", justify="right")
    table.add_column("the last ones, by partition:offset", overflow="fold", ratio=1)
    for reason, name, group in summary.by_count():
        samples = "\n".join(f"{letter.place}  {letter.offending}" for letter in group.samples)
        cells = (reason, name, f"{group.count:,}", str(group.tries_max), samples)
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
