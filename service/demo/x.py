"""``./headrace demo x``: the Twitter config of 2016 on a simulated X that misbehaves, and the proof of its accounts.

The config is that of ``docs/examples/seeds/twitter-source.properties``; only the address of X is another, X's own
backfill is asked for (the search would take half a minute), and deletions are written, so that they can be counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.app import RunningWorker, open_worker
from service.background import Background
from service.demo.accounts import Accounts
from service.demo.audit import TopicAudit, audit_keys, audit_records
from service.demo.folder import fresh_folder
from service.demo.run import demo_job
from service.kafka.client import KafkaSettings
from service.registry.client import RegistryClient
from service.registry.settings import RegistrySettings
from service.simulators.x import XSimulator
from service.simulators.x_ledger import Truth
from service.simulators.x_settings import STREAM_PATH, Fault, XSettings

AS_PRINTED = "<insert your value>"
"""The secrets of the config; the simulated app has the same."""
SEED: Mapping[str, str] = {
    "name": "TwitterSourceConnector",
    "tasks.max": "1",
    "connector.class": "io.confluent.kafka.connect.twitter.TwitterSourceConnector",
    "twitter.oauth.consumerKey": AS_PRINTED,
    "twitter.oauth.consumerSecret": AS_PRINTED,
    "twitter.oauth.accessToken": AS_PRINTED,
    "twitter.oauth.accessTokenSecret": AS_PRINTED,
    "filter.keywords": "olympics,san jose,kafka",
    "kafka.status.topic": "twitter",
    "kafka.delete.topic": "asdf",
    "process.deletes": "false",
}
CHANGES: Mapping[str, str] = {"process.deletes": "true", "x.recovery": "backfill"}
AVRO: Mapping[str, str] = dict.fromkeys(("key.converter", "value.converter"), "io.confluent.connect.avro.AvroConverter")
POSTS = 3_000
RATE_PER_SECOND = 250
"""What X sends an app at most."""
PLAY_SECONDS_MAX = 420.0
"""For everything that happens on X, and for the worker to have settled it."""
_TEXTS = (
    "The olympics begin #games https://example.com/{number}",
    "A day in San Jose with @person_3, {number} 🐱 \u2028 and a second line",
    "kafka number {number} $CFLT",
    "Jose, this is San Francisco and its olympics {number}",
)
_REFERENCES = {1: "reply_to", 3: "retweets", 5: "quotes"}
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class XReport:
    """What the worker says, what the simulated X knows, and what is really in the topics."""

    accounts: Accounts
    truth: Truth
    late: int
    """Posts that came after their deletion: they must not be in the topic."""
    posts: TopicAudit
    deletes: TopicAudit
    tombstones: int
    """Records of the topic of deletions that have no value."""
    seconds: float

    def differences(self) -> list[str]:
        """Everything that does not balance."""
        accounts, truth = self.accounts, self.truth
        dropped = accounts.deduplicated.total() + accounts.passed_over["deleted"]
        checks = {
            "posts told by X, doubles too = found + dropped as doubles or deleted": (
                truth.tellings,
                self.posts.records + dropped,
            ),
            "posts found = matching posts that X has told, but for those deleted before": (
                self.posts.distinct,
                len(truth.told) - self.late,
            ),
            "posts that X has never told = messages of gaps": (
                len(truth.never_told),
                accounts.gap_messages.total(),
            ),
            "no post twice": (self.posts.repeated, 0),
            "deletions found = deletions told by X": (self.deletes.distinct, len(truth.deleted)),
            "every deletion is a tombstone": (self.tombstones, self.deletes.records),
            "found in the topics = delivered": (
                self.posts.records + self.deletes.records,
                accounts.delivered.total(),
            ),
        }
        return [f"{what}: {left} and {right}" for what, (left, right) in checks.items() if left != right]

    def figures(self) -> dict[str, object]:
        """The outcome as ``--json`` prints it."""
        accounts, truth = self.accounts, self.truth
        return {
            "published": truth.published,
            "matching": len(truth.matching),
            "told": truth.tellings,
            "connections": accounts.connections,
            "posts": self.posts.records,
            "deletes": self.deletes.records,
            "doubles_dropped": accounts.deduplicated.total(),
            "left_out": dict(sorted(accounts.passed_over.items())),
            "gap_messages": accounts.gap_messages.total(),
            "seconds": round(self.seconds, 1),
            "balanced": not self.differences(),
        }


@dataclass(slots=True)
class XDemo:
    """A demo whose parts run."""

    running: RunningWorker
    simulator: XSimulator
    accounts: Accounts
    properties: Mapping[str, str]
    posts: int
    late: int = 0

    async def run(self) -> XReport:
        """Play, wait until all of it is settled, stop the worker, audit."""
        started_at = time.monotonic()
        worker = self.running.worker
        async with Background() as background:
            background.start(self._play_and_stop(), name="simulated X")
            await worker.run()
        posts, deletes, tombstones = await self._audit()
        seconds = time.monotonic() - started_at
        return XReport(self.accounts, self.simulator.truth(), self.late, posts, deletes, tombstones, seconds)

    async def _play_and_stop(self) -> None:
        """What happens on X; a worker that does not follow is stopped all the same, and the accounts show it."""
        worker = self.running.worker
        try:
            async with asyncio.timeout(PLAY_SECONDS_MAX):
                await self._play()
                await self._until(lambda: self._is_settled)
        except TimeoutError:
            worker.request_stop("the demo has taken too long")
            return
        worker.request_stop("the demo is over")

    async def _play(self) -> None:
        x, quarter = self.simulator, self.posts // 4
        await x.wait_for_connections(1)
        await self._tell(quarter)
        await self._until(lambda: self._has_heard_all)
        x.disconnect()
        await x.wait_for_no_connection()
        self._post(quarter // 10)  # while nobody listens
        await x.wait_for_connections(2)
        await self._tell(quarter)
        await self._until(lambda: self._has_heard_all)
        x.faults.append(Fault(path=STREAM_PATH, status=503))
        x.cut_in_mid_post(x.make.post("kafka, and the connection is cut in the middle of it", x.now))
        await x.wait_for_connections(3)
        await self._tell(quarter)
        self._delete_and_withhold(quarter // 20)
        await self._tell(quarter)

    def _delete_and_withhold(self, count: int) -> None:
        x = self.simulator
        posts = [post for _, post in x.history if post.id in x.ledger.matching][:count]
        x.post("kafka, edited", earlier=posts[-1])
        x.delete(*(post.id for post in posts))
        late = x.make.post("kafka, deleted before it comes", x.now)
        x.delete(late.id)
        x.publish(late)
        self.late += 1
        x.withhold(count)
        for number in range(count):
            x.post(f"kafka, withheld {number}")
        x.tell_limit()

    async def _tell(self, count: int) -> None:
        burst = int(RATE_PER_SECOND * _LOOK_SECONDS)
        for told in range(0, count, burst):
            self._post(min(burst, count - told))
            await asyncio.sleep(_LOOK_SECONDS)

    def _post(self, count: int) -> None:
        """Of five posts four meet a rule; some are replies, retweets, quotes, some have pictures."""
        x = self.simulator
        for _ in range(count):
            number = len(x.history)
            text = _TEXTS[number % 5] if number % 5 < len(_TEXTS) else "Nothing that anybody asks for {number}"
            more: dict[str, Any] = {}
            if number and number % 7 in _REFERENCES:
                more[_REFERENCES[number % 7]] = x.history[number - 1][1]
            if number % 11 == 0:
                more["media"] = 1
            x.post(text.format(number=number), author=number % 50, **more)

    @property
    def _has_heard_all(self) -> bool:
        """Whether the worker has heard what X has told so far: what is under way when a connection is cut is lost."""
        accounts = self.accounts
        return accounts.fetched.total() + accounts.passed_over["deleted"] >= self.simulator.truth().tellings

    @property
    def _is_settled(self) -> bool:
        truth, accounts = self.simulator.truth(), self.accounts
        wanted = len(truth.told) - self.late + len(truth.deleted)
        return accounts.delivered.total() >= wanted and accounts.fetched.total() == accounts.settled

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await asyncio.sleep(_LOOK_SECONDS)

    async def _audit(self) -> tuple[TopicAudit, TopicAudit, int]:
        addresses = self.running.addresses
        kafka = KafkaSettings(bootstrap=addresses.bootstrap)
        settings, _ = RegistrySettings.parse({"schema.registry.url": addresses.registry or ""})
        async with RegistryClient(settings) as registry:
            posts = await audit_records(
                kafka, self.properties["kafka.status.topic"], registry, lambda status: status["Id"]
            )
            keys, tombstones = await audit_keys(kafka, self.properties["kafka.delete.topic"], registry)
        return posts, TopicAudit(len(keys), len({key["Id"] for key in keys})), tombstones


@asynccontextmanager
async def open_x_demo(
    folder: Path,
    accounts: Accounts,
    *,
    listener: str,
    posts: int = POSTS,
    servers: Mapping[str, str] | None = None,
    changes: Mapping[str, str] | None = None,
) -> AsyncIterator[XDemo]:
    """Start everything on a fresh folder. Raises as ``fresh_folder`` does.

    ``servers``: keys of the worker that name other servers than embedded ones; ``changes``: further keys of the
    connector, such as other topics.
    """
    settings = XSettings(consumer_key=AS_PRINTED, consumer_secret=AS_PRINTED, is_enterprise=True)
    async with fresh_folder(folder), XSimulator(settings) as simulator:
        properties = {**SEED, **CHANGES, **AVRO, "x.base.url": simulator.url, **(changes or {})}
        job = demo_job(folder, (properties,), listener, servers=servers)
        async with open_worker(job, observers=(accounts,)) as running:
            yield XDemo(running, simulator, accounts, properties, posts)
