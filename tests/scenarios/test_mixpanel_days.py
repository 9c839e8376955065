"""Traps of Mixpanel's export that are about days: failures, restarts, zones, late events, limits (M1–M10, M12–M14)."""

from __future__ import annotations

import asyncio
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, Page, RateLimited, Retriable
from fetchers.sdk.testing import FakeClock, FakeContext, collect
from metrics.events import ConfigWarning
from service.demo.sources import project as demo_project
from service.simulators.mixpanel import LIMITS, MixpanelSimulator
from service.simulators.mixpanel_settings import Fault, FaultKind, MixpanelSettings
from tests.scenarios.mixpanel_worker import MemoryWorker, known_by, properties, source_of

FIRST = date(2024, 1, 10)
NOW = datetime(2024, 2, 1, tzinfo=UTC)


def project(**changes: object) -> MixpanelSettings:
    """A small project whose three days are long over."""
    defaults: dict[str, object] = {"first_day": FIRST, "days": 3, "events_per_day": 200, "now": NOW}
    return MixpanelSettings(**{**defaults, **changes})  # type: ignore[arg-type]


def fault(kind: FaultKind, number: int, **changes: object) -> Fault:
    """What happens to request ``number`` of the project's first day."""
    return Fault(kind=kind, day=FIRST, attempt=number, **changes)  # type: ignore[arg-type]


async def test_m01_errors_and_empty_bodies_end_every_wait() -> None:
    """500, 403, a reset and an empty 200: retried, failed with a message, retried, no record; nothing hangs."""
    faults = (
        fault(FaultKind.STATUS, 1, status=500, body="oops"),
        fault(FaultKind.STATUS, 2, status=403, body="no right"),
        fault(FaultKind.CUT, 3, fraction=0.0),
        fault(FaultKind.EMPTY, 4),
    )
    settings = project(days=1, faults=faults)
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        worker = MemoryWorker(properties(settings, simulator.url, mixpanel_to_date=str(FIRST)), http)
        with pytest.raises(Fatal, match=r"no right to export this project.*Mixpanel says: no right"):
            await worker.run()
        assert [str(error) for error in worker.retries if "status 500" in str(error)]
        assert worker.offsets == {}
        await worker.run()
        assert len(worker.retries) == 2
        assert worker.delivered == []
        assert worker.offset["position"] == str(FIRST + timedelta(days=1))


async def test_m02_a_slow_second_day_survives_a_kill() -> None:
    """A body that pauses, a kill in the pause and a restart: every line is there."""
    second = FIRST + timedelta(days=1)
    faults = (Fault(kind=FaultKind.PAUSE, day=second, attempt=1, fraction=0.5, seconds=0.2),)
    settings = project(events_per_day=9000, is_gzipped=False, faults=faults)
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        worker = MemoryWorker(
            properties(settings, simulator.url, mixpanel_to_date=str(settings.last_day)), http, pages_a_commit=1
        )
        await worker.run(kill_after_pages=6)
        assert worker.offset["day"] == str(second)
        await worker.run()
        worker.assert_nothing_twice()
        assert len(worker.delivered) == simulator.truth().delivered == 27_000


async def test_m03_boundary_days_are_read_once() -> None:
    """Both dates are inclusive, so each request has one day, and no day is in two of them."""
    settings = project()
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        worker = MemoryWorker(properties(settings, simulator.url, mixpanel_to_date=str(settings.last_day)), http)
        await worker.run()
        assert [seen.days for seen in simulator.requests] == [(str(day), str(day)) for day in settings.calendar]
        assert worker.dropped == 0
        assert len(worker.delivered) == simulator.truth().delivered == 600


@pytest.mark.parametrize("zone", ["US/Pacific", "Pacific/Auckland", "UTC"])
@pytest.mark.parametrize("minutes", [-2, 0, 2, 12 * 60])
@pytest.mark.parametrize("midnight_of", ["UTC", "project"])
async def test_m05_days_are_the_project_s(zone: str, minutes: int, midnight_of: str) -> None:
    """Around both midnights: no 400, no day skipped, no day before its end."""
    settings = project(first_day=date(2024, 3, 8), days=6, events_per_day=20, time_zone=zone)
    offset = {"US/Pacific": timedelta(hours=7), "Pacific/Auckland": timedelta(hours=-13), "UTC": timedelta(0)}[zone]
    midnight = datetime(2024, 3, 12, tzinfo=UTC) + (offset if midnight_of == "project" else timedelta(0))
    clock = FakeClock(midnight + timedelta(minutes=minutes))
    over = (clock.now() - offset - timedelta(minutes=1)).date() - timedelta(days=1)
    async with MixpanelSimulator(settings, clock=clock) as simulator, shared_http() as http:
        simulator.set_now(clock.now())
        worker = MemoryWorker(properties(settings, simulator.url, mixpanel_timezone=zone), http, clock=clock)
        await worker.run()
        assert {seen.status for seen in simulator.requests} == {200}
        asked = [seen.days[0] for seen in simulator.requests]
        assert asked == [str(day) for day in settings.calendar if day <= over]


async def test_m06_a_late_event_is_delivered_once() -> None:
    """Events of days ago that appear later come with the next look back, and only they."""
    settings = project(late_per_day=3, days=10, now=None)
    clock = FakeClock(datetime(2024, 1, 20, 0, 2, tzinfo=UTC))
    async with MixpanelSimulator(settings, clock=clock) as simulator, shared_http() as http:
        worker = MemoryWorker(properties(settings, simulator.url), http, clock=clock)
        await worker.run()
        assert len(worker.delivered) == 2000
        await worker.run()
        assert len(worker.delivered) == 2000 + 5 * 3
        await worker.run(rounds=3)
        worker.assert_nothing_twice()
        assert len(worker.delivered) == simulator.truth().delivered == 2000 + 5 * 3


async def test_m06_a_day_is_read_until_its_last_late_event_may_have_come() -> None:
    """In a run of weeks every day is read for the last time when five more days have ended; then never again."""
    settings = project(first_day=date(2024, 1, 1), days=20, events_per_day=5, now=None)
    clock = FakeClock(datetime(2024, 1, 3, 0, 2, tzinfo=UTC))
    read: dict[str, list[date]] = {}
    async with MixpanelSimulator(settings, clock=clock) as simulator, shared_http() as http:
        worker = MemoryWorker(properties(settings, simulator.url), http, clock=clock)
        seen = 0
        context = FakeContext(http=http, clock=clock)
        context.on_round = lambda _count: None
        connector = source_of(worker.texts)
        async for _page in connector.fetch(context):
            for request in simulator.requests[seen:]:
                read.setdefault(request.days[0], []).append(clock.now().date())
            seen = len(simulator.requests)
            if clock.now() > datetime(2024, 1, 20, tzinfo=UTC):
                break
    for day, times in read.items():
        ended = date.fromisoformat(day) + timedelta(days=1)
        if ended > date(2024, 1, 13):
            continue
        assert max(times) == ended + timedelta(days=5) or ended <= date(2024, 1, 2)
    assert [len(read[f"2024-01-{day:02}"]) for day in range(4, 13)] == [6] * 9


@pytest.mark.parametrize("kill_after", range(2, 14, 3))
async def test_m07_kills_in_a_big_day_lose_and_repeat_nothing(kill_after: int) -> None:
    """Whatever page dies, after the restart every event is there once."""
    settings = project(days=2, events_per_day=15_000, duplicates_per_day=100)
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        worker = MemoryWorker(
            properties(settings, simulator.url, mixpanel_to_date=str(settings.last_day)), http, pages_a_commit=2
        )
        await worker.run(kill_after_pages=kill_after)
        await worker.run()
        worker.assert_nothing_twice()
        assert len(worker.delivered) == simulator.truth().delivered == 30_000


async def test_m08_a_malformed_line_is_handed_over_as_it_is() -> None:
    """Bad lines in the middle stop nothing, and keep their bytes for the dead letters."""
    settings = project(malformed_per_day=12, wrong_typed_per_day=6)
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        worker = MemoryWorker(properties(settings, simulator.url, mixpanel_to_date=str(settings.last_day)), http)
        await worker.run()
        await worker.run()
        truth = simulator.truth()
        assert len(worker.delivered) == truth.lines_distinct == 600 + 3 * 18
        assert (
            sum(line.startswith(b"<html>upstream error") for line in worker.delivered) == truth.bad_by_kind["no_json"]
        )
        assert sum(b"\xff\xfe" in line for line in worker.delivered) == truth.bad_by_kind["invalid_utf8"]


async def test_m08_wrong_credentials_fail_the_task_at_once() -> None:
    """A 401 is not tried again, and says what to check without the secret."""
    settings = project()
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        texts = {**properties(settings, simulator.url), "mixpanel.service.account.secret": "wrong-secret-7c21"}
        with pytest.raises(Fatal, match=r"2024-01-10.*401.*check mixpanel.service.account") as caught:
            await MemoryWorker(texts, http).run()
        assert "wrong-secret-7c21" not in str(caught.value)
        assert len(simulator.requests) == 1


async def test_m09_two_years_stay_within_the_limits() -> None:
    """The server never sees more than 60 queries an hour or 3 a second, and the waits show."""
    settings = project(first_day=date(2022, 1, 1), days=730, events_per_day=2, enforces_limits=True, now=None)
    clock = FakeClock(datetime(2024, 1, 1, 1, tzinfo=UTC))
    async with MixpanelSimulator(settings, clock=clock) as simulator, shared_http() as http:
        texts = properties(settings, simulator.url, mixpanel_to_date=str(settings.last_day))
        worker = MemoryWorker(texts, http, clock=clock)
        await worker.run()
        moments = [seen.at_seconds for seen in simulator.requests]
        assert len(moments) == 730
        assert {seen.status for seen in simulator.requests} == {200}
        for count, seconds in LIMITS:
            assert all(
                later - moment >= seconds - 1e-6 for moment, later in zip(moments, moments[count:], strict=False)
            )
        assert worker.contexts[0].limit_waits > 0
        assert len(worker.delivered) == 1460


async def test_m09_a_429_waits_as_long_as_it_asks() -> None:
    """``Retry-After`` is obeyed; without it waits grow from a minute; the day is read in the end."""
    faults = (
        fault(FaultKind.STATUS, 1, status=429, headers=(("Retry-After", "77"),)),
        *(fault(FaultKind.STATUS, number, status=429) for number in range(2, 9)),
    )
    settings = project(days=1, faults=faults)
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        worker = MemoryWorker(properties(settings, simulator.url, mixpanel_to_date=str(FIRST)), http)
        await worker.run()
        assert all(isinstance(error, RateLimited) for error in worker.retries)
        waits = [error.wait_seconds or 0.0 for error in worker.retries]
        assert waits[0] == 77
        assert all(60 <= wait <= 900 for wait in waits[1:])
        assert all(later >= 0.8 * earlier for earlier, later in pairwise(waits[1:]))
        assert waits[-1] >= 720
        assert len(worker.delivered) == 200


@pytest.mark.parametrize("kind", ["next round", "limit", "body"])
async def test_m10_a_stop_ends_every_wait_at_once(kind: str) -> None:
    """Waiting for the next day, for the limit or for a slow body: nothing of what it waited for is waited for."""
    faults = (
        (Fault(kind=FaultKind.PAUSE, day=FIRST, attempt=1, fraction=0.2, seconds=3600.0),) if kind == "body" else ()
    )
    days = 10 if kind == "limit" else 1
    settings = project(days=days, is_gzipped=False, faults=faults)
    clock = FakeClock(NOW, is_automatic=False)
    reached = asyncio.Event()
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        context = FakeContext(http=http, clock=clock)

        async def fetch() -> None:
            async for _page in source_of(properties(settings, simulator.url)).fetch(context):
                reached.set()

        async with asyncio.TaskGroup() as group, asyncio.timeout(60):
            task = group.create_task(fetch())
            if kind == "body":
                while not simulator.requests:
                    await asyncio.sleep(0)
            else:
                await clock.wait_for_sleeper()
            task.cancel()
            await asyncio.wait({task})


async def test_m12_terminated_early_is_no_finished_day() -> None:
    """The window is read again, the position stays, and the words are never a record."""
    faults = (fault(FaultKind.TERMINATED_EARLY, 1), fault(FaultKind.TERMINATED_EARLY, 2, fraction=0.9))
    settings = project(days=1, faults=faults)
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        worker = MemoryWorker(properties(settings, simulator.url, mixpanel_to_date=str(FIRST)), http, pages_a_commit=1)
        connector = source_of(worker.texts)
        context = FakeContext(http=http, clock=worker.clock)
        pages: list[Page] = []
        with pytest.raises(Retriable, match=r"2024-01-10.*terminated early"):
            await collect(connector, context, on_page=pages.append)
        assert all(page.offset["position"] == str(FIRST) for page in pages)
        await worker.run()
        assert len(worker.retries) == 1
        assert len(worker.delivered) == 200
        assert not any(b"terminated early" in line for line in worker.delivered)


@pytest.mark.parametrize("kind", [FaultKind.CUT, FaultKind.TRUNCATED, FaultKind.SHORT_GZIP, FaultKind.FALSE_GZIP])
async def test_m12_no_broken_body_is_a_finished_day(kind: FaultKind) -> None:
    """However a body breaks off, its day is read again, and what came before is not delivered twice."""
    settings = project(days=2, events_per_day=9000, faults=(fault(kind, 1, fraction=0.8),))
    async with MixpanelSimulator(settings) as simulator, shared_http() as http:
        texts = properties(settings, simulator.url, mixpanel_to_date=str(settings.last_day))
        worker = MemoryWorker(texts, http, pages_a_commit=1)
        await worker.run()
        assert len(worker.retries) == 1
        assert [seen.days[0] for seen in simulator.requests] == ["2024-01-10", "2024-01-10", "2024-01-11"]
        worker.assert_nothing_twice()
        assert len(worker.delivered) == simulator.truth().delivered == 18_000


async def test_m13_the_last_second_of_a_day_comes_once() -> None:
    """Events of 00:00:00 and 23:59:59 are in one request each, night after night."""
    settings = project(days=4, events_per_day=2, now=None)
    clock = FakeClock(datetime(2024, 1, 11, 0, 2, tzinfo=UTC))
    async with MixpanelSimulator(settings, clock=clock) as simulator, shared_http() as http:
        worker = MemoryWorker(
            properties(settings, simulator.url, mixpanel_attribution_window_days="0"), http, clock=clock
        )
        await worker.run(rounds=4)
        assert [seen.days for seen in simulator.requests] == [(str(day), str(day)) for day in settings.calendar]
        assert len(worker.delivered) == len({known_by(line) for line in worker.delivered}) == 8


@pytest.mark.parametrize("is_unfinished_read", [False, True])
async def test_m14_a_server_behind_our_clock_is_not_stormed(*, is_unfinished_read: bool) -> None:
    """``to_date`` later than the server's today: no failure, no storm of 400, and the day is read when it may be."""
    settings = project(first_day=date(2024, 1, 10), days=5, events_per_day=20, time_zone="Etc/GMT+12", now=None)
    clock = FakeClock(datetime(2024, 1, 12, 10, 1, 30, tzinfo=UTC))
    async with MixpanelSimulator(settings, clock=clock) as simulator, shared_http() as http:
        texts = properties(
            settings,
            simulator.url,
            mixpanel_timezone="Pacific/Kiritimati",
            from_date="2024-01-12",
            mixpanel_unfinished_day=str(is_unfinished_read).lower(),
        )
        worker = MemoryWorker(texts, http, clock=clock)
        await worker.run(rounds=10)
        refused = [seen for seen in simulator.requests if seen.status == 400]
        assert len(refused) > 1
        assert all(later.at_seconds - earlier.at_seconds >= 900 - 1e-6 for earlier, later in pairwise(refused))
        assert worker.retries == []
        assert "2024-01-12" in simulator.truth().days_answered
        worker.assert_nothing_twice()
        warnings = [event for event in worker.contexts[0].events if isinstance(event, ConfigWarning)]
        assert {event.key for event in warnings} == {"mixpanel.timezone"}


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_demo_s_project_balances(*, is_restarted: bool) -> None:
    """Everything a real export may do at once, in two rounds or two starts: its accounts and ours agree."""
    settings = demo_project(today=date(2024, 2, 1), events_per_day=500)
    clock = FakeClock(NOW + timedelta(hours=12))
    async with MixpanelSimulator(settings, clock=clock) as simulator, shared_http() as http:
        texts = properties(settings, simulator.url, mixpanel_to_date=str(settings.last_day), poll_interval_ms="2000")
        worker = MemoryWorker(texts, http, clock=clock)
        await worker.run(rounds=1 if is_restarted else 10)
        if is_restarted:
            await worker.run(rounds=10)
        truth = simulator.truth()
        assert sum(context.rounds for context in worker.contexts) == 2
        assert truth.days_answered == tuple(map(str, settings.calendar))
        assert truth.late_days_answered == tuple(map(str, settings.calendar[-4:]))
        worker.assert_nothing_twice()
        assert len(worker.delivered) == truth.lines_distinct
        assert len(worker.retries) == len(settings.faults)
