"""The embedded registry speaks the Confluent API, is BACKWARD by default and keeps its schemas."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from service.embedded.errors import DataDirectoryBusy
from service.embedded.registry import embedded_registry
from tests.stack import RegistryStack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

_FIRST = '{"type":"record","name":"Event","fields":[{"name":"id","type":"long"}]}'
_INCOMPATIBLE = '{"type":"record","name":"Event","fields":[{"name":"id","type":"string"}]}'


async def _request(method: str, url: str, body: object = None) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=90)) as session,
        session.request(method, url, json=body) as answer,
    ):
        return answer.status, await answer.json(content_type=None)


async def test_incompatible_schema_is_refused(registry: RegistryStack, topic_name: str) -> None:
    """Without any setting a subject takes compatible schemas only."""
    versions = f"{registry.url}/subjects/{topic_name}-value/versions"
    status, _ = await _request("POST", versions, {"schema": _FIRST})
    assert status == 200
    status, answer = await _request("POST", versions, {"schema": _INCOMPATIBLE})
    assert (status, answer["error_code"]) == (409, 409)


@pytest.mark.faults
async def test_killed_registry_keeps_schemas_ids_and_level(awkward_folder: Path) -> None:
    """SIGKILL right after an answer loses neither the schema nor its id, nor the level its user chose.

    Whatever the folder is called.
    """
    async with embedded_registry(data_dir=awkward_folder) as server:
        _, registered = await _request("POST", f"{server.address}/subjects/a-value/versions", {"schema": _FIRST})
        await _request("PUT", f"{server.address}/config", {"compatibility": "FULL"})
        os.kill(server.pid, signal.SIGKILL)
        await server.wait_exited()
        url = server.address
        await server.restart()

        assert server.address == url
        _, found = await _request("GET", f"{url}/schemas/ids/{registered['id']}")
        assert found["schema"] == _FIRST
        _, level = await _request("GET", f"{url}/config")
        assert level["compatibilityLevel"] == "FULL"
        with pytest.raises(DataDirectoryBusy):
            async with embedded_registry(data_dir=awkward_folder):
                pass


async def test_shared_registry_comes_back_at_its_address(registry: RegistryStack, topic_name: str) -> None:
    """The run's registry can be restarted by a test without the others noticing."""
    await _request("POST", f"{registry.url}/subjects/{topic_name}-value/versions", {"schema": _FIRST})
    await asyncio.to_thread(registry.restart)
    status, answer = await _request("GET", f"{registry.url}/subjects/{topic_name}-value/versions/1")
    assert (status, answer["schema"]) == (200, _FIRST)
