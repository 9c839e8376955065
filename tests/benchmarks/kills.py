"""Workers killed or cut off again and again, every record once at the end; in stretches that add up.

Some hundred kills of each kind take hours, so they are done in stretches of some minutes. A stretch has a broker of its
own and several workers with four connectors each (``killed_life``). It goes by rounds: every worker gets a burst of
kills of its own while the broker, which they share, is killed and cut off; then nothing is killed until every source
and every sink has made progress. A stretch ends with the whole accounting: a ``read_committed`` consumer must see every
source record and every dead letter once, and each sink's file must hold every line once, in order.

Each stretch is appended to a ledger with its seed, commit, counts and verdict; the page is made of the whole ledger.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import click

from service.embedded.broker import embedded_kafka
from service.embedded.running import running
from tests.benchmarks.killed_life import OWN_KINDS, KilledLife, killed_life
from tests.benchmarks.processes import ROOT
from tests.benchmarks.rows import Row
from tests.faults.worker_life import pause
from tests.stack import KafkaStack

BROKER, CUT = SHARED_KINDS = ("broker", "network cut")
"""SIGKILL to the broker; no packet to it. Each counts once, however many workers it meets."""
KINDS = (*OWN_KINDS, *SHARED_KINDS)
BURST_KILLS = (6, 14)
CUT_SECONDS = (0.5, 9.0)
"""Shorter and longer than the sink's session and the transactions of the sources."""
PAUSE_SECONDS_MAX = 2.0
PRODUCT = ("service", "fetchers", "spark_batch", "metrics")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was done in one go, and what came of it."""

    date: str
    commit: str
    seed: int
    minutes: float
    workers: int
    killed: dict[str, int]
    records: int
    verdict: str
    """``each once``, or what was lost, repeated or stood still."""


@dataclass
class Chaos:
    """Several workers on one broker, and what has been done to the broker."""

    lives: list[KilledLife]
    kafka: KafkaStack
    draw: random.Random
    kinds: tuple[str, ...]
    killed: list[str] = field(default_factory=list)

    def run(self, threads: ThreadPoolExecutor, *, ends_at: float) -> None:
        """Rounds until the time is over: bursts side by side, then progress everywhere."""
        _all(threads, [life.life.start for life in self.lives])
        while True:
            _all(threads, [life.demand_progress for life in self.lives])
            if time.monotonic() >= ends_at:
                return
            _all(threads, [self._burst, *(life.burst for life in self.lives)])
            click.echo(f"  {sum(self.counts().values())}: {self.counts()}")

    def counts(self) -> dict[str, int]:
        """How many of each kind there were."""
        everything = [*self.killed, *(kind for life in self.lives for kind in life.killed)]
        return {kind: everything.count(kind) for kind in KINDS}

    def _burst(self) -> None:
        for _ in range(self.draw.randint(*BURST_KILLS) if self.kinds else 0):
            pause(self.draw.uniform(0, PAUSE_SECONDS_MAX))
            kind = self.draw.choice(self.kinds)
            if kind == BROKER:
                self.kafka.kill()
                pause(self.draw.uniform(0, PAUSE_SECONDS_MAX))
                self.kafka.restart()
            else:
                with _cut(self.kafka.bootstrap):
                    pause(self.draw.uniform(*CUT_SECONDS))
            self.killed.append(kind)


@contextmanager
def _cut(bootstrap: str) -> Iterator[None]:
    """Drop what goes to the broker's port on the loopback; needs root and iptables."""
    port = bootstrap.rpartition(":")[2]
    rule = ["INPUT", "-i", "lo", "-p", "tcp", "--dport", port, "-j", "DROP"]
    program = shutil.which("iptables") or "iptables"
    subprocess.run([program, "-w", "-I", *rule], check=True)
    try:
        yield
    finally:
        subprocess.run([program, "-w", "-D", *rule], check=True)


def _all(threads: ThreadPoolExecutor, actions: list[Callable[[], ResultT]]) -> list[ResultT]:
    """Side by side; raises what the first of them raised once all have come to an end."""
    running_now = [threads.submit(action) for action in actions]
    wait(running_now)
    return [future.result() for future in running_now]


def measure_kills(folder: Path, *, ledger: Path, kills: int, seed: int, minutes: int, workers: int) -> list[Row]:
    """One more stretch, of the kinds that are short of ``kills`` in the ledger; the figures of all stretches."""
    stretches = _read(ledger)
    short = tuple(kind for kind in _kinds_here() if _total(stretches, kind) < kills)
    if short:
        stretch = _run_stretch(folder, short, seed=seed + len(stretches), minutes=minutes, workers=workers)
        with ledger.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(stretch)) + "\n")
        stretches.append(stretch)
    return _rows(stretches, kills)


def _kinds_here() -> tuple[str, ...]:
    """Every kind, but the network cut only where packets can be dropped."""
    can_cut = os.geteuid() == 0 and shutil.which("iptables") is not None
    return tuple(kind for kind in KINDS if kind != CUT or can_cut)


def _run_stretch(folder: Path, kinds: tuple[str, ...], *, seed: int, minutes: int, workers: int) -> Stretch:
    # JVMs live for seconds here: HotSpot's second compiler would take a third of their time and never earn it back.
    os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:TieredStopAtLevel=1 {os.environ.get('JAVA_TOOL_OPTIONS', '')}".rstrip()
    # Some hundred workers start from this checkout: each would compile all of it anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # The Kafka client of those who look on tells of each outage that is made here.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    date, started_at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), time.monotonic()
    records, verdict = 0, "each once"
    own = tuple(kind for kind in OWN_KINDS if kind in kinds)
    with ExitStack() as stack:
        # The kernel ends a worker with the thread that has started it: these last as long as the workers.
        threads = stack.enter_context(ThreadPoolExecutor(workers + 1))
        broker = stack.enter_context(running(embedded_kafka(data_dir=folder / "kafka"), name="kafka"))
        kafka = KafkaStack(broker.server.address, broker)
        lives = [
            stack.enter_context(
                killed_life(
                    folder / f"kills-{number}",
                    bootstrap=kafka.bootstrap,
                    seconds=minutes * 60,
                    draw=random.Random(seed * 100 + number),
                    kinds=own,
                )
            )
            for number in range(1, workers + 1)
        ]
        shared = tuple(kind for kind in SHARED_KINDS if kind in kinds)
        chaos = Chaos(lives, kafka, random.Random(seed * 100), shared)
        try:
            chaos.run(threads, ends_at=started_at + minutes * 60)
            records = sum(_all(threads, [life.finish for life in lives]))
        except AssertionError as failure:
            verdict = str(failure).partition("\n")[0]
            kept = Path(tempfile.mkdtemp(prefix=f"headrace-kills-{seed}-"))
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            click.echo(f"  {failure}\n  what it left is in {kept}")
    took = round((time.monotonic() - started_at) / 60, 1)
    return Stretch(date, _commit(), seed, took, workers, chaos.counts(), records, verdict)


def _commit() -> str:
    """Of the product; marked where it was changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "--porcelain", "--", *PRODUCT) else "")


def _read(ledger: Path) -> list[Stretch]:
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else []
    return [Stretch(**json.loads(line)) for line in lines]


def _total(stretches: list[Stretch], kind: str) -> int:
    return sum(stretch.killed[kind] for stretch in stretches)


def _rows(stretches: list[Stretch], kills: int) -> list[Row]:
    totals = {kind: _total(stretches, kind) for kind in KINDS}
    records = sum(stretch.records for stretch in stretches)
    are_right = all(stretch.verdict == "each once" for stretch in stretches)
    verdict = "each once" if are_right else "see the stretches"
    return [
        *(
            Row(f"{kind}: kills of {len(stretches)} stretches", str(n), f"{kills}", n >= kills)
            for kind, n in totals.items()
        ),
        Row(f"records of all stretches: {records:,}", verdict, "each once", are_right),
        *(_row(stretch) for stretch in stretches),
    ]


def _row(stretch: Stretch) -> Row:
    counts = ", ".join(f"{count} × {kind}" for kind, count in stretch.killed.items())
    what = (
        f"{stretch.date}, commit {stretch.commit}, seed {stretch.seed}, {stretch.workers} workers, "
        f"{stretch.minutes:g} min: {counts}; {stretch.records:,} records"
    )
    return Row(what, stretch.verdict, "each once", stretch.verdict == "each once")
