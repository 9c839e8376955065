"""A client of a worker's REST interface, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import aiohttp

WAIT_SECONDS_MAX = 240.0
LOOK_SECONDS = 0.1


class RestClient:
    """Asks one worker; states are told as pairs of state and worker, by task number, ``""`` for the connector."""

    def __init__(self, url: str, client: aiohttp.ClientSession) -> None:
        """``url`` without a slash at the end."""
        self.url = url
        self.client = client

    @property
    def worker_id(self) -> str:
        """As states show it."""
        return self.url.partition("//")[2]

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and decoded body."""
        async with self.client.request(method, f"{self.url}{path}", json=body) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None

    async def done(self, method: str, path: str, body: object = None) -> Any:
        """The body of a request that succeeds, if need be after some 409, as clients do it."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while True:
                status, answer = await self.ask(method, path, body)
                if status < 300:
                    return answer
                assert status == 409, (status, answer)
                await asyncio.sleep(LOOK_SECONDS)

    async def states(self, name: str) -> dict[str, tuple[str, str]]:
        """State and worker of the connector (``""``) and of each task; nothing where there is no status."""
        status, body = await self.ask("GET", f"/connectors/{quote(name, safe='')}/status")
        if status == 404:
            return {}
        tasks = {str(task["id"]): (task["state"], task["worker_id"]) for task in body["tasks"]}
        return {"": (body["connector"]["state"], body["connector"]["worker_id"]), **tasks}

    async def wait_states(self, name: str, expected: Mapping[str, str]) -> None:
        """Until the connector and its tasks are in these states."""
        await self.wait_until(name, lambda states: {key: state for key, (state, _) in states.items()} == expected)

    async def wait_until(self, name: str, is_so: Callable[[dict[str, tuple[str, str]]], bool]) -> None:
        """Until the states of a connector are so."""
        seen: dict[str, tuple[str, str]] = {}
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while not is_so(seen := await self.states(name)):
                    await asyncio.sleep(LOOK_SECONDS)
        except TimeoutError:
            raise AssertionError(f"{name} stays {seen}") from None
