"""How fast ``MixpanelSource`` alone turns the export's bodies into pages, one process for it, one for the simulator.

Run: ``python -m tests.benchmarks.mixpanel_fetch [events per day] [days]``.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from datetime import UTC, date, datetime

from fetchers.catalog import shared_http
from fetchers.mixpanel.config import MixpanelConfig
from fetchers.mixpanel.fetcher import MixpanelSource
from fetchers.sdk.testing import FakeClock, FakeContext
from service.simulators.mixpanel_process import simulator_process
from service.simulators.mixpanel_settings import MixpanelSettings

FIRST_DAY = date(2024, 1, 1)


async def measure(url: str, settings: MixpanelSettings) -> tuple[int, int, float, float]:
    """Records, payload bytes, wall seconds and processor seconds of one backfill."""
    properties = {
        "topic": "events",
        "from_date": str(settings.first_day),
        "mixpanel.to.date": str(settings.last_day),
        "mixpanel.project.id": settings.project_id,
        "mixpanel.service.account.username": settings.username,
        "mixpanel.service.account.secret": settings.secret,
        "mixpanel.base.url": url,
    }
    config = MixpanelConfig.parse(properties).config
    if config is None:
        raise ValueError(properties)
    records = size = 0
    async with shared_http() as http:
        # Virtual time: the waits that Mixpanel's limits ask for are not what is measured.
        context = FakeContext(http=http, clock=FakeClock(datetime(2026, 1, 1, tzinfo=UTC)))
        started, used = time.perf_counter(), time.process_time()
        async for page in MixpanelSource(config).fetch(context):
            records += len(page)
            size += page.bytes
        return records, size, time.perf_counter() - started, time.process_time() - used


def main() -> None:
    """Measure gzip and plain bodies."""
    events = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    days = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    for is_gzipped in (True, False):
        settings = MixpanelSettings(
            first_day=FIRST_DAY, days=days, events_per_day=events, is_gzipped=is_gzipped, is_chunked=is_gzipped
        )
        with simulator_process(settings, is_prepared=True) as simulator:
            records, size, wall, used = asyncio.run(measure(simulator.url, settings))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{'gzip' if is_gzipped else 'plain':5} {records:,} records {size / 1e6:,.0f} MB "
            f"{wall:.2f} s wall ({records / wall:,.0f}/s) {used:.2f} s of one core ({records / used:,.0f}/s), "
            f"{memory:.0f} MiB at most"
        )


if __name__ == "__main__":
    main()
