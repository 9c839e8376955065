"""Records a second of ``JdbcSource``: a table of ten columns to Avro, exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.processes import headrace, write_properties
from tests.benchmarks.throughput import TOPIC, Field
from tests.benchmarks.watching import Passage, processor_seconds, watch
from tests.databases import MariaDb, Postgres, running_mariadb, running_postgres

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
