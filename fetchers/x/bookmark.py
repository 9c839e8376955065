"""The source offset of a stream of posts: up to when it was heard, and what is still missing before that.

``{"last_id": "…", "last_created_at": "2024-01-15T10:35:00.000Z"}``: everything that was posted until then was handed
over, except for what lies between ``missing_from`` and ``missing_until``, which is still being asked for. ``deleted``
holds ids of posts that X has said to delete, for the case that they come after that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Self

from fetchers.sdk import DedupeScope, Fatal, Offset, Partition, Scalar
from fetchers.sdk.inbox import RECEIVED_AT

OVERLAP_MS = 60_000
"""What is asked for again begins so long before the last post: posts do not come in the order of their times."""
_REMEMBERED_MS = 10 * OVERLAP_MS
"""So long before what may be asked for again a post is still known: the overlap, whole minutes, clocks that differ."""
_WINDOW_MS = 600_000
DELETED_MAX = 100
"""Ids of deleted posts in the offset."""


@dataclass(frozen=True, slots=True)
class Missing:
    """A time of which posts may be missing; milliseconds since the epoch."""

    from_ms: int
    until_ms: int

    @property
    def seconds(self) -> float:
        """How long it is."""
        return (self.until_ms - self.from_ms) / 1000


@dataclass(frozen=True, slots=True)
class Bookmark:
    """See the module. ``last_ms`` is None before the very first connection."""

    last_id: str | None = None
    last_ms: int | None = None
    missing: Missing | None = None
    deleted: tuple[str, ...] = ()

    @classmethod
    def of(cls, offset: Offset) -> Self:
        """Read a stored offset. Raises Fatal where it is none of ours."""
        last_ms = _time(offset, "last_created_at")
        first, last = _time(offset, "missing_from"), _time(offset, "missing_until")
        deleted, last_id = offset.get("deleted"), offset.get("last_id")
        return cls(
            last_id=str(last_id) if last_id is not None else None,
            last_ms=last_ms,
            missing=Missing(first, last) if first is not None and last is not None else None,
            deleted=tuple(str(deleted).split(",")) if deleted else (),
        )

    @classmethod
    def check(cls, offsets: Iterable[tuple[Partition, Offset | None]]) -> None:
        """Offsets that a person wants to set; raises ValueError where one is none of ours."""
        for _, offset in offsets:
            try:
                cls.of(offset or {})
            except Fatal as error:
                raise ValueError(str(error)) from error

    def offset(self, *, received_ms: int | None = None) -> Offset:
        """The source offset to store. ``received_ms``: now, where what is missed cannot be had again."""
        offset: dict[str, Scalar] = {}
        if self.last_id is not None:
            offset["last_id"] = self.last_id
        if self.last_ms is not None:
            offset["last_created_at"] = iso(self.last_ms)
        if self.missing is not None:
            offset["missing_from"] = iso(self.missing.from_ms)
            offset["missing_until"] = iso(self.missing.until_ms)
        if self.deleted:
            offset["deleted"] = ",".join(self.deleted)
        if received_ms is not None:
            offset[RECEIVED_AT] = received_ms
        return offset

    def after_post(self, post_id: str, at_ms: int) -> Self:
        """A post was handed over."""
        if self.last_ms is not None and at_ms < self.last_ms:
            return self
        return replace(self, last_id=post_id, last_ms=at_ms)

    def with_deleted(self, ids: Iterable[str]) -> Self:
        """X has said to delete these posts."""
        known = dict.fromkeys((*self.deleted, *ids))
        return replace(self, deleted=tuple(known)[-DELETED_MAX:])

    def scope(self, at_ms: int) -> DedupeScope:
        """The window of a post of this time; whatever may be asked for again is in one that is open."""
        window = window_of(at_ms)
        oldest_ms = min(
            at_ms if self.last_ms is None else self.last_ms, at_ms if self.missing is None else self.missing.from_ms
        )
        return DedupeScope(window, min(window, window_of(oldest_ms - _REMEMBERED_MS)))


def window_of(at_ms: int) -> str:
    """The label of the ten minutes in which a moment lies."""
    return iso(at_ms - at_ms % _WINDOW_MS)[:16]


def iso(at_ms: int) -> str:
    """A moment as X writes it, to the millisecond. Raises Fatal where there is no such day."""
    try:
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise Fatal(f"{at_ms} ms is no time of any calendar") from error
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _time(offset: Offset, name: str) -> int | None:
    value = offset.get(name)
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise Fatal(
            f"The stored source offset has {name}={value!r}, which is not understood; set it to a time such as "
            "2024-01-15T10:35:00Z, or delete the connector's offsets"
        ) from error
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
