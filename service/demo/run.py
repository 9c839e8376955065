"""The demo's course: simulate, run twice (the second start collects late events), audit, report."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fetchers.sdk.clock import SystemClock
from service.app import RunningWorker, open_worker
from service.demo.accounts import Accounts
from service.demo.audit import TopicAudit, audit_dead_letters, audit_records
from service.demo.folder import fresh_folder
from service.demo.sources import (
    EVENTS_TOPIC,
    ORDERS_TOPIC,
    OrdersFile,
    connectors,
    event_key,
    order_key,
    project,
    write_orders,
)
from service.job import Job, make_job
from service.kafka.client import KafkaSettings
from service.registry.client import RegistryClient
from service.registry.settings import RegistrySettings
from service.simulators.mixpanel_ledger import Truth
from service.simulators.mixpanel_process import RunningSimulator, simulator_process

IDLE_SECONDS = 1.5
NAMES = ("demo-mixpanel", "demo-file")


@dataclass(frozen=True, slots=True)
class DemoReport:
    """What the worker says, what the simulator knows, and what is really in the topics."""

    accounts: Accounts
    truth: Truth
    orders: OrdersFile
    topics: dict[str, TopicAudit]
    dead_letters: dict[str, TopicAudit]
    seconds: float

    @property
    def found(self) -> int:
        """Records in all topics that were audited, together."""
        return sum(audit.records for audit in self.topics.values())

    @property
    def reasons(self) -> Counter[str]:
        """Dead letters by the reason in their headers."""
        return sum((audit.reasons for audit in self.dead_letters.values()), Counter())

    def differences(self) -> list[str]:
        """Everything that does not balance; empty is what a demo is for."""
        accounts = self.accounts
        letters = sum(audit.records for audit in self.dead_letters.values())
        repeated = sum(audit.repeated for audit in (*self.topics.values(), *self.dead_letters.values()))
        expected_found = self.truth.delivered + self.orders.good
        expected_letters = self.truth.dead_lettered + self.orders.bad
        checks = {
            "fetched = delivered + dead-lettered + duplicates": (accounts.fetched.total(), accounts.settled),
            "found in the topics = delivered": (self.found, accounts.delivered.total()),
            "found in the dead-letter topics = dead-lettered": (letters, accounts.dead_lettered.total()),
            "no record twice": (repeated, 0),
            "found in the topics = what the sources hold": (self.found, expected_found),
            "dead letters = what is broken in the sources": (letters, expected_letters),
        }
        return [f"{what}: {left} and {right}" for what, (left, right) in checks.items() if left != right]

    def figures(self) -> dict[str, object]:
        """The outcome of the demo as ``--json`` prints it."""
        return {
            "fetched": self.accounts.fetched.total(),
            "delivered": self.accounts.delivered.total(),
            "dead_lettered": self.accounts.dead_lettered.total(),
            "dead_lettered_by_reason": dict(sorted(self.reasons.items())),
            "deduplicated": self.accounts.deduplicated.total(),
            "in_topic": self.found,
            "seconds": round(self.seconds, 1),
            "balanced": not self.differences(),
        }


@dataclass(frozen=True, slots=True)
class Demo:
    """A demo whose parts run."""

    running: RunningWorker
    simulator: RunningSimulator
    orders: OrdersFile
    accounts: Accounts

    async def run(self) -> DemoReport:
        """Two runs of the worker and the audit."""
        started_at = time.monotonic()
        await self.running.worker.run(idle_seconds=IDLE_SECONDS)
        # Late events show only on a second look, which every start of the source begins with.
        await self.running.new_worker().run(idle_seconds=IDLE_SECONDS)
        topics, letters = await self._audit()
        truth = await asyncio.to_thread(self.simulator.truth)
        seconds = time.monotonic() - started_at
        return DemoReport(self.accounts, truth, self.orders, topics, letters, seconds)

    async def _audit(self) -> tuple[dict[str, TopicAudit], dict[str, TopicAudit]]:
        addresses = self.running.addresses
        kafka = KafkaSettings(bootstrap=addresses.bootstrap)
        settings, _ = RegistrySettings.parse({"schema.registry.url": addresses.registry or ""})
        async with RegistryClient(settings) as registry:
            topics = {
                EVENTS_TOPIC: await audit_records(kafka, EVENTS_TOPIC, registry, event_key),
                ORDERS_TOPIC: await audit_records(kafka, ORDERS_TOPIC, registry, order_key),
            }
        letters = {name: await audit_dead_letters(kafka, f"{name}-dead-letters") for name in NAMES}
        return topics, letters


@asynccontextmanager
async def open_demo(folder: Path, accounts: Accounts, *, listener: str) -> AsyncIterator[Demo]:
    """Start everything on a fresh folder. Raises as ``fresh_folder`` does."""
    async with fresh_folder(folder):
        settings = project(today=SystemClock().now().date())
        orders = write_orders(folder / "orders.jsonl")
        with simulator_process(settings) as simulator:
            properties = connectors(simulator_url=simulator.url, settings=settings, orders=orders.path)
            async with open_worker(demo_job(folder, properties, listener), observers=(accounts,)) as running:
                yield Demo(running, simulator, orders, accounts)


def demo_job(
    folder: Path,
    connector_properties: Sequence[Mapping[str, str]],
    listener: str,
    *,
    servers: Mapping[str, str] | None = None,
) -> Job:
    """A worker with everything embedded, but for what ``servers`` says otherwise."""
    worker = {
        "bootstrap.servers": "embedded",
        "schema.registry.url": "embedded",
        "data.dir": str(folder),
        "listeners": listener,
        "group.id": "headrace-demo",
        **(servers or {}),
    }
    return make_job(worker, connector_properties)
