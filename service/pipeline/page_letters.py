"""The dead letters of one page: what they have in common is worked out once, however many they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from fetchers.sdk import Page, Partition, Rejection
from service.pipeline.dead_letters import DeadLetter, as_json

FETCH_STAGE = "TASK_POLL"
"""Connect's name of the stage at which a fetcher itself could not vouch for a record."""


@dataclass(frozen=True, slots=True)
class PageLetters:
    """Makes them one by one."""

    page: Page
    topic: str
    partition: str
    offset: str
    """As it is told, without the position of a record."""
    own: Mapping[int, Rejection]
    """The fetcher's own verdicts, by their places in the page."""

    @classmethod
    def of(cls, page: Page, *, topic: str, partition: Partition) -> PageLetters:
        """``topic`` and ``partition``: of pages that name none."""
        told = page.offset if page.told_offset is None else page.told_offset
        if page.positions is not None:
            told = {name: value for name, value in told.items() if name != page.position_name}
        return cls(
            page,
            page.topic or topic,
            as_json(partition if page.partition is None else page.partition),
            as_json(told),
            {rejection.index: rejection for rejection in page.rejections},
        )

    def letter(self, index: int, row: Mapping[str, Any]) -> DeadLetter:
        """``row``: the record's payload and its verdict, by the names of their columns."""
        own = self.own.get(index)
        partition, offset = self._origin(index)
        return DeadLetter(
            key=row["key"],
            value=row["value"],
            stage=FETCH_STAGE if own else row["stage"],
            reason=own.reason if own else row["reason"],
            message=own.message if own else row["message"] or "",
            topic=self.topic,
            partition=partition,
            offset=offset,
            page_topic=self.page.topic,
            timestamp_ms=None
            if self.page.timestamps_ms is None
            else cast("Any", self.page.timestamps_ms[index]).as_py(),
            headers=() if self.page.headers is None else self.page.headers[index],
        )

    def _origin(self, index: int) -> tuple[str, str]:
        """Where a record came from, as exactly as its page knows."""
        if self.page.origins is not None:
            partition, offset = self.page.origins[index]
            return as_json(partition), as_json(offset)
        if self.page.positions is None:
            return self.partition, self.offset
        position = as_json({self.page.position_name: cast("Any", self.page.positions[index]).as_py()})
        return self.partition, position if self.offset == "{}" else f"{self.offset[:-1]},{position[1:]}"
