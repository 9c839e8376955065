"""Workers of a group without anything to run: in this process, or as one of their own that can be killed.

As a process: ``python -m tests.integration.group_worker BOOTSTRAP GROUP NAME SESSION`` writes one JSON line for each
view; ``SESSION`` in seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from metrics.events import ComponentStateChanged, Event
from service.domain.cluster import Member
from service.herder.assignment import AssignmentTracker
from service.herder.membership import GroupMembership, Patience, group_settings
from service.kafka.client import KafkaSettings
from tests.bound import bound
from tests.unit.herder.config_log import cluster, member

ROOT = Path(__file__).parents[2]
CONFIG = cluster({f"c{number}": 2 for number in range(6)}, offset=100)
"""What every worker here has read; 6 connectors and 12 tasks."""
SESSION_SECONDS = 10.0
"""Of a worker that is to be missed, and not before it is killed or stopped."""
CALM_SECONDS = 60.0
"""Of one that is not: a busy machine that keeps it waiting does not put it out of the group."""
GRACE_SECONDS = 1.0
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class View:
    """What a worker sees of its group; generation 0 = it is in none."""

    generation: int
    leader: str
    members: str
    """Names, one letter each."""
    owned: tuple[str, ...]
    absent: str
    """Owners that are no members."""


def view_of(membership: GroupMembership, tracker: AssignmentTracker) -> View:
    """At this moment."""
    roster = membership.roster
    if roster is None:
        return View(0, "", "", (), "")
    owned = tuple(sorted(map(str, tracker.owned_by(membership.me))))
    absent = {*tracker.assignment.owners().values()} - {*roster.members}
    return View(roster.generation, _name(roster.leader), _names(roster.members), owned, _names(absent))


def _name(who: Member) -> str:
    return who.worker_id.partition(":")[0]


def _names(people: Any) -> str:
    return "".join(sorted(map(_name, people)))


async def _nothing_to_read() -> None:
    """The config log stands still."""


class GroupWorker:
    """A worker of this process; use as a context manager."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        name: str,
        *,
        tracker: AssignmentTracker | None = None,
        catch_up: Callable[[], Awaitable[None]] = _nothing_to_read,
        grace_seconds: float = GRACE_SECONDS,
        session_seconds: float = CALM_SECONDS,
    ) -> None:
        """Prepare; its name is one letter."""
        self.tracker = tracker or AssignmentTracker(CONFIG)
        self.views: list[View] = []
        self.settled: list[View] = []
        """Those that are no matter of a round that goes on: what has passed by since is among them."""
        self.events: list[Event] = []
        self.membership = GroupMembership(
            member(name),
            KafkaSettings(bootstrap=bootstrap, request_seconds_max=10.0),
            group_settings(group, session_seconds=session_seconds),
            self.tracker,
            catch_up=catch_up,
            patience=Patience(grace_seconds=grace_seconds),
            emit=self.events.append,
        )
        self._changed = asyncio.Event()
        self.membership.listen(self._look)

    async def __aenter__(self) -> Self:
        """Begin to join."""
        await self.membership.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Leave."""
        await self.membership.stop()

    @property
    def view(self) -> View:
        """As it is now."""
        return view_of(self.membership, self.tracker)

    @property
    def readiness(self) -> list[bool]:
        """What it has told of whether it is in its place."""
        return [event.is_ready for event in self.events if isinstance(event, ComponentStateChanged)]

    async def wait_until(self, condition: Callable[[View], bool]) -> View:
        """The first view that meets it, and is no matter of a round that goes on."""
        while not condition(self.view) or self.membership.is_rebalancing:
            self._changed.clear()
            await self._changed.wait()
        return self.view

    async def first(self, condition: Callable[[View], bool], *, after: int = 0) -> View:
        """The first settled view, not counting so many, that meets it, also where it has passed by meanwhile."""
        while True:
            self._changed.clear()
            for view in self.settled[after:]:
                if condition(view):
                    return view
            await self._changed.wait()

    def _look(self) -> None:
        self.views.append(self.view)
        if not self.membership.is_rebalancing:
            self.settled.append(self.view)
        self._changed.set()


class WorkerProcess:
    """A worker in a process of its own."""

    def __init__(self, bootstrap: str, group: str, name: str, *, log: Path, session_seconds: float) -> None:
        """Start it; its views go to ``log``."""
        self._log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                bound(
                    [
                        sys.executable,
                        "-m",
                        "tests.integration.group_worker",
                        bootstrap,
                        group,
                        name,
                        f"{session_seconds}",
                    ]
                ),
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=output,
            )

    def views(self) -> list[View]:
        """All it has seen."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [View(**{**line, "owned": tuple(line["owned"])}) for line in lines]

    async def wait_until(self, condition: Callable[[View], bool], *, after: int = 0) -> View:
        """The first view, not counting so many, that meets it."""
        while True:
            for view in self.views()[after:]:
                if condition(view):
                    return view
            await asyncio.sleep(LOOK_SECONDS)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)


@contextmanager
def worker_process(
    bootstrap: str, group: str, name: str, *, log: Path, session_seconds: float = SESSION_SECONDS
) -> Iterator[WorkerProcess]:
    """A worker in a process of its own, killed at the end of the block."""
    worker = WorkerProcess(bootstrap, group, name, log=log, session_seconds=session_seconds)
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait()


async def _run(bootstrap: str, group: str, name: str, session_seconds: str) -> None:
    async with GroupWorker(bootstrap, group, name, session_seconds=float(session_seconds)) as worker:
        last = None
        while os.getppid() != 1:
            # Looked at, and not only heard of: what counts is what a tick would see.
            if worker.view != last:
                last = worker.view
                sys.stdout.write(json.dumps(asdict(last)) + "\n")
                sys.stdout.flush()
            await asyncio.sleep(LOOK_SECONDS)


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:5]))
