"""Values of config providers in a whole worker: used, and neither stored, shown nor told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from service.kafka.reader import read_topic
from tests.rest_client import LOOK_SECONDS, WAIT_SECONDS_MAX
from tests.scenarios.cluster_workers import Cluster
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
SECRET = "hush-hush-hush"
RUNNING = {"": "RUNNING", "0": "RUNNING"}


@pytest.fixture
def cluster(kafka: KafkaStack, tmp_path: Path) -> Cluster:
    """A worker's config with a provider of files, in which a topic is named by a secret."""
    (tmp_path / "secrets.properties").write_text(f"topic={SECRET}-lines\nlogin={SECRET}\n", encoding="utf-8")
    providers = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(tmp_path),
    }
    return Cluster(kafka.bootstrap, tmp_path, more=providers)


async def raw_records(cluster: Cluster, topic: str) -> bytes:
    """Everything that stands in a topic."""
    found = b""
    try:
        async for records in read_topic(KafkaSettings(bootstrap=cluster.bootstrap), topic):
            for record in records:
                found += (record.key or b"") + (record.value or b"")
    except DeliveryFatal:
        return b""  # the topic is not there yet
    return found


async def test_a_value_of_a_provider_is_used_and_shown_nowhere(cluster: Cluster) -> None:
    """REST and the config topic have the variable, also in task configs; the connector writes where the value says."""
    path = cluster.file(["a", "b"])
    variable = f"${{file:{cluster.folder}/secrets.properties:topic}}"
    config = {**cluster.source(path), "topic": variable}

    async with cluster.worker() as worker:
        created = await worker.done("POST", "/connectors", {"name": "c", "config": config})
        await worker.wait_states("c", RUNNING)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while b"ab" not in await raw_records(cluster, f"{SECRET}-lines"):
                await asyncio.sleep(LOOK_SECONDS)
        answers = [
            created,
            await worker.done("GET", "/connectors/c/config"),
            await worker.done("GET", "/connectors/c/tasks"),
            await worker.done("PUT", "/connector-plugins/FileStreamSource/config/validate", {**config, "name": "c"}),
        ]
    assert SECRET not in str(answers)
    assert variable in str(answers[2])
    stored = await raw_records(cluster, f"{cluster.name}-configs")
    assert SECRET.encode() not in stored
    assert variable.encode() in stored


async def test_a_wrong_value_of_a_provider_is_refused_without_telling_it(cluster: Cluster) -> None:
    """With Connect's text and status; a file that is not there, too."""
    path = cluster.file(["a"])
    wrong = {**cluster.source(path), "tasks.max": f"${{file:{cluster.folder}/secrets.properties:login}}"}
    missing = {**cluster.source(path), "topic": f"${{file:{cluster.folder}/nope.properties:login}}"}

    async with cluster.worker() as worker:
        status, refused = await worker.ask("POST", "/connectors", {"name": "w", "config": wrong})
        assert status == 400
        assert "contains the following 1 error(s)" in refused["message"]
        assert "the value resolved from the config provider reference failed validation" in refused["message"]
        assert SECRET not in refused["message"]
        status, refused = await worker.ask("POST", "/connectors", {"name": "m", "config": missing})
        assert (status, "Could not read properties from file" in refused["message"]) == (400, True)
        assert await worker.done("GET", "/connectors") == []


async def test_a_variable_without_a_value_fails_the_connector_by_its_name(cluster: Cluster) -> None:
    """What reads the source would be sent the variable as if it were its value; one of no known provider is text."""
    path = cluster.file(["a"])
    variable = f"${{file:{cluster.folder}/secrets.properties:nobody}}"
    later = {**cluster.source(path), "file": variable}
    other = {**cluster.source(path), "note": "${vault:what}"}

    async with cluster.worker() as worker:
        await worker.done("POST", "/connectors", {"name": "later", "config": later})
        await worker.done("POST", "/connectors", {"name": "other", "config": other})
        await worker.wait_states("later", {"": "FAILED"})
        await worker.wait_states("other", RUNNING)
        status = await worker.done("GET", "/connectors/later/status")
        trace = status["connector"]["trace"]
        assert f"file: {variable} is not resolved: the config provider 'file' does not know it" in trace
        with (cluster.folder / "secrets.properties").open("a", encoding="utf-8") as file:
            file.write(f"nobody={path}\n")
        await worker.done("POST", "/connectors/later/restart?includeTasks=true")
        await worker.wait_states("later", RUNNING)
