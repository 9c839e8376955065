"""A slow Mixpanel backfill in another process, and the demand that every event of it arrives exactly once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from service.simulators.mixpanel_process import RunningSimulator, simulator_process
from service.simulators.mixpanel_settings import CONTRACT_PATH, Fault, FaultKind, MixpanelSettings
from tests.faults.topic_watch import committed_values
from tests.faults.worker_life import write_properties

FIRST_DAY = date(2024, 1, 1)
DAYS, EVENTS_PER_DAY, PAUSE_SECONDS = 24, 500, 3.0
"""The pauses, one in the middle of each day, make the backfill last as long as the killing."""
KEY = ("distinct_id", "time", "insert_id")
"""With the event's name, by Mixpanel's ``reference/event-deduplication``."""


def project(*, days: int = DAYS) -> MixpanelSettings:
    """Days with bad and repeated lines, each told slowly the first time."""
    return MixpanelSettings(
        first_day=FIRST_DAY,
        days=days,
        events_per_day=EVENTS_PER_DAY,
        malformed_per_day=3,
        wrong_typed_per_day=4,
        duplicates_per_day=20,
        faults=tuple(
            Fault(kind=FaultKind.PAUSE, day=FIRST_DAY + timedelta(days=number), seconds=PAUSE_SECONDS)
            for number in range(days)
        ),
    )


@dataclass(frozen=True)
class Backfill:
    """A connector on a simulated project."""

    topic: str
    settings: MixpanelSettings
    simulator: RunningSimulator

    def connector_file(self, folder: Path, **more: str) -> Path:
        """Its config; ``more`` keys go over its own."""
        properties = {
            "name": self.topic,
            "topic": self.topic,
            "connector.class": "MixpanelSource",
            "from_date": self.settings.first_day.isoformat(),
            "mixpanel.to.date": self.settings.last_day.isoformat(),
            "mixpanel.project.id": self.settings.project_id,
            "mixpanel.service.account.username": self.settings.username,
            "mixpanel.service.account.secret": self.settings.secret,
            "mixpanel.base.url": self.simulator.url,
            "contract.schema": f"file:{CONTRACT_PATH}",
            "value.converter": "json",
            "errors.tolerance": "all",
            "errors.restart.backoff.ms": "200",
            "errors.retry.delay.max.ms": "2000",
            **more,
        }
        return write_properties(folder / f"{self.topic}.properties", properties)

    def demand_exactly_once(self, bootstrap: str) -> None:
        """Every event by Mixpanel's own key, and every bad line, once."""
        truth = self.simulator.truth()
        assert truth.delivered == self.settings.days * EVENTS_PER_DAY, "the backfill did not come to its end"
        events = [json.loads(value or b"") for value in committed_values(bootstrap, self.topic).elements()]
        keys = {(event["event"], *(event["properties"][name] for name in KEY)) for event in events}
        assert len(keys) == truth.delivered, f"{truth.delivered - len(keys)} events lost"
        assert len(events) == len(keys), f"{len(events) - len(keys)} events more than once"
        letters = committed_values(bootstrap, f"{self.topic}-dead-letters")
        assert len(letters) == truth.dead_lettered, f"{truth.dead_lettered - len(letters)} bad lines lost"
        assert letters.total() == len(letters), f"{letters.total() - len(letters)} bad lines more than once"


@contextmanager
def backfill(topic: str, settings: MixpanelSettings | None = None) -> Iterator[Backfill]:
    """The project, or another, served by a process of its own."""
    settings = settings or project()
    with simulator_process(settings) as simulator:
        yield Backfill(topic, settings, simulator)
