"""Logs of databases: single-row transactions that wait in one, beside Debezium in one run; latency, tables and memory.

Both read the log of the same server from the same place on. So each begins at a table of one row, is stopped, and is
started again when the log has been filled.
"""

from __future__ import annotations

import json
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.benchmarks import change_service
from tests.benchmarks.databases import demand_once, rates, tell, times_row
from tests.benchmarks.rows import Row
from tests.benchmarks.subjects import SUBJECTS, Opened, Subject
from tests.benchmarks.throughput import Field, run_name
from tests.benchmarks.watching import Passage, cost, limit, processor_seconds, watch

PARTS = ("change-tables", "change-rows", "change-memory")
"""What may be measured by itself; ``change-rows`` is a part of ``change-memory``."""
TIMES_DEBEZIUM = {"PostgreSQL": 3.0, "MariaDB": 2.0}
RATE_MIN = {"PostgreSQL": 80_000}


async def measure_change_logs(
    field: Field,
    parts: Collection[str],
    *,
    records: int,
    rounds: int,
    memory_records: int,
    transaction_rows: int,
    tables: int,
) -> list[Row]:
    """Everything that the log of a database is measured by (``change-logs``), or some of ``PARTS`` alone."""
    rows = []
    is_all = "change-logs" in parts
    for database, opened in SUBJECTS.items() if is_all else ():
        passages: dict[str, list[Passage]] = {"log": [], "Debezium's log": []}
        for number in range(rounds):
            with opened() as subject:
                for what, passage in (await _both(field, subject, number, records=records)).items():
                    passages[what].append(passage)
        rows += _rows(database, passages)
    if is_all:
        rows += await change_service.measure_latency(field)
    if is_all or "change-tables" in parts:
        rows += await change_service.measure_tables(field, tables=tables)
    if is_all or {"change-rows", "change-memory"} & set(parts):
        rows += await change_service.measure_rows(field, records=memory_records)
    if is_all or "change-memory" in parts:
        rows += await change_service.measure_transactions(field, rows=transaction_rows)
    return rows


async def _both(field: Field, subject: Subject, number: int, *, records: int) -> dict[str, Passage]:
    """One log of ``records`` single-row transactions, read by both; who is first changes with every round."""
    subject.fill(1, 1)
    opened: dict[str, Opened] = {"log": subject.changes, "Debezium's log": subject.debezium_changes}
    names = {
        what: f"{kind}-{subject.name.lower()}-{run_name(number)}"
        for what, kind in zip(opened, ("log", "peer"), strict=True)
    }
    for row, (what, start) in enumerate(opened.items(), start=2):
        with start(field, names[what]):
            await _wait_for(field, subject, names[what], 1)
            subject.fill(row, row)  # what the log tells is behind the snapshot
            await _wait_for(field, subject, names[what], row)
    subject.log(4, records + 3)
    passages = {}
    for what in reversed(opened) if number % 2 else opened:
        name, topic = names[what], subject.topic(names[what])
        begin = await end_of(field, topic)
        with opened[what](field, name) as child:
            reader = "Python" if what == "log" else "Debezium"
            sample = processor_seconds(
                {reader: child.pid, "broker": field.servers.pid, subject.name: subject.server.pid}
            )
            passage = await watch(field.servers.bootstrap, topic, records=records, sample=sample, begin=begin)
            await demand_once(field, topic, records + 3)
        passages[what] = passage
        tell(f"{subject.name}, {what}", passage)
    return passages


async def end_of(field: Field, topic: str) -> int:
    """The last stable offset of a topic's only partition."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=field.servers.bootstrap, isolation_level="read_committed", group_id=None
    )
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        return int((await consumer.end_offsets([partition]))[partition])
    finally:
        await consumer.stop()


async def _wait_for(field: Field, subject: Subject, name: str, number: int) -> None:
    """Return when the row of this number is readable; both write keys as JSON."""
    topic = subject.topic(name)
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=field.servers.bootstrap,
        isolation_level="read_committed",
        group_id=None,
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    )
    await consumer.start()
    try:
        async with change_service.limited():
            async for record in consumer:
                if json.loads(record.key) == {"id": number}:
                    return
    finally:
        await consumer.stop()


def _rows(database: str, passages: dict[str, list[Passage]]) -> list[Row]:
    own, theirs = passages.values()
    best, aim = max(passage.records_per_second for passage in own), RATE_MIN.get(database, 0)
    what = f"{database}'s log, single-row inserts waiting"
    return [
        Row(f"{what}, Debezium → JSON, at least once", rates(theirs), "the peer", is_reached=None),
        Row(
            f"{what}, → Avro, exactly once",
            rates(own),
            f"≥ {aim:,}/s seen" if aim else "",
            best >= aim if aim else None,
        ),
        times_row(f"{what}, ÷ Debezium", own, theirs, TIMES_DEBEZIUM[database]),
        *(
            Row(f"{database}, {name}: processor time a record", cost(runs), limit(runs), None)
            for name, runs in passages.items()
        ),
    ]
