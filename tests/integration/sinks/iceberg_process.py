"""One Iceberg sink task that kills itself at a commit: ``iceberg_process.py BOOTSTRAP PROPERTIES_JSON before|after N``.

Before the N-th commit its data files are written and the table knows nothing of them; after it the table has the rows,
and neither the task nor the consumer group knows.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from pyiceberg.catalog.rest import RestCatalog

from fetchers.catalog import shared_http
from tests.integration.sinks.sink_runs import Sinks


def die_at(moment: str, number: int) -> None:
    """Have the process end at the commit, as by a kill -9."""
    real = RestCatalog.commit_table
    made = 0

    def commit_table(catalog: RestCatalog, table: Any, requirements: Any, updates: Any) -> Any:
        nonlocal made
        made += any(update.action == "add-snapshot" for update in updates)
        if made == number and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(catalog, table, requirements, updates)
        if made == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    RestCatalog.commit_table = commit_table  # type: ignore[method-assign]


async def main(bootstrap: str, properties: str, moment: str, number: str) -> None:
    """Run the task until it dies."""
    die_at(moment, int(number))
    async with shared_http() as http:
        task = await Sinks(bootstrap, json.loads(properties)).task(http=http)
        await task.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
