"""What is committed of one Kafka partition: a log of small files, of which the last one counts.

Each entry has a number and is made by whoever is first to make a file of that name. An entry says at which offset to go
on, and which finished files get their final names. So many files are committed at once, by the one entry that names
them; whoever comes next gives them their names if the one who committed died before. A task begins with an entry of
its own (a claim). From then on an older incarnation, which still believes that the partition is its own, finds the
number taken by which it wants to commit: it is fenced, whatever the bounds of its files are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from fetchers.sdk import Fatal
from service.sinks.contract import StartAnew
from service.sinks.filesystem.stores import Store

_NAME = re.compile(r"(\d{20})\.commit")


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the log."""

    number: int
    next_offset: int | None
    """Of the first record that is not committed; None where nothing was ever committed."""
    moves: tuple[tuple[str, str], ...] = ()
    """Finished files and the names they get."""
    shape: str | None = None
    """What the last files' values were, for compatibility with those to come."""
    refused: tuple[int, ...] = ()
    """Offsets below ``next_offset`` whose records are in no file, and may have no dead letter yet."""


@dataclass(slots=True)
class CommitLog:
    """The log of one partition, as one task sees it. Raises OSError as its store does."""

    store: Store
    folder: str
    note_progress: Callable[[], None]
    """Called after each file that gets its name."""
    head: Entry | None = None
    """The last entry; this task's own from the claim on."""

    def claim(self, adopted: Callable[[], int | None]) -> Entry:
        """Take the partition over: nobody who had it before can commit any more.

        ``adopted``: asked where there is no log, how far files go that others have written.
        """
        while True:
            last = self.last()
            if last is None:
                entry = Entry(1, adopted())
            else:
                self._name_files(last)
                entry = Entry(last.number + 1, last.next_offset, shape=last.shape, refused=last.refused)
            if self._append(entry):
                return entry

    def last(self) -> Entry | None:
        """The entry that counts; None where there is no log."""
        while numbers := self._numbers():
            path = self._path(max(numbers))
            try:
                content = self.store.read(path)
            except FileNotFoundError:
                continue  # a fenced task has withdrawn it
            return _parsed(content, path)
        return None

    def commit(
        self, next_offset: int, moves: Sequence[tuple[str, str]], shape: str | None, refused: Sequence[int]
    ) -> None:
        """Commit finished files all at once, then give them their names. Raises StartAnew when fenced."""
        if self.head is None:
            raise StartAnew(f"{self.folder}: not claimed")
        entry = Entry(self.head.number + 1, next_offset, tuple(moves), shape, tuple(refused))
        if not self._append(entry, before_removal=self._name_files):
            raise StartAnew(
                f"{self.folder}: another task has taken the partition over; it goes on from the last commit"
            )

    def _append(self, entry: Entry, *, before_removal: Callable[[Entry], None] = lambda _entry: None) -> bool:
        """Whether the entry is the last one now."""
        path = self._path(entry.number)
        if not self.store.put_new(path, json.dumps(asdict(entry)).encode()):
            return False
        numbers = self._numbers()
        if max(numbers, default=entry.number) > entry.number:
            # The number was free because who went on from it has removed it since.
            self.store.remove(path)
            return False
        self.head = entry
        before_removal(entry)
        for number in numbers:
            if number < entry.number:
                self.store.remove(self._path(number))
        return True

    def _name_files(self, entry: Entry) -> None:
        """Give committed files their names, those that have them not yet."""
        for source, target in entry.moves:
            self.note_progress()
            try:
                self.store.move(source, target)
            except FileNotFoundError:
                continue  # it has its name, or somebody has taken it away since
            except FileExistsError as error:
                raise Fatal(
                    f"'{target}' is there already, and not of this connector: move it away, then restart the task; "
                    f"until then the records are in '{source}'"
                ) from error

    def _numbers(self) -> list[int]:
        found = (_NAME.fullmatch(name) for name in self.store.names(self.folder))
        return [int(match.group(1)) for match in found if match is not None]

    def _path(self, number: int) -> str:
        return f"{self.folder}/{number:020d}.commit"


def _parsed(content: bytes, path: str) -> Entry:
    try:
        found = json.loads(content)
        moves = tuple((str(source), str(target)) for source, target in found["moves"])
        refused = tuple(map(int, found.get("refused", ())))
        return Entry(int(found["number"]), found["next_offset"], moves, found["shape"], refused)
    except (KeyError, TypeError, ValueError) as error:
        raise Fatal(
            f"'{path}' is no entry of this sink's log: restore it, or remove its folder to go by names"
        ) from error
