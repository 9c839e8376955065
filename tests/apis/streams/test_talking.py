"""The server that the benchmarks of listeners hear: what it counts as said once is said once."""

from __future__ import annotations

import json

import aiohttp

from tests.benchmarks.streams import talking

RATE_PER_SECOND = 1_000
LINES = 50


async def test_who_connects_again_hears_what_was_not_said_yet() -> None:
    """Nothing from the first line on, so that a line that stands twice in a topic was written there twice."""
    heard: list[list[int]] = []
    with talking(rate=RATE_PER_SECOND, count=10**9) as (url, connections):
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            for _ in range(2):
                async with session.get(url) as answer:
                    heard.append([json.loads(await answer.content.readline())["number"] for _ in range(LINES)])
        assert connections.value == 2
    first, second = heard
    assert first == list(range(LINES))
    assert second == sorted(set(second) - set(first))
