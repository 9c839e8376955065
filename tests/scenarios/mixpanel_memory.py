"""Reads one day of a given size in a process of its own and prints what it took: memory is measured for M4.

Run: ``python -m tests.scenarios.mixpanel_memory COPIES``; prints ``{"records", "bytes", "peak_mib"}``.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import UTC, date, datetime

import psutil

from fetchers.catalog import shared_http
from fetchers.sdk.testing import FakeClock, FakeContext
from service.simulators.mixpanel_process import simulator_process
from service.simulators.mixpanel_settings import MixpanelSettings
from tests.scenarios.mixpanel_worker import properties, source_of

DAY = date(2024, 1, 10)
EVENTS = 13_600
"""About 4 MiB of lines; a day repeats them with other ids."""


async def read(url: str, settings: MixpanelSettings) -> dict[str, int]:
    """Fetch the day, holding no page longer than until the next."""
    records = size = peak = 0
    process = psutil.Process()
    async with shared_http() as http:
        context = FakeContext(http=http, clock=FakeClock(datetime(2024, 2, 1, tzinfo=UTC)))
        source = source_of(properties(settings, url, mixpanel_to_date=str(DAY)))
        async for page in source.fetch(context):
            records += len(page)
            size += page.bytes
            # Not the system's own mark (ru_maxrss): that begins with the size of the process that started this one.
            peak = max(peak, process.memory_info().rss)
    return {"records": records, "bytes": size, "peak_mib": peak // 2**20}


def main() -> None:
    """Serve and read."""
    settings = MixpanelSettings(
        first_day=DAY, days=1, events_per_day=EVENTS, block_copies=int(sys.argv[1]), is_gzipped=False
    )
    with simulator_process(settings) as simulator:
        sys.stdout.write(json.dumps(asyncio.run(read(simulator.url, settings))))


if __name__ == "__main__":
    main()
