"""One sink task that freezes itself: ``frozen_process.py BOOTSTRAP PROPERTIES_JSON put|flush N TOLD FLUSH_SECONDS``.

It stops at the N-th call, as by a kill -STOP, with what it has polled in its hands. When somebody wakes it, the call
goes on as if nothing had happened; ``TOLD`` then says what came of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from fetchers.catalog import shared_http
from tests.integration.sinks.sink_runs import Sinks


async def main(bootstrap: str, properties: str, *freezing: str) -> None:
    """Run the task; nobody asks it to stop."""
    call, number, told, flush_seconds = freezing
    async with shared_http() as http:
        task = await Sinks(bootstrap, json.loads(properties), flush_seconds=float(flush_seconds)).task(http=http)
        real, made = getattr(task.connector, call), 0

        async def frozen(*given: Any) -> Any:
            nonlocal made
            made += 1
            if made != int(number):
                return await real(*given)
            os.kill(os.getpid(), signal.SIGSTOP)
            try:
                answer = await real(*given)
            except BaseException as error:
                Path(told).write_text(f"{type(error).__name__}: {error}")
                raise
            Path(told).write_text("done")
            return answer

        setattr(task.connector, call, frozen)
        await task.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
