"""The source offset of ``HttpSource``: how far the records are read, and where a round is.

Flat, and readable by people: ``{"updated": 1700000000, "read.keys": "…"}`` after a round; inside one also what it
has reached (``round.highest``, of several fields ``round.highest.<field>``; ``round.keys``) and the page to go on with
(``page.next``, ``page.skip``). Where rows could not be read, ``read.unreadable`` tells which of them are among the dead
letters, and ``round.unreadable`` which of them the round has come by.

Where the pages may move while they are read, a round also stores by which record a page is known again (``page.last``),
in what order the records came so far (``round.order``) and how many (``round.records``), for records with the newest
first the last of them (``round.lowest``, ``round.lowest.keys``), and whether it has begun again (``round.again``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from fetchers.sdk import Offset, Scalar
from fetchers.sdk.errors import Fatal
from fetchers.toolkit.marks import Mark, RecordOrder
from fetchers.toolkit.pagination import Place
from fetchers.toolkit.watermark import Reached, Watermark

KEYS = "read.keys"
UNREADABLE = "read.unreadable"
HIGHEST = "round.highest"
HIGHEST_KEYS = "round.keys"
HIGHEST_UNREADABLE = "round.unreadable"
PAGE = "page.next"
SKIP = "page.skip"
LAST = "page.last"
ORDER = "round.order"
LOWEST = "round.lowest"
LOWEST_KEYS = "round.lowest.keys"
RECORDS = "round.records"
AGAIN = "round.again"
BEFORE = "read.before"
CHANGED = "parent.changed"
SETTLED = "parent.is_settled"
_LONG = frozenset({KEYS, UNREADABLE, HIGHEST_KEYS, HIGHEST_UNREADABLE, LOWEST_KEYS})


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Where a round of ``HttpSource`` goes on: what was read before it, and what it has read so far."""

    mark: Mark = field(default_factory=Mark)
    """What was read in the rounds before; a round is filtered by it from its first page to its last."""
    highest: Mark = field(default_factory=Mark)
    """What this round has read besides. Pages may come in any order, so it counts only when the round is over.

    Of what cannot be read it knows all that the round has seen, new or not, and nothing else."""
    place: Place = None
    """The page to go on with; None is the first."""
    skip: int = 0
    """Records of that page that were handed over before."""
    last: str | None = None
    """Identity of the last of those; None where it is not looked at."""
    order: RecordOrder = RecordOrder.UNKNOWN
    lowest: Mark = field(default_factory=lambda: Mark(order=RecordOrder.DOWN))
    """The end of what this round has read while its order is ``DOWN``."""
    records: int = 0
    """Records of this round that were handed over."""
    is_again: bool = False
    """Whether this round has begun again since records moved, and passes over what its order says it has read."""
    before: Watermark = None
    """With pages that begin at the mark: the highest value read below the mark's, if there was one."""
    changed: Watermark = None
    """What the parent said of changes in the list before it was last read to its end."""
    is_settled: bool = False
    """Whether it was read once more since, and the parent still said the same."""

    @property
    def is_untouched(self) -> bool:
        """Whether this round has handed over nothing yet."""
        return self.highest == _at_start(self.mark)

    @property
    def frontier(self) -> Mark:
        """The end of what this round has read, in its order."""
        if self.order is RecordOrder.DOWN:
            return replace(self.lowest, unreadable=self.highest.unreadable)
        return replace(self.highest, order=self.order)

    def begun_again(self) -> Bookmark:
        """The bookmark with which the pages are read from the first one on, because records have moved.

        What tells where the round was (its order) is kept, so that nothing comes twice. In no order all of the round
        does: then it is the mark alone that counts.
        """
        if self.order is RecordOrder.MIXED:
            return Bookmark(self.mark, self.highest, order=self.order)
        return replace(self, place=None, skip=0, last=None, is_again=True)

    def closed(self) -> Bookmark:
        """The bookmark after the last page of a round."""
        return self.paused(None, 0)

    def paused(self, place: Place, skip: int, last: str | None = None) -> Bookmark:
        """The bookmark after the last page of a round whose successor goes on from there."""
        read = replace(self.highest, unreadable=self.mark.remembering(self.highest.unreadable).unreadable)
        return Bookmark(read, _at_start(read), place, skip, last)

    def advanced(self, highest: Mark, place: Place, *, skip: int = 0, last: str | None = None) -> Bookmark:
        """The bookmark after a page that another one follows."""
        return replace(self, highest=highest, place=place, skip=skip, last=last)

    def offset(self, names: Sequence[str]) -> Offset:
        """The form in which it is stored; ``names``: the offset fields, if there are any."""
        found: dict[str, Scalar] = {}
        if names:
            found |= _stored(self.mark, names, KEYS, UNREADABLE)
            if not self.is_untouched:
                found |= _stored(self.highest, _of_round(HIGHEST, names), HIGHEST_KEYS, HIGHEST_UNREADABLE)
        if self.place is not None or self.skip or not names:
            found[PAGE] = self.place
        if self.skip:
            found[SKIP] = self.skip
        if self.last is not None:
            found[LAST] = self.last
        if self.order:
            found |= {ORDER: self.order.value, RECORDS: self.records}
        if self.order is RecordOrder.DOWN and self.lowest.value is not None:
            found |= _stored(self.lowest, _of_round(LOWEST, names), LOWEST_KEYS, "")
        if self.is_again:
            found[AGAIN] = True
        if self.before is not None:
            found[BEFORE] = self.before
        return found if self.changed is None else found | {CHANGED: self.changed, SETTLED: self.is_settled}

    @classmethod
    def of_offset(cls, offset: Offset, names: Sequence[str], *, initial: Reached) -> Bookmark:
        """Read the stored form back; keys that somebody has taken away are as if they had never been.

        Raises Fatal where some of several fields are there and others are not.
        """
        mark = Mark(initial, unreadable=_split(offset, UNREADABLE))
        if _is_stored(offset, names):
            mark = replace(mark, value=_value(offset, names), keys=frozenset(_split(offset, KEYS)))
        highest = replace(_at_start(mark), unreadable=_split(offset, HIGHEST_UNREADABLE))
        if _is_stored(offset, _of_round(HIGHEST, names)):
            keys = frozenset(_split(offset, HIGHEST_KEYS))
            highest = replace(highest, value=_value(offset, _of_round(HIGHEST, names)), keys=keys)
        lowest = Mark(order=RecordOrder.DOWN)
        if _is_stored(offset, _of_round(LOWEST, names)):
            keys = frozenset(_split(offset, LOWEST_KEYS))
            lowest = replace(lowest, value=_value(offset, _of_round(LOWEST, names)), keys=keys)
        place, skip, last, order, records = map(offset.get, (PAGE, SKIP, LAST, ORDER, RECORDS))
        return cls(
            mark,
            highest,
            place if isinstance(place, str | int) else None,
            skip if isinstance(skip, int) else 0,
            last if isinstance(last, str) else None,
            RecordOrder(order) if order in set(RecordOrder) else RecordOrder.UNKNOWN,
            lowest,
            records=records if isinstance(records, int) else 0,
            is_again=offset.get(AGAIN) is True,
            before=_scalar(offset.get(BEFORE)),
            changed=_scalar(offset.get(CHANGED)),
            is_settled=offset.get(SETTLED) is True,
        )


def told(offset: Offset) -> Offset:
    """What a dead letter tells of an offset: how far it is, without the records that may fill hundreds of KiB."""
    return {name: value for name, value in offset.items() if name not in _LONG}


def _at_start(read: Mark) -> Mark:
    """What a round has read before its first page."""
    return replace(read, unreadable=())


def _of_round(value: str, names: Sequence[str]) -> Sequence[str]:
    """What the fields are called for the round; one alone needs no name."""
    return [value] if len(names) == 1 else [f"{value}.{name}" for name in names]


def _stored(mark: Mark, names: Sequence[str], keys: str, unreadable: str) -> dict[str, Scalar]:
    values = mark.value if isinstance(mark.value, tuple) else (mark.value,) * len(names)
    found: dict[str, Scalar] = {**dict(zip(names, values, strict=True)), keys: ",".join(sorted(mark.keys))}
    return found | {unreadable: ",".join(mark.unreadable)} if mark.unreadable else found


def _is_stored(offset: Mapping[str, Scalar], names: Sequence[str]) -> bool:
    missing = [name for name in names if offset.get(name) is None]
    if missing and len(missing) < len(names):
        message = f"the stored offset has no value of {missing[0]!r}; was http.offset.field changed? Write it, or reset"
        raise Fatal(message)
    return bool(names) and not missing


def _value(offset: Mapping[str, Scalar], names: Sequence[str]) -> Reached:
    values = [value for value in map(offset.get, names) if isinstance(value, str | int | float)]
    if len(names) == 1:
        return values[0] if values else None
    return tuple(values)


def _scalar(value: Scalar) -> Watermark:
    return value if isinstance(value, str | int | float) else None


def _split(offset: Mapping[str, Scalar], key: str) -> tuple[str, ...]:
    return tuple(text for text in str(offset.get(key) or "").split(",") if text)
