"""A distributed worker of ours on the run's broker, configured as the real Kafka Connect of ``tests.java_connect`` is.

A pytest plugin. Spark has a stand-in that is there at once: whoever talks to this worker is no test of conversion.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from service.app import open_worker
from service.background import Background
from service.embedded.running import running
from service.job import make_job
from tests.java_connect import PATIENT, worker_properties
from tests.rest_client import LOOK_SECONDS, WAIT_SECONDS_MAX, RestClient
from tests.scenarios.cluster_workers import InstantConversion
from tests.stack import KafkaStack


@asynccontextmanager
async def opened_worker(bootstrap: str, folder: Path, *, group: str, port: int = 0) -> AsyncIterator[str]:
    """Where it serves. Healthy, and a member of its group: before, requests that need the leader would get 409."""
    properties = worker_properties(bootstrap, group=group, port=port) | PATIENT | {"data.dir": str(folder)}
    opened = open_worker(make_job(properties, ()), is_distributed=True, conversion=InstantConversion())
    async with opened as worker, Background() as background:
        background.start(worker.worker.run(), name="worker")
        url = worker.addresses.rest
        async with aiohttp.ClientSession() as session, asyncio.timeout(WAIT_SECONDS_MAX):
            while (await RestClient(url, session).ask("DELETE", "/connectors/none"))[0] != 404:
                await asyncio.sleep(LOOK_SECONDS)
        yield url
        worker.worker.request_stop("the tests are over")


@pytest.fixture(scope="session")
def headrace_worker(kafka: KafkaStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where one worker serves, for the whole run; tests keep apart by connector names."""
    opened = opened_worker(kafka.bootstrap, tmp_path_factory.mktemp("headrace"), group="headrace-session")
    with running(opened, name="headrace") as serving:
        yield serving.server
