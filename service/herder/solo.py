"""A worker by itself, as a group of one."""

from __future__ import annotations

from collections.abc import Callable

from service.domain.cluster import Member, Roster
from service.herder.assignment import rebased
from service.herder.tracking import AssignmentTracker


class SoloMembership:
    """A group of one that never changes: the standalone worker."""

    def __init__(self, me: Member, tracker: AssignmentTracker) -> None:
        """Everything in ``tracker`` will be this worker's."""
        self.failure: Exception | None = None
        self._me = me
        self._tracker = tracker
        self._roster: Roster | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def me(self) -> Member:
        """See ``Membership``."""
        return self._me

    @property
    def roster(self) -> Roster | None:
        """See ``Membership``."""
        return self._roster

    @property
    def is_rebalancing(self) -> bool:
        """See ``Membership``."""
        return self._roster is None

    def listen(self, listener: Callable[[], None]) -> None:
        """See ``Membership``."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """See ``Membership``."""
        config = self._tracker.config
        base = rebased({}, config, members=(self._me,)).owners()
        self._roster = Roster(1, self._me, (self._me,), base, config.offset)
        self._tracker.on_roster(self._roster)
        for listener in self._listeners:
            listener()

    async def stop(self) -> None:
        """See ``Membership``."""
        self._roster = None
