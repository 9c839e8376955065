"""The body of one answer: which lines, how encoded, and where a scripted fault bends it. No sockets here."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import date

from service.simulators.mixpanel_events import DayBody, block_of, render_day
from service.simulators.mixpanel_settings import Fault, FaultKind, MixpanelSettings

CACHE_BYTES_MAX = 768 * 1024 * 1024
_GZIP_WINDOW_BITS = 31
_GZIP_LEVEL = 1
_SHORTENED_BYTES = 12
"""More than the 8 bytes of gzip's trailer: the last of the deflate stream is missing too."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What to send after the status line."""

    pieces: AsyncIterator[bytes]
    length: int | None
    """Bytes of all pieces; None when they are made on the way."""
    length_estimated: int
    is_gzipped: bool
    told: tuple[tuple[date, DayBody, bool], ...]
    """Days that are told in full when all pieces are sent: day, body, whether late events are in it."""


@dataclass(slots=True)
class Library:
    """Rendered days and encoded bodies, kept up to a limit."""

    settings: MixpanelSettings
    _days: OrderedDict[tuple[date, bool], DayBody] = field(default_factory=OrderedDict)
    _wires: OrderedDict[tuple[object, ...], bytes] = field(default_factory=OrderedDict)

    async def day(self, day: date, *, is_time_in_ms: bool) -> DayBody:
        """The lines of one day, as the export of it answers."""
        key = (day, is_time_in_ms)
        if key not in self._days:
            self._days[key] = await asyncio.to_thread(render_day, self.settings, day, is_time_in_ms=is_time_in_ms)
            while len(self._days) > 1 and sum(len(body.base) for body in self._days.values()) > CACHE_BYTES_MAX:
                self._days.popitem(last=False)
        return self._days[key]

    async def gzipped(self, key: tuple[object, ...], plain: bytes) -> bytes:
        """``plain`` as one gzip member, made once for each key."""
        if key not in self._wires:
            self._wires[key] = await asyncio.to_thread(gzip.compress, plain, _GZIP_LEVEL, mtime=0)
            while len(self._wires) > 1 and sum(map(len, self._wires.values())) > CACHE_BYTES_MAX:
                self._wires.popitem(last=False)
        return self._wires[key]


async def make_answer(
    library: Library, days: Sequence[tuple[date, bool]], fault: Fault | None, *, is_time_in_ms: bool, is_gzipped: bool
) -> Answer:
    """The answer for some days, each with a flag whether its late events are told."""
    settings = library.settings
    bodies = [(day, await library.day(day, is_time_in_ms=is_time_in_ms), is_late) for day, is_late in days]
    block = b"".join(_lines_of(body, is_late=is_late) for _, body, is_late in bodies)
    is_lying = fault is not None and fault.kind is FaultKind.FALSE_GZIP
    if settings.block_copies > 1:
        length = settings.block_copies * len(block)
        pieces = _blocks(block, settings.block_copies, is_gzipped=is_gzipped)
        return Answer(pieces, None, length, is_gzipped, tuple(bodies))
    plain, is_bent = _bend(block, fault)
    if not settings.ends_with_newline and not is_bent:
        plain = plain.removesuffix(b"\n")
    wire = plain
    if is_gzipped and not is_lying:
        wire = await library.gzipped((tuple(days), is_time_in_ms, fault if is_bent else None), plain)
        if fault is not None and fault.kind is FaultKind.SHORT_GZIP:
            wire = wire[:-_SHORTENED_BYTES]
            is_bent = True
    told = () if is_bent or is_lying else tuple(bodies)
    return Answer(_one(wire), len(wire), len(wire), is_gzipped or is_lying, told)


def _lines_of(body: DayBody, *, is_late: bool) -> bytes:
    """Late events come in the midst of the others: order is not promised."""
    if not is_late:
        return body.base
    middle = body.base.find(b"\n", len(body.base) // 3) + 1
    return body.base[:middle] + body.late + body.base[middle:]


def _bend(block: bytes, fault: Fault | None) -> tuple[bytes, bool]:
    """The lines as a fault leaves them, and whether it changed them."""
    if fault is None:
        return block, False
    until = block.rfind(b"\n", 0, int(len(block) * fault.fraction) + 1) + 1
    bent = {
        FaultKind.TERMINATED_EARLY: block[:until] + b"terminated early\n",
        FaultKind.TRUNCATED: block[: until + 20],
        FaultKind.EMPTY: b"",
    }
    return bent.get(fault.kind, block), fault.kind in bent


async def _one(wire: bytes) -> AsyncIterator[bytes]:
    yield wire


async def _blocks(block: bytes, copies: int, *, is_gzipped: bool) -> AsyncIterator[bytes]:
    """A body of any size, one block in memory at a time."""
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS) if is_gzipped else None
    for number in range(copies):
        lines = block_of(block, number)
        yield lines if packer is None else await asyncio.to_thread(packer.compress, lines)
    if packer is not None:
        yield packer.flush()
