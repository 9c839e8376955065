"""The accounts of a simulated project: what was asked, what was told, and what must come out of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from service.simulators.mixpanel_events import DayBody
from service.simulators.mixpanel_settings import MixpanelSettings


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """One request as it arrived, and how it was answered."""

    at_seconds: float
    """Monotonic time of the server; scaled as its limits are."""
    status: int
    query: Mapping[str, str]
    fault: str = ""

    @property
    def days(self) -> tuple[str, str]:
        """First and last day asked for."""
        return self.query.get("from_date", ""), self.query.get("to_date", "")


@dataclass(frozen=True, slots=True)
class Truth:
    """What a consumer must find after every day was read, under the contract of this folder."""

    delivered: int
    """Good events told so far, different by the key (event, distinct_id, time, $insert_id)."""
    dead_lettered: int
    """Bad lines told so far, each counted once."""
    bad_by_kind: Mapping[str, int]
    duplicates: int
    """Further copies inside the days themselves; what is told again by a second request is not counted."""
    days_answered: tuple[str, ...]
    """Days told in full at least once."""
    late_days_answered: tuple[str, ...]
    """Days whose late events were told in full."""
    requests: int

    @property
    def lines_distinct(self) -> int:
        """Different lines told so far, good and bad."""
        return self.delivered + self.dead_lettered


@dataclass(slots=True)
class _DayAccount:
    answered: int = 0
    is_late_told: bool = False
    body: DayBody | None = None
    """Counts only; its bytes are not kept here."""


@dataclass(slots=True)
class Ledger:
    """What the simulator has told. Only bodies told to their clean end count."""

    settings: MixpanelSettings
    requests: list[RequestSeen] = field(default_factory=list)
    _days: dict[date, _DayAccount] = field(default_factory=dict)
    _attempts: Counter[date] = field(default_factory=Counter)

    def begin_attempt(self, day: date) -> int:
        """Number of this request for days that begin with ``day``, from 1."""
        self._attempts[day] += 1
        return self._attempts[day]

    def has_late(self, day: date) -> bool:
        """Whether the late events of a day show by now: after its first full answer."""
        return day in self._days and self.settings.late_of(day) > 0

    def told(self, day: date, body: DayBody, *, is_late_included: bool) -> None:
        """Note a day told to its clean end."""
        account = self._days.setdefault(day, _DayAccount())
        account.answered += 1
        account.is_late_told |= is_late_included
        account.body = DayBody(b"", b"", body.lines, body.good, body.late_good, body.bad)

    def truth(self) -> Truth:
        """What a perfect reader of the export would have delivered and rejected by now."""
        bad: Counter[str] = Counter()
        delivered = duplicates = 0
        copies = self.settings.block_copies
        for account in self._days.values():
            if account.body is None:
                continue
            kinds = dict(account.body.bad)
            bad.update({kind: count * copies for kind, count in kinds.items()})
            delivered += copies * (account.body.good + (account.body.late_good if account.is_late_told else 0))
            duplicates += copies * (account.body.lines - account.body.good - sum(kinds.values()))
        return Truth(
            delivered=delivered,
            dead_lettered=bad.total(),
            bad_by_kind=dict(bad),
            duplicates=duplicates,
            days_answered=tuple(sorted(map(str, self._days))),
            late_days_answered=tuple(sorted(str(day) for day, account in self._days.items() if account.is_late_told)),
            requests=len(self.requests),
        )
