"""The contract suite of sinks finds what is wrong: sinks that lose, double or refuse too much fail in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

from service.sinks.contract import Retriable, SinkBatch, SinkConfig, SinkConnector
from service.sinks.testing import SinkCase, SinkContract, Target

BAD = "bad"
REASON = "refused_by_target"
GIVEN_UP = "test_a_put_that_is_given_up_in_the_middle"
SLOW = "test_a_slow_put_comes_again_in_halves"
BAD_ONES = "test_bad_records_are_refused_alone_wherever_they_are"
IN_PART = "test_only_what_was_not_taken_comes_again"
_places: dict[str, list[tuple[int, str]]] = {}
_busy: dict[str, set[str]] = {}
"""Texts that a place has no time for, once."""


class PlaceConfig(SinkConfig):
    """A list of this process."""

    place: str
    """Its name."""


class Right(SinkConnector[PlaceConfig]):
    """Appends each record, which takes a turn of the event loop; knows by its list what it has."""

    async def put(self, batch: SinkBatch) -> None:
        """One record after another."""
        left: list[int] = []
        for row, offset, text in _records(batch):
            if text == BAD:
                batch.refuse(row, REASON, "It is bad.")
            elif self.is_busy(text):
                left.append(row)
            else:
                await self.take(offset, text)
        if left:
            self.leave(batch, left)

    def leave(self, batch: SinkBatch, left: list[int]) -> None:
        """What was not taken is to come again."""
        del batch
        raise Retriable("busy", rows=left)

    def is_busy(self, text: str) -> bool:
        """Whether there is no time for it now."""
        busy = _busy.get(self.config.place, set())
        is_busy = text in busy
        busy.discard(text)
        return is_busy

    async def take(self, offset: int, text: str) -> None:
        """One record."""
        await asyncio.sleep(0)
        if offset not in dict(self.there):
            self.there.append((offset, text))

    @property
    def there(self) -> list[tuple[int, str]]:
        """Offsets and texts."""
        return _places.setdefault(self.config.place, [])


class NotesBeforeItWrites(Right):
    """Loses what it has noted as done when it was given up."""

    next_offset = 0

    async def put(self, batch: SinkBatch) -> None:
        """Passes over what it knows."""
        begin, self.next_offset = self.next_offset, max(self.next_offset, *batch.ends.values())
        for _, offset, text in _records(batch):
            if offset >= begin:
                await self.take(offset, text)


class TakesNoEnd(Right):
    """Ends without a word when it is given up, so that what is left counts as put."""

    async def put(self, batch: SinkBatch) -> None:
        """Passes over that it was given up."""
        try:
            await super().put(batch)
        except asyncio.CancelledError:
            return


class GoesOnBehind(Right):
    """Writes on when it was given up, and does not look at what is there."""

    async def put(self, batch: SinkBatch) -> None:
        """The work is nobody's."""
        await asyncio.shield(self.write(batch))

    async def write(self, batch: SinkBatch) -> None:
        """One record after another."""
        for _, offset, text in _records(batch):
            await asyncio.sleep(0)
            self.there.append((offset, text))


class RefusesAll(Right):
    """Takes none of a batch in which one is bad."""

    async def put(self, batch: SinkBatch) -> None:
        """All or nothing."""
        records = _records(batch)
        if all(text != BAD for _, _, text in records):
            await super().put(batch)
            return
        for row, _, _ in records:
            batch.refuse(row, REASON, "One of them is bad.")


class StopsAtTheFirst(Right):
    """Takes nothing behind a bad record."""

    async def put(self, batch: SinkBatch) -> None:
        """And says nothing of the others."""
        for row, offset, text in _records(batch):
            if text == BAD:
                batch.refuse(row, REASON, "It is bad.")
                return
            await self.take(offset, text)


class NamesAnotherRow(Right):
    """Refuses by the offset, which is the row only in a batch that begins at 0."""

    async def put(self, batch: SinkBatch) -> None:
        """Of each batch the row that an offset would be, if there is one."""
        for _, offset, text in _records(batch):
            if text == BAD:
                batch.refuse(min(offset, len(batch) - 1), REASON, "It is bad.")
            else:
                await self.take(offset, text)


class TellsTwice(Right):
    """Makes two dead letters of a bad record."""

    async def put(self, batch: SinkBatch) -> None:
        """Once before the others, once among them."""
        for row, _, text in _records(batch):
            if text == BAD:
                batch.refuse(row, REASON, "It is bad.")
        await super().put(batch)


class WritesTheBad(Right):
    """Says that it refuses, and writes all the same."""

    async def put(self, batch: SinkBatch) -> None:
        """Each of them."""
        for row, offset, text in _records(batch):
            if text == BAD:
                batch.refuse(row, REASON, "It is bad.")
            await self.take(offset, text)


class LeavesOneOut(Right):
    """Does not name the last one that was not taken."""

    def leave(self, batch: SinkBatch, left: list[int]) -> None:
        """The others come again, if there are any."""
        del batch
        if left[:-1]:
            raise Retriable("busy", rows=left[:-1])


class NamesTheTaken(Right):
    """Takes ``rows`` for those that are done."""

    def leave(self, batch: SinkBatch, left: list[int]) -> None:
        """The wrong ones come again."""
        raise Retriable("busy", rows=[row for row in range(len(batch)) if row not in left])


class LeavesByOffset(Right):
    """Names offsets, which are the rows only in a batch that begins at 0."""

    def leave(self, batch: SinkBatch, left: list[int]) -> None:
        """Of another batch, or of none."""
        offsets: list[Any] = batch.records.column("offset").to_pylist()
        raise Retriable("busy", rows=[offsets[row] for row in left])


class NamesNone(Right):
    """Says that it was taken in part, and no row of what was not."""

    def leave(self, batch: SinkBatch, left: list[int]) -> None:
        """Nothing comes again."""
        del batch, left
        raise Retriable("busy", rows=[])


class RefusesTheBusy(Right):
    """Makes dead letters of what the target has no time for."""

    def leave(self, batch: SinkBatch, left: list[int]) -> None:
        """Each of them."""
        for row in left:
            batch.refuse(row, REASON, "There was no time for it.")


class NamesNoRows(Right):
    """Has all of a batch come again, and writes what it has already."""

    async def take(self, offset: int, text: str) -> None:
        """Without a look at what is there."""
        self.there.append((offset, text))

    def leave(self, batch: SinkBatch, left: list[int]) -> None:
        """No matter which."""
        del batch, left
        raise Retriable("busy")


def _records(batch: SinkBatch) -> list[tuple[int, int, str]]:
    """Row, offset and value."""
    offsets: list[Any] = batch.records.column("offset").to_pylist()
    values: list[Any] = batch.records.column("value").to_pylist()
    return list(zip(range(len(batch)), offsets, values, strict=True))


class Place(Target):
    """A list, named by its folder."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def properties(self) -> Mapping[str, str]:
        """The one key."""
        return {"place": self._name}

    async def written(self) -> Sequence[str]:
        """The texts, by their offsets."""
        return [text for _, text in sorted(_places.pop(self._name, []))]


class PlaceCase(SinkCase):
    """As the suite sees any of them."""

    is_exactly_once = True
    has_partial_outcomes = True
    bad_payload = BAD.encode()

    @asynccontextmanager
    async def target(self, folder: Path) -> AsyncIterator[Target]:
        """An empty list."""
        yield Place(str(folder))

    @asynccontextmanager
    async def busy_target(self, folder: Path, texts: Collection[str]) -> AsyncIterator[Target]:
        """One that has no time for these."""
        _busy[str(folder)] = set(texts)
        yield Place(str(folder))


def suite_of(sink: type[Right]) -> SinkContract:
    """The suite with a sink of this file."""

    class Case(PlaceCase):
        connector: ClassVar[type[SinkConnector[PlaceConfig]]] = sink

    suite = SinkContract()
    suite.case = Case()  # type: ignore[misc]
    return suite


@pytest.mark.parametrize("name", [GIVEN_UP, SLOW, BAD_ONES, IN_PART])
async def test_a_right_sink_passes(name: str, tmp_path: Path) -> None:
    """So that the others fail for what is wrong with them alone."""
    await getattr(suite_of(Right), name)(tmp_path)


@pytest.mark.parametrize(
    ("sink", "name"),
    [
        (NotesBeforeItWrites, SLOW),
        (NotesBeforeItWrites, GIVEN_UP),
        (TakesNoEnd, SLOW),
        (TakesNoEnd, GIVEN_UP),
        (GoesOnBehind, SLOW),
        (GoesOnBehind, GIVEN_UP),
        (RefusesAll, BAD_ONES),
        (StopsAtTheFirst, BAD_ONES),
        (NamesAnotherRow, BAD_ONES),
        (TellsTwice, BAD_ONES),
        (WritesTheBad, BAD_ONES),
        (LeavesOneOut, IN_PART),
        (NamesTheTaken, IN_PART),
        (LeavesByOffset, IN_PART),
        (NamesNone, IN_PART),
        (RefusesTheBusy, IN_PART),
        (NamesNoRows, IN_PART),
    ],
)
async def test_a_wrong_sink_fails(sink: type[Right], name: str, tmp_path: Path) -> None:
    """By what is written, or by what was refused."""
    with pytest.raises(AssertionError):
        await getattr(suite_of(sink), name)(tmp_path)
