"""Kill -9 a file sink in the middle of its writing, again and again: the file holds every record once, in order."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from service.sinks.file.note import read_note
from tests.bound import bound
from tests.integration.sinks.sink_runs import QUICK, Sinks, lines_of, produce, sink_properties, stored, wait_until
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
KILLS = 3
TRIES_MAX = 10
RECORDS = 60_000
ONE_BAD_IN = 70


@contextmanager
def process(bootstrap: str, properties: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A sink in a process of its own, killed at the end of the block."""
    told = json.dumps({**properties, **QUICK})
    command = [sys.executable, str(Path(__file__).with_name("sink_process.py")), bootstrap, told]
    with subprocess.Popen(bound(command), cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as running:
        try:
            yield running
        finally:
            running.kill()


def numbered(number: int) -> bytes:
    """A line of some length; one of many is no UTF-8."""
    return b"\xff%d" % number if number % ONE_BAD_IN == 0 else b"%d %s" % (number, b"x" * (number % 400))


@pytest.mark.timeout(600)
async def test_a_killed_sink_writes_every_record_once(kafka: KafkaStack, topic_name: str, tmp_path: Path) -> None:
    """Whatever was being written when it died is completed or cut off by the next one; dead letters are there once."""
    file = tmp_path / "out.txt"
    values: list[bytes | None] = []
    good: list[bytes] = []
    properties = sink_properties(
        topic_name,
        topic_name,
        file,
        consumer__override__max__poll__records="150",
        errors__tolerance="all",
        errors__deadletterqueue__topic__name=f"{topic_name}-letters",
        errors__deadletterqueue__topic__replication__factor="1",
    )
    draw = random.Random(7)
    killed, tries = 0, 0
    while killed < KILLS:
        tries += 1
        assert tries <= TRIES_MAX
        seen = len(lines_of(file))
        if seen == len(good):  # at first, and where it was killed too late to prove anything
            more = [numbered(len(values) + number) for number in range(RECORDS)]
            values += more
            good += [value for value in more if not value.startswith(b"\xff")]
            await produce(kafka.bootstrap, topic_name, more)
        with process(kafka.bootstrap, properties):
            await wait_until(lambda seen=seen: len(lines_of(file)) > seen)  # type: ignore[misc]
            await asyncio.sleep(draw.uniform(0, 0.2))
        killed += len(lines_of(file)) < len(good)
    assert read_note(file) is not None
    sinks = Sinks(kafka.bootstrap, {**properties, "consumer.override.max.poll.records": "20000"})
    async with sinks.running():
        await wait_until(lambda: len(lines_of(file)) >= len(good))
    assert lines_of(file) == good
    letters = [record.value for record in await stored(kafka.bootstrap, f"{topic_name}-letters")]
    assert letters == [value for value in values if value is not None and value.startswith(b"\xff")]
