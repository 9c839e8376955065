"""Requests and rounds of ``MixpanelSource`` against a scripted server."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime

import pytest

from fetchers.catalog import shared_http
from fetchers.sdk import Fatal, Page
from fetchers.sdk.testing import FakeClock, FakeContext, collect
from service.config.files import read_properties
from service.simulators.mixpanel_settings import MixpanelSettings
from tests.faults.worker_life import ROOT
from tests.scenarios.mixpanel_memory import DAY
from tests.scenarios.mixpanel_worker import MemoryWorker, properties, source_of
from tests.scenarios.scripted_export import Scripted, scripted_export

PROJECT = MixpanelSettings(first_day=DAY, days=1)
NOON = datetime(2024, 1, 20, 12, tzinfo=UTC)


def line(day: str, number: int = 1) -> bytes:
    """One event."""
    return f'{{"event":"e","properties":{{"time":{number},"distinct_id":"u","$insert_id":"{day}"}}}}\n'.encode()


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "Mixpanel refuses a parameter"),
        (401, "does not know these credentials"),
        (402, "plan has no raw export"),
        (403, "no right to export"),
        (404, "check mixpanel.region"),
    ],
)
async def test_what_only_a_person_can_mend_says_what_to_do(status: int, advice: str) -> None:
    """One request, then Fatal: the days, the status, advice, and Mixpanel's words without the secret."""
    answer = Scripted(f'{{"error": "mind {PROJECT.secret}"}}'.encode(), status=status)
    async with scripted_export({str(DAY): [answer]}) as export, shared_http() as http:
        worker = MemoryWorker(properties(PROJECT, export.url), http, clock=FakeClock(NOON))
        with pytest.raises(Fatal) as caught:
            await worker.run()
        assert f"Mixpanel export of {DAY}: status {status}: " in str(caught.value)
        assert advice in str(caught.value)
        assert 'Mixpanel says: {"error": "mind [hidden]"}' in str(caught.value)
        assert len(export.asked) == 1


async def test_a_request_says_what_is_wanted() -> None:
    """Days inclusive, the project, names as a JSON array in text, the expression, the unit; Basic authentication."""
    async with scripted_export({}) as export, shared_http() as http:
        texts = properties(
            PROJECT,
            export.url,
            mixpanel_to_date=str(DAY),
            mixpanel_events="Signed up,Zählung",
            mixpanel_where='properties["$os"]=="Linux"',
            mixpanel_time_in_ms="true",
        )
        await MemoryWorker(texts, http, clock=FakeClock(NOON)).run()
        assert export.asked == [
            {
                "from_date": "2024-01-10",
                "to_date": "2024-01-10",
                "project_id": PROJECT.project_id,
                "event": '["Signed up", "Zählung"]',
                "where": 'properties["$os"]=="Linux"',
                "time_in_ms": "true",
            }
        ]
        given = base64.b64encode(f"{PROJECT.username}:{PROJECT.secret}".encode()).decode()
        assert export.headers[0]["Authorization"] == f"Basic {given}"


async def test_the_project_s_secret_is_the_user_of_basic_authentication() -> None:
    """As Mixpanel documents it: the secret as user, an empty password, and no project in the query."""
    async with scripted_export({}) as export, shared_http() as http:
        texts = {
            "topic": "t",
            "from_date": str(DAY),
            "mixpanel.to.date": str(DAY),
            "api_key": "unused",
            "api_secret": "project-secret-44",
            "mixpanel.base.url": export.url,
        }
        await MemoryWorker(texts, http, clock=FakeClock(NOON)).run()
        given = base64.b64encode(b"project-secret-44:").decode()
        assert export.headers[0]["Authorization"] == f"Basic {given}"
        assert export.asked == [{"from_date": "2024-01-10", "to_date": "2024-01-10"}]


async def test_the_config_of_2016_runs_as_printed() -> None:
    """Single days one after another from the printed day to yesterday, a record a line, the position the day after."""
    printed = read_properties(ROOT / "docs/examples/seeds/mixpanel.properties")
    days = ["2016-02-01", "2016-02-02", "2016-02-03"]
    async with scripted_export({day: [Scripted(line(day))] for day in days}) as export, shared_http() as http:
        clock = FakeClock(datetime(2016, 2, 4, 12, tzinfo=UTC))
        worker = MemoryWorker(printed | {"mixpanel.base.url": export.url}, http, clock=clock)
        await worker.run()
        assert export.asked == [{"from_date": day, "to_date": day} for day in days]
        given = base64.b64encode(b"YOUR_MIXPANEL_SECRET_KEY:").decode()
        assert export.headers[0]["Authorization"] == f"Basic {given}"
    assert worker.delivered == [line(day).rstrip() for day in days]
    ((partition, offset),) = worker.offsets.items()
    assert dict(partition)["service"] == "mixpanel"
    assert offset["position"] == "2016-02-04"


async def test_the_project_s_secret_is_said_by_nobody() -> None:
    """Though it travels as the user's name, which elsewhere is no secret."""
    answer = Scripted(b"unknown user project-secret-44", status=401)
    async with scripted_export({str(DAY): [answer]}) as export, shared_http() as http:
        texts = {
            "topic": "t",
            "from_date": str(DAY),
            "mixpanel.project.secret": "project-secret-44",
            "mixpanel.base.url": export.url,
        }
        with pytest.raises(Fatal, match=r"unknown user \[hidden\]"):
            await MemoryWorker(texts, http, clock=FakeClock(NOON)).run()


async def test_refusals_are_counted_anew_after_an_answer() -> None:
    """The wait after a 429 begins at a minute again once Mixpanel has answered."""
    refused = Scripted(status=429)
    answers = {"2024-01-18": [refused, refused, refused, Scripted()], "2024-01-19": [refused, Scripted()]}
    async with scripted_export(answers) as export, shared_http() as http:
        worker = MemoryWorker(properties(PROJECT, export.url, from_date="2024-01-18"), http, clock=FakeClock(NOON))
        await worker.run()
        first, _second, third, anew = [error.wait_seconds or 0.0 for error in worker.retries]
        assert 60 <= first <= 75
        assert 240 <= third <= 300
        assert 60 <= anew <= 75


async def test_the_2016_connector_s_offset_is_taken_over() -> None:
    """Its position is read on from, nothing before it, and the project's own offset is written from then on."""
    async with scripted_export({}) as export, shared_http() as http:
        worker = MemoryWorker(properties(PROJECT, export.url, from_date="2016-02-01"), http, clock=FakeClock(NOON))
        worker.offsets = {(("service", "mixpanel"),): {"position": "2024-01-17"}}
        await worker.run()
        assert export.days_asked == ["2024-01-17", "2024-01-18", "2024-01-19"]
        own = (("project", PROJECT.project_id), ("service", "mixpanel"))
        assert worker.offsets[own]["position"] == "2024-01-20"
        await worker.run()
        assert export.days_asked[3:] == ["2024-01-17", "2024-01-18", "2024-01-19"]


async def test_every_start_looks_back_even_when_all_is_read() -> None:
    """A start after ``mixpanel.to.date`` was read, years ago, reads the open days once more and ends."""
    late = line("2024-01-11", 2)
    async with (
        scripted_export({"2024-01-11": [Scripted(line("2024-01-11")), Scripted(line("2024-01-11") + late)]}) as (
            export
        ),
        shared_http() as http,
    ):
        texts = properties(PROJECT, export.url, mixpanel_to_date="2024-01-12", mixpanel_attribution_window_days="2")
        worker = MemoryWorker(texts, http, clock=FakeClock(datetime(2030, 1, 1, tzinfo=UTC)))
        await worker.run(rounds=10)
        assert export.days_asked == ["2024-01-10", "2024-01-11", "2024-01-12"]
        assert worker.delivered == [line("2024-01-11")[:-1]]
        await worker.run(rounds=10)
        assert export.days_asked[3:] == ["2024-01-11", "2024-01-12"]
        assert worker.delivered == [line("2024-01-11")[:-1], late[:-1]]


async def test_a_round_that_failed_goes_on_where_it_stopped() -> None:
    """A retry asks for the day that failed, not for the days open for late events again: requests are dear."""
    answers = {"2024-01-19": [Scripted(status=503), Scripted(line("2024-01-19"))]}
    async with scripted_export(answers) as export, shared_http() as http:
        worker = MemoryWorker(properties(PROJECT, export.url, from_date="2024-01-17"), http, clock=FakeClock(NOON))
        await worker.run()
        assert export.days_asked == ["2024-01-17", "2024-01-18", "2024-01-19", "2024-01-19"]


async def test_rounds_follow_the_end_of_each_day() -> None:
    """After a round the next begins when a day is over in the project's zone, or after the poll interval."""
    async with scripted_export({}) as export, shared_http() as http:
        clock = FakeClock(NOON)
        texts = properties(PROJECT, export.url, from_date="2024-01-19", mixpanel_timezone="Pacific/Auckland")
        worker = MemoryWorker(texts, http, clock=clock)
        await worker.run(rounds=2)
        assert export.days_asked == ["2024-01-19", "2024-01-20", "2024-01-19", "2024-01-20", "2024-01-21"]
        # 21 January ends in Auckland at 11:00 UTC, and a minute of grace is given.
        assert datetime(2024, 1, 21, 11, 1, tzinfo=UTC) <= clock.now() < datetime(2024, 1, 21, 11, 3, tzinfo=UTC)


async def test_a_wall_clock_that_is_set_is_noticed() -> None:
    """The end of a day is not slept through when the machine's clock is put forward during the wait."""
    async with scripted_export({}) as export, shared_http() as http:
        clock = FakeClock(NOON)
        worker = MemoryWorker(properties(PROJECT, export.url, from_date="2024-01-19"), http, clock=clock)
        await worker.run()
        clock.is_automatic = False
        async with asyncio.TaskGroup() as group:
            rounds = group.create_task(worker.run(rounds=2))
            await clock.wait_for_sleeper()
            clock.jump(12 * 3600)
            clock.is_automatic = True
            await clock.advance(120)
            await rounds
        assert "2024-01-20" in export.days_asked
        assert clock.monotonic() < 300


async def test_an_unfinished_day_is_read_only_when_asked() -> None:
    """It is read in every round then, and does not count as read before its end."""
    async with scripted_export({}) as export, shared_http() as http:
        texts = properties(PROJECT, export.url, from_date="2024-01-20", poll_interval_ms="3600000")
        worker = MemoryWorker(texts, http, clock=FakeClock(NOON))
        await worker.run()
        assert export.days_asked == []
        worker.texts = {**texts, "mixpanel.unfinished.day": "true"}
        await worker.run(rounds=2)
        assert export.days_asked == ["2024-01-20", "2024-01-20"]
        assert worker.offset["position"] == "2024-01-20"


async def test_windows_of_several_days_save_requests_and_repeat_nothing() -> None:
    """A week is one request; what is read again comes in the window it came in first."""
    answers = {
        day: [Scripted(line(day), is_cut=True), Scripted(line(day))]
        for day in ("2024-01-01", "2024-01-08", "2024-01-15")
    }
    async with scripted_export(answers) as export, shared_http() as http:
        texts = properties(PROJECT, export.url, from_date="2023-12-30", mixpanel_window_days="7")
        worker = MemoryWorker(texts, http, clock=FakeClock(NOON))
        await worker.run(rounds=3)
        spans = [(query["from_date"], query["to_date"]) for query in export.asked]
        assert all(first <= last for first, last in spans)
        assert len(spans) < 20
        worker.assert_nothing_twice()
        assert worker.offset["position"] == "2024-01-22"
        worker.texts = {**texts, "mixpanel.window.days": "1"}
        await worker.run()
        worker.assert_nothing_twice()


async def test_the_lag_is_told_and_ends_at_nought() -> None:
    """How far the days read are behind the days that are over, in seconds."""
    async with scripted_export({}) as export, shared_http() as http:
        context = FakeContext(http=http, clock=FakeClock(NOON))
        await collect(source_of(properties(PROJECT, export.url, from_date="2024-01-17")), context)
        assert context.lags == [2 * 86400, 86400, 0, 0]


async def test_pages_say_where_they_come_from() -> None:
    """Offset with day and line, the window to de-duplicate in, and a page that closes the day."""
    body = line("2024-01-10") + line("2024-01-10", 2)
    async with scripted_export({str(DAY): [Scripted(body)]}) as export, shared_http() as http:
        context = FakeContext(http=http, clock=FakeClock(NOON))
        pages: list[Page] = await collect(
            source_of(properties(PROJECT, export.url, mixpanel_to_date=str(DAY))), context
        )
        assert [page.offset for page in pages] == [
            {"position": "2024-01-10", "open": "2024-01-10", "day": "2024-01-10", "line": 2},
            {"position": "2024-01-11", "open": "2024-01-10"},
        ]
        assert [(page.dedupe.window, page.dedupe.oldest_open) for page in pages if page.dedupe] == [
            ("2024-01-10", "2024-01-10")
        ] * 2


@pytest.mark.parametrize(("status", "told"), [(200, None), (401, "does not know these credentials"), (503, "503")])
async def test_a_check_asks_for_one_day(status: int, told: str | None) -> None:
    """The first; one query of the sixty an hour, and no event of it is read."""
    async with scripted_export({str(DAY): [Scripted(line("a"), status=status)]}) as export, shared_http() as http:
        source = source_of(properties(PROJECT, export.url))
        found = await source.check(FakeContext(http=http, clock=FakeClock(NOON)))
        assert [asked["from_date"] for asked in export.asked] == [str(DAY)]
    assert [(finding.key, told in finding.message) for finding in found if told] == (
        [("mixpanel.base.url", True)] if told else []
    )
    assert len(found) == (told is not None)


async def test_an_event_that_two_days_exports_hold_comes_once() -> None:
    """As long as the first day's window is open for late events, which the pages say by their scopes."""
    both, days = line("both"), ("2024-01-17", "2024-01-18", "2024-01-19")
    answers = {day: [Scripted(both + line(day))] for day in days}
    async with scripted_export(answers) as export, shared_http() as http:
        delivered = {}
        for window_days in ("5", "0"):
            changes = {"from_date": days[0], "mixpanel_attribution_window_days": window_days}
            worker = MemoryWorker(properties(PROJECT, export.url, **changes), http, clock=FakeClock(NOON))
            await worker.run()
            delivered[window_days] = worker.delivered.count(both.rstrip())
            assert sum(map(len, (worker.delivered,))) == len(days) + delivered[window_days]
    assert delivered["5"] == 1 < delivered["0"]
