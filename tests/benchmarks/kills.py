"""Four connectors at work on one worker, something killed or cut off again and again, every record once at the end.

A growing file, an API that grows, a Mixpanel backfill and a file sink behind the first run side by side, so that each
kill meets all of them. Of each kind (see ``KINDS``) as many as asked for happen, in an order drawn from the seed. In
the end a ``read_committed`` consumer must see every source record and every dead letter once, and the sink's file must
hold every line once, in order.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import click
from aiohttp import web

from service.embedded.broker import embedded_kafka
from service.embedded.running import running
from tests.benchmarks.rows import Row
from tests.contracts.loopback import serve
from tests.faults.mixpanel_backfill import Backfill, backfill, project
from tests.faults.numbered_lines import BAD_EVERY, GrowingFile, demand_exactly_once, job_files
from tests.faults.topic_watch import committed_end, committed_values, wait_for_commits
from tests.faults.worker_life import WorkerLife, pause, wait_until, write_properties
from tests.stack import KafkaStack

WORKER, SPARK, BROKER, CUT, FREEZE = KINDS = ("worker", "spark", "broker", "network cut", "freeze")
"""SIGKILL to the worker, to its Spark JVM, to the broker; no packet to or from the broker; SIGSTOP beyond sessions."""
ITEMS_PER_SECOND = 50
LINES_PER_SECOND = 200
PAGE_ITEMS_MAX = 500
CUT_SECONDS = 15.0
FREEZE_SECONDS = 15.0
"""Longer than the session of the sink's group and the transactions of the sources, see ``TIMEOUTS``."""
PROGRESS_SECONDS_MAX = 240.0
SECONDS_A_KILL = 12.0
"""For which the Mixpanel backfill is to last."""
TIMEOUTS = {"producer.override.transaction.timeout.ms": "10000"}


@contextmanager
def growing_api() -> Iterator[tuple[str, Connection]]:
    """Items in a process of its own, ever more of them; whoever sends ``stop`` is told how many there are for good."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield str(ours.recv()), ours
    finally:
        process.terminate()
        process.join()


def _serve(pipe: Connection) -> None:
    began_at = time.monotonic()
    fixed: list[int] = []

    async def items(request: web.Request) -> web.Response:
        if pipe.poll():
            pipe.recv()
            fixed.append(int((time.monotonic() - began_at) * ITEMS_PER_SECOND))
            pipe.send(fixed[0])
        count = fixed[0] if fixed else int((time.monotonic() - began_at) * ITEMS_PER_SECOND)
        first = int(request.query.get("after") or -1) + 1
        return web.json_response([{"id": number} for number in range(first, min(count, first + PAGE_ITEMS_MAX))])

    async def run() -> None:
        async with serve(items) as url:
            pipe.send(url)
            await asyncio.Event().wait()

    asyncio.run(run())


@dataclass
class Bench:
    """The worker, what it stands on, and what has been done to it."""

    life: WorkerLife
    kafka: KafkaStack
    topic: str
    draw: random.Random
    killed: list[str] = field(default_factory=list)

    def run(self, kinds: list[str]) -> None:
        """One burst of one to three after the other; between bursts something must be committed."""
        seen = 0
        while kinds:
            seen = self._wait_for_progress(seen)
            for _ in range(min(len(kinds), self.draw.randint(1, 3))):
                pause(self.draw.uniform(0, 3.0))
                self._kill(kinds.pop())
        self._wait_for_progress(seen)

    def _wait_for_progress(self, seen: int) -> int:
        bootstrap = self.kafka.bootstrap
        has_moved = wait_for_commits(bootstrap, self.topic, beyond=seen, seconds_max=PROGRESS_SECONDS_MAX)
        assert has_moved, f"nothing was committed after {self.killed[-5:]}:\n{self.life.log_text()[-6000:]}"
        return committed_end(bootstrap, self.topic)

    def _kill(self, kind: str) -> None:
        assert self.life.is_running, f"the worker ended by itself after {self.killed[-5:]}"
        if kind == WORKER:
            self.life.kill()
            self.life.start()
        elif kind == SPARK:
            assert wait_until(self.life.kill_spark, seconds_max=120), "no Spark was started"
        elif kind == BROKER:
            self.kafka.kill()
            pause(self.draw.uniform(0, 2.0))
            self.kafka.restart()
        elif kind == CUT:
            with _cut(self.kafka.bootstrap):
                pause(self.draw.uniform(1, CUT_SECONDS))
        else:
            self.life.process.send_signal(signal.SIGSTOP)
            pause(FREEZE_SECONDS)
            self.life.process.send_signal(signal.SIGCONT)
        self.killed.append(kind)
        click.echo(f"  {len(self.killed)}: {kind}")


@contextmanager
def _cut(bootstrap: str) -> Iterator[None]:
    """Drop what goes to the broker's port on the loopback; needs root and iptables."""
    port = bootstrap.rpartition(":")[2]
    rule = ["INPUT", "-i", "lo", "-p", "tcp", "--dport", port, "-j", "DROP"]
    program = shutil.which("iptables") or "iptables"
    subprocess.run([program, "-I", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run([program, "-D", *rule], check=True)


def kinds_here() -> tuple[str, ...]:
    """Every kind, but the network cut only where packets can be dropped."""
    can_cut = os.geteuid() == 0 and shutil.which("iptables") is not None
    return tuple(kind for kind in KINDS if kind != CUT or can_cut)


def measure_kills(folder: Path, *, kills: int, seed: int) -> list[Row]:
    """``kills`` of each kind; raises AssertionError for whatever is lost, repeated or left."""
    draw = random.Random(seed)
    kinds = [kind for kind in kinds_here() for _ in range(kills)]
    draw.shuffle(kinds)
    topic = f"kills-{os.getpid()}"
    folder.mkdir(parents=True, exist_ok=True)
    source, written = GrowingFile(folder / "lines.jsonl", lines_per_second=LINES_PER_SECOND), folder / "written.txt"
    source.path.touch()
    started_at = time.monotonic()
    with ExitStack() as stack:
        broker = stack.enter_context(running(embedded_kafka(data_dir=folder / "kafka"), name="kafka"))
        kafka = KafkaStack(broker.server.address, broker)
        url, api = stack.enter_context(growing_api())
        days = max(24, int(len(kinds) * SECONDS_A_KILL / 3))
        events = stack.enter_context(backfill(f"{topic}-events", project(days=days)))
        worker, lines = job_files(
            folder, bootstrap=kafka.bootstrap, topic=topic, source=source.path, connector=TIMEOUTS
        )
        others = _items_file(folder, topic, url), _sink_file(folder, topic, written)
        files = (lines, *others, events.connector_file(folder, **TIMEOUTS))
        life = WorkerLife(worker, *files, log=folder / "worker.log")
        bench = Bench(life, kafka, topic, draw)
        stack.callback(life.end)
        with source.growing():
            life.start()
            bench.run(list(kinds))
        items = _finish(life, lambda: _has_written(written, source.lines), api)
        _demand(kafka.bootstrap, topic, source=source, items=items, written=written, events=events)
    minutes = (time.monotonic() - started_at) / 60
    counts = ", ".join(f"{bench.killed.count(kind)} × {kind}" for kind in kinds_here())
    records = f"{source.lines:,} lines, {items:,} items"
    what = f"kills, seed {seed}: {counts}; {records}; {minutes:.0f} min"
    return [Row(what, "each once", "each once", is_reached=True)]


def _finish(life: WorkerLife, has_written: Callable[[], bool], api: Connection) -> int:
    """No more kills: stop as an operator does, start again, and let everything arrive; how many items there are."""
    api.send("stop")
    assert life.stop(seconds_max=90) == 0, life.log_text()[-4000:]
    life.start()
    assert wait_until(has_written, seconds_max=600, look_seconds=1), life.log_text()[-6000:]
    assert life.stop(seconds_max=90) == 0, life.log_text()[-4000:]
    life.start("--until-idle", "5")
    assert life.wait(seconds_max=1800) == 0, life.log_text()[-4000:]
    failed = life.events("task_failed")
    assert not failed, failed[-1]
    return int(api.recv())


def _demand(bootstrap: str, topic: str, *, source: GrowingFile, items: int, written: Path, events: Backfill) -> None:
    demand_exactly_once(bootstrap, topic, lines=source.lines)
    found = committed_values(bootstrap, f"{topic}-items")
    expected = {b'{"id": %d}' % number for number in range(items)}
    assert found.keys() == expected, f"items: {len(expected - found.keys())} lost"
    assert found.total() == len(found), f"{found.total() - len(found)} items more than once"
    lines = written.read_bytes().split(b"\n")[:-1]
    wanted = [b'{"number":%d}' % number for number in range(source.lines) if number % BAD_EVERY]
    assert lines == wanted, f"the sink has {len(lines)} lines, {len(set(lines))} different, of {len(wanted)}"
    events.demand_exactly_once(bootstrap)


def _has_written(written: Path, lines: int) -> bool:
    last = max(number for number in range(lines) if number % BAD_EVERY)
    return written.exists() and written.read_bytes().endswith(b'{"number":%d}\n' % last)


def _items_file(folder: Path, topic: str, url: str) -> Path:
    properties = {
        "name": f"{topic}-items",
        "topic": f"{topic}-items",
        "connector.class": "HttpSource",
        "http.url": f"{url}/items",
        "http.query.after": "{offset}",
        "http.offset.field": "id",
        "http.offset.initial": "-1",
        "poll.interval.ms": "100",
        "value.converter": "json",
        "errors.restart.backoff.ms": "200",
        "errors.retry.delay.max.ms": "2000",
        **TIMEOUTS,
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
        "consumer.override.session.timeout.ms": "6000",
        "consumer.override.metadata.max.age.ms": "1000",
    }
    return write_properties(folder / f"{topic}-sink.properties", properties)
