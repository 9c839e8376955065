"""The source offset of ``HttpSource``: how far the records are read, and where a round is.

Flat, and readable by people: ``{"updated": 1700000000, "read.keys": "…"}`` after a round; inside one also what it
has reached (``round.highest``, ``round.keys``) and the page to go on with (``page.next``, ``page.skip``). Where rows
could not be read, ``read.unreadable`` and ``round.unreadable`` tell which of them are among the dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fetchers.sdk import Offset, Scalar
from fetchers.toolkit.marks import Mark
from fetchers.toolkit.pagination import Place
from fetchers.toolkit.watermark import Watermark

KEYS = "read.keys"
UNREADABLE = "read.unreadable"
HIGHEST = "round.highest"
HIGHEST_KEYS = "round.keys"
HIGHEST_UNREADABLE = "round.unreadable"
PAGE = "page.next"
SKIP = "page.skip"


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where to go on."""

    mark: Mark = field(default_factory=Mark)
    """What was read in the rounds before; a round is filtered by it from its first page to its last."""
    highest: Mark = field(default_factory=Mark)
    """What this round has read besides. Pages may come in any order, so it counts only when the round is over."""
    place: Place = None
    """The page to go on with; None is the first."""
    skip: int = 0
    """Records of that page that were handed over before."""

    def closed(self) -> Bookmark:
        """The bookmark after the last page of a round."""
        return Bookmark(self.highest, self.highest)

    def paused(self, place: Place, skip: int) -> Bookmark:
        """The bookmark after the last page of a round whose successor goes on from there."""
        return Bookmark(self.highest, self.highest, place, skip)

    def advanced(self, highest: Mark, place: Place, *, skip: int = 0) -> Bookmark:
        """The bookmark after a page that another one follows."""
        return replace(self, highest=highest, place=place, skip=skip)

    def offset(self, name: str | None) -> Offset:
        """The form in which it is stored; ``name``: the offset field, if there is one."""
        found: dict[str, Scalar] = {}
        if name is not None:
            found |= {name: self.mark.value, KEYS: _joined(self.mark)}
            if self.mark.unreadable:
                found[UNREADABLE] = ",".join(self.mark.unreadable)
            if self.highest != self.mark:
                found |= {HIGHEST: self.highest.value, HIGHEST_KEYS: _joined(self.highest)}
                if self.highest.unreadable:
                    found[HIGHEST_UNREADABLE] = ",".join(self.highest.unreadable)
        if self.place is not None or self.skip or name is None:
            found[PAGE] = self.place
        if self.skip:
            found[SKIP] = self.skip
        return found

    @classmethod
    def of_offset(cls, offset: Offset, name: str | None, *, initial: Watermark) -> Bookmark:
        """Read the stored form back; keys that somebody has taken away are as if they had never been."""
        mark = Mark(initial, unreadable=_split(offset, UNREADABLE))
        if name is not None and offset.get(name) is not None:
            mark = replace(mark, value=_value(offset, name), keys=frozenset(_split(offset, KEYS)))
        highest = mark
        if offset.get(HIGHEST) is not None:
            highest = replace(mark, value=_value(offset, HIGHEST), keys=frozenset(_split(offset, HIGHEST_KEYS)))
        if offset.get(HIGHEST_UNREADABLE) is not None:
            highest = replace(highest, unreadable=_split(offset, HIGHEST_UNREADABLE))
        place, skip = offset.get(PAGE), offset.get(SKIP)
        return cls(
            mark,
            highest,
            place if isinstance(place, str | int) else None,
            skip if isinstance(skip, int) else 0,
        )


def _value(offset: Mapping[str, Scalar], key: str) -> Watermark:
    value = offset[key]
    return value if isinstance(value, str | int | float) else None


def _joined(mark: Mark) -> str:
    return ",".join(sorted(mark.keys))


def _split(offset: Mapping[str, Scalar], key: str) -> tuple[str, ...]:
    return tuple(text for text in str(offset.get(key) or "").split(",") if text)
