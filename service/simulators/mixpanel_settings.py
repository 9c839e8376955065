"""What a simulated Mixpanel project holds, and how its export misbehaves.

Facts of the API: ``openapi/export.openapi.yaml`` and ``reference/rate-limits`` of Mixpanel's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from pathlib import Path

CONTRACT_PATH = Path(__file__).with_name("mixpanel_contract.avsc")
"""Avro schema that every good line meets and every bad one breaks."""


class FaultKind(StrEnum):
    """How one answer goes wrong."""

    STATUS = "status"
    """Another status than 200, with ``body`` and ``headers``."""
    CUT = "cut"
    """The connection is reset after ``fraction`` of the body."""
    TERMINATED_EARLY = "terminated_early"
    """The body stops after ``fraction`` with the bare line ``terminated early``, its transfer ending cleanly."""
    TRUNCATED = "truncated"
    """The body stops after ``fraction``, in the middle of a line, its transfer ending cleanly."""
    PAUSE = "pause"
    """The body stands still for ``seconds`` after ``fraction``, then goes on to its end."""
    FALSE_GZIP = "false_gzip"
    """``Content-Encoding: gzip`` over a body that is not gzip."""
    SHORT_GZIP = "short_gzip"
    """A gzip body without its end, its transfer ending cleanly."""
    EMPTY = "empty"
    """A 200 with nothing in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One answer gone wrong: that to request number ``attempt`` (from 1) for the days that begin with ``day``.

    With ``day`` None it counts the requests of all days together.
    """

    kind: FaultKind
    day: date | None = None
    attempt: int = 1
    fraction: float = 0.5
    seconds: float = 0.0
    status: int = 500
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixpanelSettings:
    """One simulated project. Counts are for each day."""

    first_day: date
    days: int = 10
    events_per_day: int = 10_000
    """Good events, all different by the key (event, distinct_id, time, $insert_id)."""
    malformed_per_day: int = 0
    """Lines that are no JSON value, each different."""
    wrong_typed_per_day: int = 0
    """JSON lines that break the contract, each different."""
    duplicates_per_day: int = 0
    """Further copies of good events: equal key, other ingestion time."""
    late_per_day: int = 0
    """Good events that show only after the day has been answered in full once."""
    late_days: int | None = None
    """How many of the last days have late events; all of them when None."""
    seed: int = 1
    block_copies: int = 1
    """Each answer repeats the day's lines this often with fresh ids, made on the way: a day of any size."""

    project_id: str = "2195193"
    username: str = "reader.simulated"
    secret: str = "simulated-secret"  # noqa: S105 - opens nothing
    project_secret: str = "simulated-project-secret"  # noqa: S105 - opens nothing
    time_zone: str = "UTC"
    now: datetime | None = None
    """What the server takes for now (aware); the real time when None."""

    is_gzipped: bool = True
    """Compress when the client accepts it."""
    is_chunked: bool = True
    """Chunked transfer; otherwise the length is told."""
    chunk_bytes: int = 64 * 1024
    ends_with_newline: bool = True
    faults: tuple[Fault, ...] = ()

    enforces_limits: bool = False
    """Answer 429 over 60 requests an hour or 3 a second."""
    time_scale: float = 1.0
    """How many seconds of the limits pass in a real one."""
    retry_after_seconds: int | None = 1

    calendar: tuple[date, ...] = field(init=False, default=())
    """The days of the project."""

    def __post_init__(self) -> None:
        """Lay out the calendar."""
        days = tuple(self.first_day + timedelta(days=number) for number in range(self.days))
        object.__setattr__(self, "calendar", days)

    @property
    def last_day(self) -> date:
        """The last day that has events."""
        return self.calendar[-1]

    def late_of(self, day: date) -> int:
        """Count of late events of a day."""
        late_days = self.days if self.late_days is None else self.late_days
        return self.late_per_day if day in self.calendar[self.days - late_days :] else 0
