"""Records a second of ``JdbcSource``, a table of ten columns to Avro; and of the puts of ``JdbcSink`` alone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from fetchers.catalog import shared_http
from fetchers.sdk import SystemClock
from metrics.events import discard
from service.sinks.contract import SinkBatch, SinkContext
from service.sinks.jdbc.config import JdbcSinkConfig
from service.sinks.jdbc.sink import JdbcSink
from tests.benchmarks.processes import headrace, write_properties
from tests.benchmarks.throughput import TOPIC, Field
from tests.benchmarks.watching import Passage, processor_seconds, watch
from tests.databases import MariaDb, Postgres, running_mariadb, running_postgres
from tests.jdbc_sink_suite import batch_of

_WRITTEN = {
    "type": "record",
    "name": "Written",
    "fields": [
        {"name": "a", "type": ["null", "int"]},
        {"name": "b", "type": "double"},
        {"name": "c", "type": "string"},
        {"name": "d", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "e", "type": "boolean"},
        {"name": "f", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}},
    ],
}
AVRO = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
_POSTGRES_TABLE = """create table rows as select i::bigint as id, i::int as a, i * 1.5::float8 as b, 'name ' || i as c,
  now() + i * interval '1 s' as d, i % 2 = 0 as e, (i / 100.0)::numeric(12, 2) as f, md5(i::text) as g,
  current_date + (i % 1000) as h, (i % 100)::smallint as k from generate_series(1, {records}) as i"""
_MARIADB_TABLE = """create table rows (id bigint primary key, a int, b double, c varchar(30), d datetime(6), e tinyint,
  f decimal(12, 2), g char(32), h date, k smallint) as select seq as id, seq as a, seq * 1.5e0 as b,
  concat('name ', seq) as c, now(6) + interval seq second as d, seq % 2 as e, seq / 100 as f, md5(seq) as g,
  current_date + interval seq % 1000 day as h, seq % 100 as k from seq_1_to_{records}"""


async def from_postgres(field: Field, run: str, *, records: int) -> Passage:
    """A new server, for this passage alone."""
    with TemporaryDirectory(prefix="headrace-bench-") as folder, running_postgres(_opened(folder)) as server:
        database = Postgres(server, "postgres")
        database.run(_POSTGRES_TABLE.format(records=records), "alter table rows add primary key (id)", "analyze rows")
        return await _read(field, f"postgres-{run}", database.url, records=records)


async def from_mariadb(field: Field, run: str, *, records: int) -> Passage:
    """A new server, for this passage alone."""
    with TemporaryDirectory(prefix="headrace-bench-") as folder, running_mariadb(_opened(folder)) as server:
        await MariaDb(server, "bench").rows("create database bench", database=None)
        database = MariaDb(server, "bench")
        await database.rows(_MARIADB_TABLE.replace("table rows", "table `rows`").format(records=records))
        return await _read(field, f"mariadb-{run}", database.url, records=records)


async def upsert_rate(dialect: str, *, records: int) -> float:
    """Rows a second that puts of the sink's own size write into an empty table of seven columns, a third of them again.

    The decoding of records, and Kafka, are no part of it.
    """
    batches = _batches(records)
    with TemporaryDirectory(prefix="headrace-bench-") as folder:
        if dialect == "postgresql":
            with running_postgres(_opened(folder)) as server:
                return await _upsert(Postgres(server, "postgres").url, batches, records=records)
        with running_mariadb(_opened(folder)) as server:
            await MariaDb(server, "bench").rows("create database bench", database=None)
            return await _upsert(MariaDb(server, "bench").url, batches, records=records)


def _batches(records: int) -> Sequence[SinkBatch]:
    size, distinct = JdbcSinkConfig.model_fields["batch_size"].default, records * 2 // 3
    rows = [
        (n % distinct, {"a": n, "b": n / 7, "c": f"name {n}", "d": n, "e": n % 2 == 0, "f": Decimal(n).scaleb(-2)})
        for n in range(records)
    ]
    return [
        batch_of(rows[begin : begin + size], _WRITTEN, begin=begin, topic="written")
        for begin in range(0, records, size)
    ]


async def _upsert(url: str, batches: Sequence[SinkBatch], *, records: int) -> float:
    keys = {"connection.url": url, "insert.mode": "upsert", "pk.mode": "record_key", "pk.fields": "id"}
    config = JdbcSinkConfig.parse(keys | {"auto.create": "true"}).config
    assert config is not None
    sink = JdbcSink(config)
    async with shared_http() as http:
        await sink.start(SinkContext("bench", 0, SystemClock(), discard, http))
        try:
            await sink.put(batches[0].slice(0, 1))  # connects, and makes the table
            began_at = time.perf_counter()
            for batch in batches:
                await sink.put(batch)
            return records / (time.perf_counter() - began_at)
        finally:
            await sink.stop()


def _opened(folder: str) -> Path:
    """To the servers' user, who is not root."""
    Path(folder).chmod(0o755)
    return Path(folder)


async def _read(field: Field, name: str, url: str, *, records: int) -> Passage:
    properties: Mapping[str, str] = {
        "name": name,
        "connector.class": "JdbcSource",
        "connection.url": url,
        "mode": "incrementing",
        "incrementing.column.name": "id",
        "table.whitelist": "rows",
        "topic.prefix": f"{name}-",
        **TOPIC,
        **AVRO,
    }
    connector = write_properties(field.folder / f"{name}.properties", properties)
    log = field.folder / f"{name}.log"
    with headrace("standalone", str(field.worker(name)), str(connector), log=log) as child:
        sample = processor_seconds({"Python": child.pid, "broker": field.servers.pid})
        return await watch(field.servers.bootstrap, f"{name}-rows", records=records, sample=sample)
