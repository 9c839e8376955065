"""One worker with four connectors that is killed again and again, and the demands made of it.

A growing file, an API that grows, a Mixpanel backfill, and a file sink behind the first: every kill meets all of them.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from tests.benchmarks.growing_api import growing_api
from tests.faults.mixpanel_backfill import PAUSE_SECONDS, Backfill, backfill, project
from tests.faults.numbered_lines import BAD_EVERY, GrowingFile, demand_exactly_once, job_files
from tests.faults.topic_watch import committed_end, committed_values, wait_for_commits
from tests.faults.worker_life import WorkerLife, pause, wait_until, write_properties

WORKER, SPARK, FREEZE = OWN_KINDS = ("worker", "spark", "freeze")
"""SIGKILL to the worker, SIGKILL to its Spark JVM, SIGSTOP for longer than its sessions."""
LINES_PER_SECOND = 100
POLL_MS = "300"
TRANSACTION_MS, SESSION_MS = "5000", "6000"
FREEZE_SECONDS = (7.0, 14.0)
"""Longer than ``SESSION_MS``, which ends the sink's membership, and than ``TRANSACTION_MS``; the broker looks for
transactions that are over every 10 s, so that some freezes find theirs ended and others do not."""
BURST_KILLS = (4, 8)
PAUSE_SECONDS_MAX = 3.0
PROGRESS_SECONDS_MAX = 400.0
"""On a machine that has much else to do."""
SPARK_SECONDS_MAX = 180.0
BACKFILL_SHARE = 0.15
"""Of a stretch's time: for the rest of it no fetcher runs, because something was killed."""
BACKFILL_DAYS_MAX = 56
"""Each takes a request, and no worker may make more than 60 in an hour: the last one would wait for the next hour."""


@dataclass
class KilledLife:
    """A worker, its sources and its sink, and what has been done to it."""

    topic: str
    bootstrap: str
    life: WorkerLife
    source: GrowingFile
    api: Connection
    events: Backfill
    written: Path
    draw: random.Random
    kinds: tuple[str, ...]
    killed: list[str] = field(default_factory=list)
    orphans: list[psutil.Process] = field(default_factory=list)
    _deck: list[str] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=dict)

    @property
    def source_topics(self) -> tuple[str, str]:
        """Those whose sources never come to an end while the stretch lasts."""
        return self.topic, f"{self.topic}-items"

    def burst(self) -> None:
        """Some kills one after the other, whatever state the last has left behind."""
        for _ in range(self.draw.randint(*BURST_KILLS) if self.kinds else 0):
            pause(self.draw.uniform(0, PAUSE_SECONDS_MAX))
            if not self._deck:
                self._deck = self.draw.sample(self.kinds, len(self.kinds))
            self._kill(self._deck.pop())

    def _kill(self, kind: str) -> None:
        self._demand_running()
        if kind == WORKER:
            self.orphans += self.life.kill()
            self.life.start()
        elif kind == SPARK:
            was_killed = wait_until(self.life.kill_spark, seconds_max=SPARK_SECONDS_MAX)
            assert was_killed, f"{self.topic}: no Spark was started after {self.killed[-5:]}"
        else:
            self.life.process.send_signal(signal.SIGSTOP)
            try:
                pause(self.draw.uniform(*FREEZE_SECONDS))
            finally:
                self.life.process.send_signal(signal.SIGCONT)
        self.killed.append(kind)

    def _demand_running(self) -> None:
        told = f"{self.topic}: the worker ended by itself after {self.killed[-5:]}"
        assert self.life.is_running, f"{told}:\n{self.life.log_text()[-6000:]}"

    def demand_progress(self) -> None:
        """Now that nothing is killed, each source delivers more than it has, and the sink writes more."""
        self._demand_running()
        size = self._written_bytes()
        # A broker that does not answer is told as an end of 0: then what was seen before is to be passed.
        self._seen = {
            name: max(committed_end(self.bootstrap, name), self._seen.get(name, 0)) for name in self.source_topics
        }
        for name, seen in self._seen.items():
            has_moved = wait_for_commits(self.bootstrap, name, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
            assert has_moved, f"{name}: nothing was committed after {self.killed[-5:]}"
        has_written = wait_until(lambda: self._written_bytes() > size, seconds_max=PROGRESS_SECONDS_MAX)
        assert has_written, f"{self.topic}: the sink wrote nothing after {self.killed[-5:]}"

    def _written_bytes(self) -> int:
        return self.written.stat().st_size if self.written.exists() else 0

    def finish(self) -> int:
        """No more kills: stop as an operator does, start again, let all arrive, and count; the number of records."""
        self.source.stop()
        self.api.send("stop")
        assert self.life.stop(seconds_max=180) == 0, self.life.log_text()[-4000:]
        self.life.start()
        assert wait_until(self._has_written_all, seconds_max=600, look_seconds=1), f"{self.topic}: the sink stands"
        assert self.life.stop(seconds_max=180) == 0, self.life.log_text()[-4000:]
        self.life.start("--until-idle", "5")
        assert self.life.wait(seconds_max=1800) == 0, self.life.log_text()[-4000:]
        failed = self.life.events("task_failed")
        assert not failed, f"{self.topic}: {failed[-1]}"
        self._demand_no_orphans()
        return self._demand_each_once(items=int(self.api.recv()))

    def _has_written_all(self) -> bool:
        last = max(number for number in range(self.source.lines) if number % BAD_EVERY)
        return self.written.exists() and self.written.read_bytes().endswith(b'{"number":%d}\n' % last)

    def _demand_no_orphans(self) -> None:
        gone = wait_until(lambda: not any(orphan.is_running() for orphan in self.orphans), seconds_max=60)
        assert gone, f"left behind: {[orphan.cmdline()[:3] for orphan in self.orphans if orphan.is_running()]}"

    def _demand_each_once(self, *, items: int) -> int:
        demand_exactly_once(self.bootstrap, self.topic, lines=self.source.lines)
        found = committed_values(self.bootstrap, f"{self.topic}-items")
        expected = {b'{"id": %d}' % number for number in range(items)}
        assert found.keys() == expected, f"{self.topic}-items: {len(expected - found.keys())} lost"
        assert found.total() == len(found), f"{self.topic}-items: {found.total() - len(found)} more than once"
        lines = self.written.read_bytes().split(b"\n")[:-1]
        wanted = [b'{"number":%d}' % number for number in range(self.source.lines) if number % BAD_EVERY]
        told = f"{self.topic}: the sink has {len(lines)} lines, {len(set(lines))} different, of {len(wanted)}"
        assert lines == wanted, told
        self.events.demand_exactly_once(self.bootstrap)
        return self.source.lines + items + self.events.simulator.truth().delivered


@contextmanager
def killed_life(
    folder: Path, *, bootstrap: str, seconds: float, draw: random.Random, kinds: tuple[str, ...]
) -> Iterator[KilledLife]:
    """The worker, not yet started, with sources that last for so many seconds of being killed; ended with the block."""
    topic = folder.name
    folder.mkdir(parents=True)
    source, written = GrowingFile(folder / "lines.jsonl", lines_per_second=LINES_PER_SECOND), folder / "written.txt"
    source.path.touch()
    timeout = {"producer.override.transaction.timeout.ms": TRANSACTION_MS}
    with ExitStack() as stack:
        url, api = stack.enter_context(growing_api())
        days = min(BACKFILL_DAYS_MAX, max(24, int(seconds * BACKFILL_SHARE / PAUSE_SECONDS)))
        events = stack.enter_context(backfill(f"{topic}-events", project(days=days)))
        line_keys = {**timeout, "poll.interval.ms": POLL_MS}
        worker, lines = job_files(folder, bootstrap=bootstrap, topic=topic, source=source.path, connector=line_keys)
        others = _items_file(folder, topic, url, timeout), _sink_file(folder, topic, written)
        files = (lines, *others, events.connector_file(folder, **timeout))
        life = WorkerLife(worker, *files, log=folder / "worker.log")
        stack.callback(life.end)
        stack.enter_context(source.growing())
        yield KilledLife(topic, bootstrap, life, source, api, events, written, draw, kinds)


def _items_file(folder: Path, topic: str, url: str, timeout: dict[str, str]) -> Path:
    properties = {
        "name": f"{topic}-items",
        "topic": f"{topic}-items",
        "connector.class": "HttpSource",
        "http.url": f"{url}/items",
        "http.query.after": "{offset}",
        "http.offset.field": "id",
        "http.offset.initial": "-1",
        "poll.interval.ms": POLL_MS,
        "value.converter": "json",
        "errors.restart.backoff.ms": "200",
        "errors.retry.delay.max.ms": "2000",
        **timeout,
    }
    return write_properties(folder / f"{topic}-items.properties", properties)


def _sink_file(folder: Path, topic: str, written: Path) -> Path:
    properties = {
        "name": f"{topic}-sink",
        "topics": topic,
        "connector.class": "FileStreamSink",
        "file": str(written),
        "value.converter": "string",
        "errors.restart.backoff.ms": "200",
        "consumer.override.session.timeout.ms": SESSION_MS,
        "consumer.override.metadata.max.age.ms": "1000",
    }
    return write_properties(folder / f"{topic}-sink.properties", properties)
