"""The two workers that are compared, on one broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service.app import open_worker
from service.background import Background
from service.config.job import make_job
from service.embedded.running import running
from tests.differential.asking import request
from tests.java_connect import worker_properties
from tests.scenarios.cluster_workers import InstantConversion
from tests.stack import KafkaStack

START_SECONDS_MAX = 60.0


@asynccontextmanager
async def working(bootstrap: str, folder: Path) -> AsyncIterator[str]:
    """Where a distributed worker serves that is configured as Connect's is; all but its Spark is real."""
    properties = worker_properties(bootstrap, group="headrace-compared", port=0) | {"data.dir": str(folder)}
    opened = open_worker(make_job(properties, ()), is_distributed=True, conversion=InstantConversion())
    async with opened as worker, Background() as background:
        background.start(worker.worker.run(), name="worker")
        url = worker.addresses.rest
        async with asyncio.timeout(START_SECONDS_MAX):
            while (await asyncio.to_thread(request, url, "GET", "/health")).status != 200:
                await asyncio.sleep(0.1)
        yield url
        worker.worker.request_stop("the tests are over")


@pytest.fixture(scope="session")
def headrace_worker(kafka: KafkaStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where headrace serves, for the whole run."""
    with running(working(kafka.bootstrap, tmp_path_factory.mktemp("headrace")), name="headrace") as serving:
        yield serving.server
