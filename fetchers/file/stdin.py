"""Standard input as a source of lines. There is no going back in it, so it has no source offsets."""

from __future__ import annotations

import os
import select
from collections.abc import AsyncGenerator

from fetchers.file.lines import LineAssembler, Lines, LineTooLongError
from fetchers.sdk import Fatal, FetchContext, Page

WAIT_SECONDS = 0.25
"""How long one blocking wait for input lasts: the most that a stop takes."""


async def read_standard_input(
    descriptor: int, assembler: LineAssembler, context: FetchContext, *, page_bytes: int
) -> AsyncGenerator[Page]:
    """Yield lines until the input ends; its last line needs no line end.

    ``assembler`` outlives a retry: it holds the line that was begun. Raises Fatal for a line that is too long.
    """
    while True:
        block = await context.run_blocking(lambda: read_available(descriptor, page_bytes), subject="standard input")
        if block is None:
            context.finish_round()
            continue
        lines = _feed(assembler, block) if block else assembler.give_up_unfinished()
        if lines is not None:
            yield Page(lines.payloads, offset={}, partition={}, positions=lines.positions)
        if not block:
            context.finish_round()
            return


def _feed(assembler: LineAssembler, block: bytes) -> Lines | None:
    try:
        return assembler.feed(block)
    except LineTooLongError as error:
        raise Fatal(f"standard input: the line at byte {error.position} is longer than file.line.bytes.max") from error


def read_available(descriptor: int, bytes_max: int) -> bytes | None:
    """Read what is there, up to ``bytes_max``; None when nothing came for a while, empty at the end. Blocks."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    blocks: list[bytes] = []
    size = 0
    while size < bytes_max and poll.poll(0 if blocks else WAIT_SECONDS * 1000):
        block = os.read(descriptor, bytes_max - size)
        if not block:
            # What came before the end goes first; the end is seen again by the next call.
            return b"".join(blocks)
        blocks.append(block)
        size += len(block)
    return b"".join(blocks) if blocks else None
