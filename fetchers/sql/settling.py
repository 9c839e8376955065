"""When a range of a table is settled: nobody can still commit a row into it.

A row gets its id (or its timestamp) before its transaction commits, so that a row with a lower id can become visible
after one with a higher id was read. Everyone who could do that holds something that the database shows: a lock on the
table, an open transaction, a running statement. So a bound is taken first, then the holders of that moment; when the
last of them has gone, every row up to the bound is there or will never be (ADR 53).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Holder:
    """Someone who may still commit rows under a bound that was taken before."""

    name: str
    """Never given to another one later: a transaction's id, not a session's."""
    family: str = ""
    """Who may carry it on under another name: a session's statement becomes its transaction, a transaction may be
    prepared (two-phase commit) and then belongs to no session."""
    heir_of: str | None = None
    """The family which it may carry on."""
    told: str = ""
    """What a person knows it by, such as ``process 4711``; the name when empty."""


class Bound:
    """The end of a range that is to be read when it is settled."""

    def __init__(self, value: str, holders: frozenset[Holder]) -> None:
        """``value`` was taken before ``holders`` were looked at."""
        self.value = value
        self.holders = holders
        self._seen = {holder.name for holder in holders}

    @property
    def is_settled(self) -> bool:
        """Whether nobody can commit a row up to ``value`` any more; what is read from now on is complete."""
        return not self.holders

    def look(self, now: frozenset[Holder]) -> None:
        """Take note of who is there now. Who has gone is replaced by those who may be carrying it on."""
        names = {holder.name for holder in now}
        families = {holder.family for holder in self.holders if holder.name not in names}
        heirs = {holder for holder in now if holder.heir_of in families and holder.name not in self._seen}
        self.holders = frozenset({holder for holder in self.holders if holder.name in names} | heirs)
        self._seen |= names
