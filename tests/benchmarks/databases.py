"""Tables of ten columns to Avro exactly once: ``JdbcSource`` and a snapshot, beside Debezium's snapshot in one run."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from typing import Literal

import click

from tests.benchmarks.rows import Row
from tests.benchmarks.service_level import count_distinct
from tests.benchmarks.subjects import SUBJECTS, Subject
from tests.benchmarks.throughput import Field, run_name
from tests.benchmarks.upserts import measure_upserts
from tests.benchmarks.watching import WAIT_SECONDS_MAX, Passage, cost, limit, processor_seconds, watch

Measure = Callable[[Field, Subject, str, int], Awaitable[Passage]]
TIMES_DEBEZIUM, RATE_MIN = 4.0, 120_000


async def by_polling(field: Field, subject: Subject, run: str, records: int) -> Passage:
    """``JdbcSource``, by ids."""
    name = f"polled-{run}"
    with subject.polling(field, name) as child:
        return await _passage(field, subject, name, records, reader={"Python": child.pid}, part="value")


async def by_snapshot(field: Field, subject: Subject, run: str, records: int) -> Passage:
    """``PostgresCdcSource`` or ``MySqlCdcSource``."""
    name = f"snapshot-{run}"
    with subject.changes(field, name) as child:
        return await _passage(field, subject, name, records, reader={"Python": child.pid})


async def by_debezium(field: Field, subject: Subject, run: str, records: int) -> Passage:
    """The real one."""
    name = f"debezium-{run}"
    with subject.debezium_changes(field, name) as child:
        return await _passage(field, subject, name, records, reader={"Debezium": child.pid})


async def _passage(
    field: Field,
    subject: Subject,
    name: str,
    records: int,
    *,
    reader: dict[str, int],
    part: Literal["key", "value"] = "key",
) -> Passage:
    sample = processor_seconds({**reader, "broker": field.servers.pid, subject.name: subject.server.pid})
    passage = await watch(field.servers.bootstrap, subject.topic(name), records=records, sample=sample)
    await demand_once(field, subject.topic(name), records, part=part)
    return passage


async def demand_once(field: Field, topic: str, records: int, *, part: Literal["key", "value"] = "key") -> None:
    """Raise ``AssertionError`` unless just so many records come to be readable, no two of them equal in this part.

    Offsets tell a little too much, because the marks of transactions have some too: so what they end with is awaited.
    """
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        found = await count_distinct(field.servers.bootstrap, topic, part=part, at_least=records)
    if found != records:
        raise AssertionError(f"{topic} has {found} records, not {records}")


MEASURES: dict[str, Measure] = {"JdbcSource": by_polling, "snapshot": by_snapshot, "Debezium's snapshot": by_debezium}


async def measure_databases(field: Field, *, records: int, rounds: int) -> list[Row]:
    """Both databases, each measured on a server of its own in every round; and rows that are written."""
    rows = []
    for database, opened in SUBJECTS.items():
        passages: dict[str, list[Passage]] = {name: [] for name in MEASURES}
        for number in range(rounds):
            with opened() as subject:
                subject.fill(1, records)
                in_turn = list(MEASURES.items())
                for name, measure in in_turn if number % 2 else reversed(in_turn):
                    passage = await measure(field, subject, f"{subject.name.lower()}-{run_name(number)}", records)
                    passages[name].append(passage)
                    tell(f"{subject.name}, {name}", passage)
        rows += _rows(database, passages)
    return rows + await measure_upserts(records=records)


def tell(what: str, passage: Passage) -> None:
    """A line while the measurement goes on."""
    micros = sum(passage.cpu_micros_a_record.values())
    click.echo(f"  {what}: {passage.records_per_second:,.0f}/s, {micros:.1f} µs of processor time a record")


def _rows(database: str, passages: dict[str, list[Passage]]) -> list[Row]:
    *own, theirs = passages
    rows = [Row(f"{database}, {theirs}, JSON, at least once", rates(passages[theirs]), "the peer", is_reached=None)]
    for name in own:
        what = f"{database}, {name}, 10 columns → Avro, exactly once"
        best = max(passage.records_per_second for passage in passages[name])
        rows.append(Row(what, rates(passages[name]), f"≥ {RATE_MIN:,}/s seen", best >= RATE_MIN))
        rows.append(times_row(f"{database}, {name} ÷ {theirs}", passages[name], passages[theirs], TIMES_DEBEZIUM))
    return rows + [
        Row(f"{database}, {name}: processor time a record", cost(runs), limit(runs), None)
        for name, runs in passages.items()
    ]


def rates(passages: list[Passage]) -> str:
    """Of all rounds."""
    found = [passage.records_per_second for passage in passages]
    return f"median {statistics.median(found):,.0f}/s, best {max(found):,.0f}/s of {len(found)}"


def times_row(what: str, own: list[Passage], theirs: list[Passage], aim: float) -> Row:
    """How many times as fast, by rounds and as the median of these."""
    pairs = zip(own, theirs, strict=True)
    ratios = [mine.records_per_second / other.records_per_second for mine, other in pairs]
    told = " ".join(f"{ratio:.2f}" for ratio in ratios)
    median = statistics.median(ratios)
    return Row(f"{what} (rounds: {told})", f"{median:.2f}", f"≥ {aim}", median >= aim)
