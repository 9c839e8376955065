"""The REST interface of a real worker on a real broker: every operation, asked with requests made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from schemathesis import GenerationMode

from service.app import open_worker
from service.background import Background
from service.embedded.running import running
from service.job import make_job
from tests.integration.rest.requests_made_up import OPERATIONS, WRONG, ask_all
from tests.scenarios.cluster_workers import InstantConversion
from tests.stack import KafkaStack

EXAMPLES = 10
STARTED_SECONDS_MAX = 120.0
CONNECTORS = {
    "running": {"connector.class": "FileStreamSource", "file": "in.txt", "topic": "t"},
    "a/b%": {"connector.class": "FileStreamSource", "file": "in.txt", "topic": "t"},
    "sink": {"connector.class": "FileStreamSink", "file": "out.txt", "topics": "t"},
}
NOT_FOR_LONG = {("/health/ready", "get"), ("/connectors/{connector}", "delete")}
"""Ready is a matter of Spark; deleted connectors could not be asked for any more."""


@asynccontextmanager
async def working(kafka: KafkaStack, folder: Path) -> AsyncIterator[str]:
    """Where a worker serves one running connector and two stopped ones."""
    properties = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": "rest-made-up",
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(folder / "data"),
    }
    job = make_job(properties, ())
    async with open_worker(job, conversion=InstantConversion()) as worker, Background() as background:
        background.start(worker.worker.run(idle_seconds=None), name="worker")
        url = worker.addresses.rest
        async with aiohttp.ClientSession(url) as client:
            await wait_healthy(client)
            for name, config in CONNECTORS.items():
                file = {"file": str(folder / config["file"])}
                state = "RUNNING" if name == "running" else "STOPPED"
                body = {"name": name, "config": {**config, **file}, "initial_state": state}
                async with client.post("/connectors", json=body) as answer:
                    assert answer.status == 201, await answer.text()
        yield url
        worker.worker.request_stop("the test is over")


async def wait_healthy(client: aiohttp.ClientSession) -> None:
    """Until the internal topics are read."""
    async with asyncio.timeout(STARTED_SECONDS_MAX):
        while True:
            async with client.get("/health") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def url(kafka: KafkaStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the worker serves, for the whole module."""
    with running(working(kafka, tmp_path_factory.mktemp("worker")), name="worker") as serving:
        yield serving.server


@pytest.mark.integration
@pytest.mark.slow
# The worker's threads draw their own random numbers meanwhile; those are none of Hypothesis's business.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module")
@pytest.mark.parametrize(("path", "method"), [each for each in OPERATIONS if each not in NOT_FOR_LONG])
def test_no_request_finds_a_bug(path: str, method: str, url: str) -> None:
    """No 500, no status and no body that the document does not name."""
    names = tuple(CONNECTORS)
    ask_all((path, method), url, mode=GenerationMode.POSITIVE, connectors=names, examples=EXAMPLES)
    if (path, method) in WRONG:
        ask_all((path, method), url, mode=GenerationMode.NEGATIVE, connectors=names, examples=EXAMPLES)
