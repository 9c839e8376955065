"""One memory budget for all tasks of a worker: pages, micro-batches and undelivered outcomes are taken from it.

Memory is counted from the moment a page is fetched until its micro-batch is committed. Nothing in the flow waits for
memory but the fetcher, before it is asked for another page: what is fetched always goes on to its commit, so the memory
of a task always comes back, and no two tasks can wait for each other. A sink holds a poll until its records, and those
before them, are done; it polls again while there is room, and whenever no put of it is under way.

How much one may hold depends on how much is free, as in switches whose ports share one memory (Choudhury and Hahne,
"Dynamic queue length thresholds for shared-memory packet switches", IEEE/ACM Transactions on Networking 6(2), 1998):
a connector may ask for more while it holds less than twice what nobody holds, and a task while it holds less than
twice what its connector may still take. So a single task uses 4/7 of the budget, two connectors 4/11 each, a part is
always left for one that comes later, and one that never delivers cannot take the rest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from fetchers.sdk import Page
from metrics.events import Emit, MemoryHeldChanged, discard
from service.domain.ids import TaskId
from service.pipeline.converting import ConvertedBatch

SHARE_OF_FREE = 2
"""How many times what is free a connector, or a task, may hold: a larger number uses more of the budget, and leaves
less for those that start later."""
COUNTED_TIMES = 2
"""A page is counted for itself, and for the outcome that it will have."""
DEFAULT_DIVISOR = 4
"""The default budget is a quarter of the process's memory: Spark's JVM, its Arrow buffers and Python need the rest."""


class MemoryBudget:
    """Counts the bytes that all tasks of a worker hold, and says which of them may fetch more.

    Not for several threads: all calls come from the worker's event loop.
    """

    def __init__(self, bytes_max: int) -> None:
        """``bytes_max`` is ``memory.bytes.max``; nothing is held yet."""
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._held_by_connector: dict[str, int] = {}
        self._waiting: dict[MemoryShare, asyncio.Event] = {}

    def share(self, task_id: TaskId, emit: Emit = discard) -> MemoryShare:
        """The share of one incarnation of a task; ``emit`` is told of every change of what it holds."""
        return MemoryShare(self, task_id, emit)

    def has_room_for(self, share: MemoryShare) -> bool:
        """Whether the task may ask its source for another page; one that holds nothing always may."""
        if not share.bytes_held:
            return True
        if share.bytes_max is not None and share.bytes_held > share.bytes_max:
            return False
        connector_room = SHARE_OF_FREE * self._bytes_free - self._held_by_connector[share.task_id.connector]
        return share.bytes_held < SHARE_OF_FREE * connector_room

    async def wait_for_room(self, share: MemoryShare) -> None:
        """Return when the task may ask its source for another page: others may have committed what they held."""
        while not self.has_room_for(share):
            changed = self._waiting[share] = asyncio.Event()
            try:
                await changed.wait()
            finally:
                del self._waiting[share]

    def count(self, share: MemoryShare, change: int) -> None:
        """Note that a task holds ``change`` bytes more (or fewer), and wake the tasks for which there is room now."""
        self.bytes_held += change
        connector = share.task_id.connector
        held = self._held_by_connector.get(connector, 0) + change
        if held:
            self._held_by_connector[connector] = held
        else:
            self._held_by_connector.pop(connector, None)
        if change < 0:
            for waiting, changed in self._waiting.items():
                if self.has_room_for(waiting):
                    changed.set()

    @property
    def _bytes_free(self) -> int:
        """Bytes that nobody holds; negative where pages are larger than the budget: a task may always hold one."""
        return self.bytes_max - self.bytes_held


@dataclass(slots=True, eq=False)
class MemoryShare:
    """What one incarnation of a task holds of its worker's budget; use as a context manager, which gives it back."""

    budget: MemoryBudget
    task_id: TaskId
    emit: Emit
    bytes_max: int | None = None
    """What the task may hold, of whatever is free, and still ask for another page; None: as the budget has it."""
    bytes_held: int = field(default=0, init=False)

    def __enter__(self) -> Self:
        """Begin with nothing held."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back what was not committed: it is fetched again."""
        self.add(-self.bytes_held)

    @property
    def has_room(self) -> bool:
        """Whether the task may ask for another page."""
        return self.budget.has_room_for(self)

    async def wait_for_room(self) -> None:
        """Return when the task may ask its source for another page."""
        await self.budget.wait_for_room(self)

    def add(self, change: int) -> None:
        """Hold ``change`` bytes more (or fewer); never waits, since what is counted is in memory already."""
        if change:
            self.bytes_held += change
            self.budget.count(self, change)
            self.emit(
                MemoryHeldChanged(
                    self.task_id.connector,
                    self.task_id.task,
                    bytes=self.bytes_held,
                    worker_bytes=self.budget.bytes_held,
                    worker_bytes_max=self.budget.bytes_max,
                )
            )

    def add_page(self, page: Page) -> None:
        """Count a page that was fetched, twice: once for the outcome that it will have, until that is known."""
        self.add(COUNTED_TIMES * bytes_of_page(page))

    def add_outcome(self, converted: ConvertedBatch) -> None:
        """Count a micro-batch that was converted: the bytes of its outcome replace what was expected of it."""
        self.add(converted.outcome.nbytes - _bytes_of_pages(converted))

    def remove(self, converted: ConvertedBatch) -> None:
        """Count a micro-batch that was committed: its pages and its outcome are held no longer."""
        self.add(-_bytes_of_pages(converted) - converted.outcome.nbytes)


def bytes_of_page(page: Page) -> int:
    """Memory of a page's columns; headers and origins, which few sources have, are Python's and are not counted."""
    columns = (page.payloads, page.keys, page.timestamps_ms, page.positions)
    return sum(getattr(column, "nbytes", 0) for column in columns)


def _bytes_of_pages(converted: ConvertedBatch) -> int:
    return sum(bytes_of_page(item.page) for item in converted.batch.pages)


def default_bytes_max(root: Path = Path("/")) -> int:
    """The budget where no key gives one: a quarter of what the process may use, by its cgroup or else its machine."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_cgroup_limits(root)]) // DEFAULT_DIVISOR


def _cgroup_limits(root: Path) -> Iterator[int]:
    """Limits of the process's cgroup and of those around it (Linux, cgroup v2 and v1); none where there are none."""
    groups = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in {"", "memory"}:
            top, name = (groups / "memory", "memory.limit_in_bytes") if controllers else (groups, "memory.max")
            own = top / path.lstrip("/")
            for folder in (own, *own.parents):
                limit = _limit_in(folder / name)
                if limit is not None:
                    yield limit
                if folder == top:
                    break


def _limit_in(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
