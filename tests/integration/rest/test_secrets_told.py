"""A secret from a config provider in a failure at a task's start: told nowhere, on a real worker."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from fetchers.sdk import Fatal, FetchContext, FetcherConfig, Page, Secret, SourceConnector
from service.app import open_worker
from service.background import Background
from service.job import make_job
from tests.integration.rest.test_real_worker import wait_healthy
from tests.scenarios.cluster_workers import InstantConversion
from tests.stack import KafkaStack

PASSWORD = "hunter2 & söhne/47"
SECONDS_MAX = 300.0


class LeakingConfig(FetcherConfig):
    """Keys of a source that tells what it should not."""

    login: str
    """Named like no secret, and given by a variable."""
    pin: Secret
    """Declared as one."""


class Leaking(SourceConnector[LeakingConfig]):
    """Cannot log in, and says with what."""

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Raise an error with a cause, each with the values in other forms."""
        del context
        login, pin = self.config.login, self.config.pin.get_secret_value()
        try:
            _ = dict[tuple[str, str], str]()[login, pin]
        except KeyError as error:
            shown = base64.b64encode(f"anne:{login}".encode()).decode()
            raise Fatal(f"refused at http://h/?p={quote(login)}&q={pin} with {shown} and {login!r}") from error
        yield Page((), offset={})


@pytest.mark.integration
async def test_a_secret_in_a_failure_is_told_nowhere(
    kafka: KafkaStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by ``/status``, nor by ``/health/ready``; what else the error says is."""
    monkeypatch.setenv("HEADRACE_TEST_LOGIN", PASSWORD)
    monkeypatch.setenv("HEADRACE_TEST_PIN", "48151623")
    properties = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": "secrets-told",
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(tmp_path / "data"),
        "config.providers": "env",
        "config.providers.env.class": "EnvVarConfigProvider",
    }
    config = {
        "connector.class": f"{__name__}:Leaking",
        "topic": "secrets-told",
        "login": "${env:HEADRACE_TEST_LOGIN}",
        "pin": "${env:HEADRACE_TEST_PIN}",
    }
    job = make_job(properties, ())
    async with open_worker(job, conversion=InstantConversion()) as worker, Background() as background:
        background.start(worker.worker.run(idle_seconds=None), name="worker")
        async with aiohttp.ClientSession(worker.addresses.rest) as client:
            await wait_healthy(client)
            async with client.put("/connectors/leaking/config", json=config) as answer:
                assert answer.status == 201, await answer.text()
            status = await failed_status(client)
            async with client.get("/health/ready") as answer:
                ready = await answer.text()
            async with client.get("/connectors/leaking") as answer:
                info = await answer.json()
        worker.worker.request_stop("the test is over")

    assert "refused at http://h/" in status
    assert "refused at http://h/" in ready
    assert info["config"]["login"] == "${env:HEADRACE_TEST_LOGIN}"
    for told in (status, ready):
        shown = json.dumps(json.loads(told), ensure_ascii=False)
        for secret in (PASSWORD, quote(PASSWORD), "hunter2", "söhne", "48151623", "aHVudGVy", "Omh1bnRlcj"):
            assert secret not in shown


async def failed_status(client: aiohttp.ClientSession) -> str:
    """The connector's status, once its task has failed."""
    async with asyncio.timeout(SECONDS_MAX):
        while True:
            async with client.get("/connectors/leaking/status") as answer:
                text = await answer.text()
            if "FAILED" in text:
                return text
            await asyncio.sleep(0.1)
