"""The recipes of docs/examples/apis, each against a stand-in for its vendor: config alone, and nothing lost.

Records change between any two requests, requests are refused, and the task is killed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fetchers.catalog import shared_http
from fetchers.http.fetcher import HttpSource
from fetchers.sdk import Page, Retriable
from fetchers.sdk.testing import FakeClock, FakeContext, collect
from fetchers.toolkit.http import SharedHttp
from service.config.files import read_properties
from service.job import read_job
from spark_batch.exact.verdicts import exact_verdict
from spark_batch.plan_findings import plan_findings
from tests.apis.http.vendor import GitHubIssues, Vendor, without_hosts
from tests.apis.http.vendors import VENDORS
from tests.architecture.tracked import ROOT
from tests.contracts.loopback import serve

FOLDER = Path("docs/examples/apis")
RECIPES = sorted(path.stem for path in (ROOT / FOLDER).glob("*.properties") if path.stem != "worker")
RECORDS = 230


@pytest.fixture(name="http")
async def http_fixture() -> AsyncIterator[SharedHttp]:
    """An open client."""
    async with shared_http() as http:
        yield http


def recipe_source(name: str, url: str, vendor: Vendor) -> HttpSource:
    """The recipe's source, with the stand-in for its vendor."""
    properties = without_hosts(read_properties(ROOT / FOLDER / f"{name}.properties"), url, vendor.token)
    parsed = HttpSource.config_class.parse(properties)
    assert parsed.config is not None, parsed.findings
    made = HttpSource(parsed.config)  # type: ignore[arg-type]
    assert made.findings() == ()
    return made


class Worker:
    """What is committed and delivered; time goes on through kills."""

    def __init__(self, http: SharedHttp, clock: FakeClock) -> None:
        self.http = http
        self.clock = clock
        self.offsets: dict[Any, Any] = {}
        self.delivered: list[Page] = []

    async def run(self, made: HttpSource, *, rounds: int = 1, pages: int | None = None) -> None:
        """Rounds, or so many pages and then a kill; what is retriable is tried again after its wait, as a worker does.

        Of the pages before a kill the last is not committed: it comes again.
        """
        context = FakeContext(partition=made.partition(), offsets=self.offsets, http=self.http, clock=self.clock)
        taken: list[tuple[Page, dict[Any, Any]]] = []

        def take(page: Page) -> None:
            context.commit(page, default=made.partition())
            taken.append((page, json_copy(context.offsets)))

        while (pages is None and context.rounds < rounds) or (pages is not None and len(taken) < pages):
            with suppress(Retriable):
                left = None if pages is None else pages - len(taken)
                await collect(made, context, pages=left, rounds=rounds - context.rounds, on_page=take)
                break
            await self.clock.sleep(5)
        if pages is not None and taken:
            taken.pop()
        if taken:
            self.offsets = taken[-1][1]
        self.delivered += [page for page, _offsets in taken]

    def records(self) -> list[dict[str, Any]]:
        """Every record."""
        return [json.loads(payload or b"") for page in self.delivered for payload in page.values()]


def json_copy(offsets: dict[Any, Any]) -> dict[Any, Any]:
    """As through the offset topic: nothing but JSON survives."""
    return {key: json.loads(json.dumps(dict(offset))) for key, offset in offsets.items()}


@pytest.mark.parametrize("kills", [(), (1,), (2, 3), (4, 1, 2)])
@pytest.mark.parametrize("kind", VENDORS, ids=lambda kind: kind.recipe)
async def test_a_recipe_delivers_every_version_that_stays(http: SharedHttp, kind: Any, kills: Sequence[int]) -> None:
    """A walk over a list that changes all the time, through refusals and kills; then the list is quiet for two rounds.

    Each record comes as it then is, once; a round without news delivers nothing.
    """
    clock = FakeClock()
    vendor: Vendor = kind(clock, RECORDS)
    vendor.change = vendor.happen
    worker = Worker(http, clock)
    async with serve(vendor.answer) as url:
        for pages in kills:
            await worker.run(recipe_source(vendor.recipe, url, vendor), pages=pages)
        vendor.change = lambda asked: vendor.happen(asked) if asked < 12 else None
        await worker.run(recipe_source(vendor.recipe, url, vendor), rounds=3)
        vendor.change = lambda _asked: None
        await worker.run(recipe_source(vendor.recipe, url, vendor), rounds=2)
        before = len(worker.delivered)
        await worker.run(recipe_source(vendor.recipe, url, vendor), rounds=2)
    found = [vendor.version(record) for record in worker.records()]
    assert vendor.versions <= set(found)
    assert len(found) == len(set(found))
    assert len(worker.delivered) == before
    assert (vendor.refused > 0) == vendor.is_refusing


@pytest.mark.parametrize("is_included", [True, False])
async def test_github_is_never_asked_beyond_its_hour(http: SharedHttp, is_included: bool) -> None:  # noqa: FBT001
    """Whether ``since`` includes its second or not; the only refusal is the secondary limit, of which nothing tells."""
    clock = FakeClock()
    vendor = GitHubIssues(clock, 900, is_included=is_included)
    worker = Worker(http, clock)
    async with serve(vendor.answer) as url:
        await worker.run(recipe_source(vendor.recipe, url, vendor))
    assert {vendor.version(record) for record in worker.records()} == vendor.versions
    assert vendor.asked > vendor.allowance
    assert vendor.refused == 1
    assert clock.monotonic() >= 3600


@pytest.mark.parametrize("kill", [None, 1, 4, 9])
async def test_comments_of_each_issue_come_once_and_only_those_of_changed_issues_are_asked_for(
    http: SharedHttp, kill: int | None
) -> None:
    """A list of its own for every issue, each with its own offset; one with several pages is resumed in the middle."""
    clock = FakeClock()
    vendor = GitHubIssues(clock, 12)
    vendor.allowance = 1000
    number = 0
    for place, issue in enumerate(vendor.records):
        for _ in range(250 if place == 4 else place % 3):
            vendor.second += 1
            number += 1
            vendor.comment(issue, number)
    worker = Worker(http, clock)
    async with serve(vendor.answer) as url:
        if kill is not None:
            await worker.run(recipe_source("github-comments", url, vendor), pages=kill)
        made = recipe_source("github-comments", url, vendor)
        await worker.run(made, rounds=2)
        vendor.listed.clear()
        vendor.second += 1
        vendor.comment(vendor.records[7], 9_999)
        await worker.run(recipe_source("github-comments", url, vendor), rounds=3)
    wanted = [comment["id"] for comments in vendor.comments.values() for comment in comments]
    assert sorted(record["id"] for record in worker.records()) == sorted(wanted)
    assert vendor.listed == ["issues", "issues/8/comments", "issues", "issues/8/comments", "issues"]
    assert len({tuple(key) for key in worker.offsets}) == len(vendor.records)


@pytest.mark.parametrize("kind", VENDORS, ids=lambda kind: kind.recipe)
async def test_what_a_vendor_gives_meets_the_contract_of_its_recipe(
    http: SharedHttp, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    """Every record of the stand-in is valid by the recipe's schema."""
    clock = FakeClock()
    vendor: Vendor = kind(clock, 20)
    worker = Worker(http, clock)
    async with serve(vendor.answer) as url:
        await worker.run(recipe_source(vendor.recipe, url, vendor))
    plan = plan_of(monkeypatch, vendor.recipe)
    payloads = [payload for page in worker.delivered for payload in page.values()]
    assert len(payloads) == 20
    assert [exact_verdict(plan, payload or b"").rejection for payload in payloads] == [None] * 20


def plan_of(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """The conversion that a recipe asks for; nothing is found wrong with it."""
    monkeypatch.chdir(ROOT)
    for variable in ("GITHUB_TOKEN", "STRIPE_API_KEY", "SLACK_TOKEN", "SHOPIFY_ACCESS_TOKEN", "HUBSPOT_TOKEN"):
        monkeypatch.setenv(variable, "tok-0123456789")
    monkeypatch.setenv("ZENDESK_API_TOKEN", "tok-0123456789")
    job = read_job(FOLDER / "worker.properties", [FOLDER / f"{name}.properties"])
    assert job.warnings == ()
    (definition,) = job.definitions()
    assert definition.contract_source is not None
    return definition.plan(definition.contract_source.text)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_valid_job(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """No finding, not even a warning, and a schema that Spark can be given."""
    assert plan_findings(plan_of(monkeypatch, name)) == []
