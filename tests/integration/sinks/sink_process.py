"""A process that runs one sink task until it is killed: ``python sink_process.py BOOTSTRAP PROPERTIES_JSON``."""

from __future__ import annotations

import asyncio
import json
import sys

from fetchers.catalog import shared_http
from tests.integration.sinks.sink_runs import Sinks


async def main(bootstrap: str, properties: str) -> None:
    """Run the task; nobody asks it to stop."""
    async with shared_http() as http:
        task = await Sinks(bootstrap, json.loads(properties), flush_seconds=0.5).task(http=http)
        await task.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
