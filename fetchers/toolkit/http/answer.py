"""A whole answer, its body in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fetchers.toolkit.records import RecordSlices
from fetchers.toolkit.watermark import Watermark


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The ``HttpResponse`` of a fetcher."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    url: str
    links: Sequence[str] = ()
    """Every ``Link`` field."""
    is_skipped: bool = False
    is_framed: bool = True

    def records(self, path: str = "", *, newer_than: tuple[str, Watermark] | None = None) -> RecordSlices:
        """Raw slices of the body: the elements of the array at ``path``; none when the answer was skipped.

        Raises Fatal where the body is JSON without an array or object there, Retriable where it is no JSON.
        """
        if self.is_skipped:
            return RecordSlices((), highest=newer_than[1] if newer_than else None)
        return RecordSlices.of_json(self.body, path, newer_than=newer_than)
