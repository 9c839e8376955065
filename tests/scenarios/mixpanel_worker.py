"""A worker made of memory for the Mixpanel scenarios: commits, drops repeated records, retries, and can be killed."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

from fetchers.mixpanel.config import MixpanelConfig
from fetchers.mixpanel.fetcher import MixpanelSource
from fetchers.sdk import BackOff, Page, Partition, Retriable
from fetchers.sdk.http import HttpDoor
from fetchers.sdk.testing import FakeClock, FakeContext
from service.simulators.mixpanel_settings import MixpanelSettings

RETRIES_MAX = 50


class KilledError(BaseException):
    """The process is gone: nothing that was not committed counts."""


def properties(settings: MixpanelSettings, url: str, **changes: str) -> dict[str, str]:
    """A config for a simulated project. ``mixpanel_to_date="…"`` sets ``mixpanel.to.date``."""
    return {
        "topic": "events",
        "from_date": str(settings.first_day),
        "mixpanel.project.id": settings.project_id,
        "mixpanel.service.account.username": settings.username,
        "mixpanel.service.account.secret": settings.secret,
        "mixpanel.base.url": url,
        **{key if key == "from_date" else key.replace("_", "."): value for key, value in changes.items()},
    }


def source_of(texts: Mapping[str, str]) -> MixpanelSource:
    """The connector of a valid config."""
    parsed = MixpanelConfig.parse(texts)
    assert parsed.config is not None, parsed.findings
    return MixpanelSource(parsed.config)


def known_by(payload: bytes) -> Hashable:
    """What Mixpanel knows an event by; the whole line where it is no JSON object."""
    try:
        event = json.loads(payload)
        told = event["properties"]
        return event.get("event"), told.get("distinct_id", ...), told.get("time", ...), told.get("$insert_id", ...)
    except (ValueError, TypeError, KeyError, AttributeError):
        return payload


@dataclass(slots=True)
class MemoryWorker:
    """What is in Kafka, and what one process after another does to it."""

    texts: Mapping[str, str]
    http: HttpDoor
    clock: FakeClock = field(default_factory=lambda: FakeClock(datetime(2024, 2, 1, tzinfo=UTC)))
    pages_a_commit: int = 3
    delivered: list[bytes] = field(default_factory=list)
    dropped: int = 0
    offsets: dict[Any, Any] = field(default_factory=dict)
    seen: dict[str, set[Hashable]] = field(default_factory=dict)
    """Records known, by window; committed with them."""
    closed_before: str = ""
    retries: list[Retriable] = field(default_factory=list)
    contexts: list[FakeContext] = field(default_factory=list)
    _batch: list[Page] = field(default_factory=list)

    async def run(self, *, rounds: int = 1, kill_after_pages: int | None = None) -> None:
        """One process: until so many rounds are over, the source ends, or it is killed. What is Fatal is raised."""
        connector = source_of(self.texts)
        own = connector.partition()
        context = FakeContext(partition=own, offsets=self.offsets, http=self.http, clock=self.clock)
        self.contexts.append(context)
        self._batch = []
        pages = 0
        wanted = _Rounds(rounds)
        context.on_round = wanted.check
        for attempt in range(1, RETRIES_MAX):
            try:
                async with aclosing(cast("Any", connector.fetch(context))) as stream:
                    async for page in stream:
                        pages += 1
                        if pages == kill_after_pages:
                            return
                        context.commit(page, default=own)  # where a retry resumes: after what was handed over
                        self._take(page, own)
            except Retriable as error:
                self.retries.append(error)
                await self.clock.sleep(BackOff().wait_seconds(attempt, asked_seconds=error.wait_seconds))
            except _RoundsOverError:
                break
            else:
                break
        self._commit(own)

    def _take(self, page: Page, own: Partition) -> None:
        self._batch.append(page)
        if len(self._batch) >= self.pages_a_commit:
            self._commit(own)

    def _commit(self, own: Partition) -> None:
        """One transaction: records, what they are known by, and the offset."""
        for page in self._batch:
            assert page.dedupe is not None
            assert page.dedupe.window >= self.closed_before, "a closed window was read again"
            known = self.seen.setdefault(page.dedupe.window, set())
            for payload in page.values():
                assert payload is not None
                key = known_by(payload)
                # As the worker's own state does: in every window that is open, not in the page's alone.
                if any(key in others for others in self.seen.values()):
                    self.dropped += 1
                else:
                    known.add(key)
                    self.delivered.append(payload)
            self.closed_before = max(self.closed_before, page.dedupe.oldest_open)
            for window in [window for window in self.seen if window < self.closed_before]:
                del self.seen[window]
            recorded = FakeContext(offsets=self.offsets)
            recorded.commit(page, default=own)
            self.offsets = recorded.offsets
        self._batch = []

    @property
    def offset(self) -> Mapping[str, Any]:
        """The one committed source offset."""
        (offset,) = self.offsets.values()
        return cast("Mapping[str, Any]", offset)

    def assert_nothing_twice(self) -> None:
        """Every record is there once by what it is known by."""
        keys = [known_by(payload) for payload in self.delivered]
        assert len(keys) == len(set(keys))


class _RoundsOverError(Exception):
    """Leaves a fetcher at the end of a round."""


@dataclass(frozen=True, slots=True)
class _Rounds:
    """Ends a fetch after so many rounds."""

    wanted: int

    def check(self, count: int) -> None:
        """Called by the context at the end of each round."""
        if count >= self.wanted:
            raise _RoundsOverError
