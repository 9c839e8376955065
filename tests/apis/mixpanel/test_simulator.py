"""The simulator of the export keeps honest accounts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, date, datetime

import aiohttp
import pytest

from service.simulators.mixpanel import EXPORT_PATH, MixpanelSimulator
from service.simulators.mixpanel_events import block_of, render_day
from service.simulators.mixpanel_process import simulator_process
from service.simulators.mixpanel_settings import CONTRACT_PATH, Fault, FaultKind, MixpanelSettings
from tests.scenarios.mixpanel_worker import known_by

DAY = date(2024, 1, 10)
SETTINGS = MixpanelSettings(
    first_day=DAY,
    days=2,
    events_per_day=500,
    malformed_per_day=12,
    wrong_typed_per_day=12,
    duplicates_per_day=40,
    late_per_day=7,
    now=datetime(2024, 1, 15, tzinfo=UTC),
)


@asynccontextmanager
async def asking(settings: MixpanelSettings) -> AsyncIterator[tuple[MixpanelSimulator, aiohttp.ClientSession]]:
    """A simulator and a client that it knows."""
    header = {"Authorization": aiohttp.encode_basic_auth(settings.username, settings.secret)}
    async with MixpanelSimulator(settings) as simulator, aiohttp.ClientSession(headers=header) as client:
        yield simulator, client


def query(settings: MixpanelSettings, **changes: str) -> dict[str, str]:
    """Parameters for the first day."""
    return {"project_id": settings.project_id, "from_date": str(DAY), "to_date": str(DAY), **changes}


def test_a_day_is_what_its_accounts_say() -> None:
    """Good lines are as many as said and different by key; bad ones are different by their bytes; the rest repeats."""
    day = render_day(SETTINGS, DAY)
    lines = day.base.split(b"\n")[:-1]
    bad = sum(count for _, count in day.bad)
    assert len(lines) == day.lines == 500 + 24 + 40
    assert len({known_by(line) for line in lines}) == day.good + bad == 524
    assert day.late.count(b"\n") == day.late_good == 7
    assert not {known_by(line) for line in day.late.splitlines()} & {known_by(line) for line in lines}


def test_the_same_seed_gives_the_same_day() -> None:
    """Another seed, or another day, gives another."""
    assert render_day(SETTINGS, DAY) == render_day(SETTINGS, DAY)
    assert render_day(SETTINGS, DAY) != render_day(replace(SETTINGS, seed=2), DAY)


def test_blocks_of_a_repeated_day_differ_by_key() -> None:
    """A day of any size has no event twice."""
    base = render_day(replace(SETTINGS, duplicates_per_day=0, malformed_per_day=0), DAY).base
    keys = {known_by(line) for number in range(3) for line in block_of(base, number).splitlines()}
    assert len(keys) == 3 * base.count(b"\n")


def test_the_contract_names_what_lines_have() -> None:
    """Every field of the contract's properties is in some line, under its name in JSON."""
    contract = json.loads(CONTRACT_PATH.read_text())
    fields = contract["fields"][1]["type"]["fields"]
    names = {field.get("json.name", field["name"]) for field in fields}
    good = render_day(replace(SETTINGS, malformed_per_day=0, wrong_typed_per_day=0), DAY)
    seen = {name for line in good.base.split(b"\n")[:-1] for name in json.loads(line)["properties"]}
    assert names <= seen


async def test_late_events_show_after_the_day_was_told_in_full() -> None:
    """Not in the first answer, nor after one that was cut; the accounts follow what was really told."""
    settings = replace(SETTINGS, faults=(Fault(kind=FaultKind.TERMINATED_EARLY, day=DAY),))
    async with asking(settings) as (simulator, client):
        counts = []
        for _ in range(3):
            async with client.get(simulator.url + EXPORT_PATH, params=query(settings)) as answer:
                counts.append((await answer.read()).count(b"\n"))
            counts.append(simulator.truth().delivered)
        assert counts[0] < 564
        assert counts[1:] == [0, 564, 500, 571, 507]
        assert simulator.truth().dead_lettered == 24
        assert simulator.truth().duplicates == 40


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"from_date": ""}, 400, "from_date"),
        ({"to_date": "2024-1"}, 400, "to_date"),
        ({"to_date": "2024-01-09"}, 400, "later than to_date"),
        ({"to_date": "2024-01-16"}, 400, "to_date cannot be later than today"),
        ({"project_id": "1"}, 403, "no access"),
    ],
)
async def test_wrong_parameters_are_refused(changes: dict[str, str], status: int, said: str) -> None:
    """With the status and words of the export."""
    async with (
        asking(SETTINGS) as (simulator, client),
        client.get(simulator.url + EXPORT_PATH, params=query(SETTINGS, **changes)) as answer,
    ):
        assert (answer.status, said in await answer.text()) == (status, True)


async def test_strangers_are_refused() -> None:
    """No credentials, wrong ones, and a service account without its project."""
    async with asking(SETTINGS) as (simulator, client):
        for header in ("", "Basic !", aiohttp.encode_basic_auth("reader", "guess")):
            async with client.get(simulator.url + EXPORT_PATH, headers={"Authorization": header}) as answer:
                assert answer.status == 401
        async with client.get(simulator.url + EXPORT_PATH, params={"from_date": str(DAY)}) as answer:
            assert answer.status == 400


async def test_the_limits_are_enforced_when_asked() -> None:
    """The fourth request of a second gets 429 with Retry-After; with the clock run fast it does not."""
    for scale, expected in ((1.0, [200, 200, 200, 429]), (1e9, [200] * 4)):
        settings = replace(SETTINGS, enforces_limits=True, time_scale=scale)
        async with asking(settings) as (simulator, client):
            statuses = []
            for _ in range(4):
                async with client.get(simulator.url + EXPORT_PATH, params=query(settings)) as answer:
                    statuses.append(answer.status)
                    await answer.read()
            assert statuses == expected


@pytest.mark.slow
def test_a_simulator_in_its_own_process_tells_its_accounts() -> None:
    """It starts, tells, and ends with its block."""
    with simulator_process(SETTINGS, is_prepared=True) as simulator:
        assert simulator.url.startswith("http://127.0.0.1:")
        assert simulator.truth().delivered == 0
