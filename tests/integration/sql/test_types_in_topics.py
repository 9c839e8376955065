# ruff: noqa: S608 - statements of tests
"""Table, real worker, topic: every type with its edge values against the database's own text, by the guide's tables.

The values are those of ``tests.edge_values``, by which the fetchers' pages are proven too. A worker delivers them by
``JdbcSource`` in Avro and in JSON with schemas, and by the database's log, of which the first rows are in its snapshot.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import re
import sqlite3
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pytest

from tests import journal
from tests.databases import MySql, Postgres
from tests.edge_values import (
    POSTGRESQL,
    POSTGRESQL_NAMES,
    SQLITE,
    Edge,
    mysql_types,
    own_text_of_sqlite,
    table_of,
)
from tests.faults.numbered_lines import job_files
from tests.faults.topic_watch import committed_values
from tests.faults.worker_life import ANSWER_SECONDS_MAX, WorkerLife, wait_until, write_properties
from tests.integration.sql import mappings
from tests.integration.sql.mappings import Told, from_avro, from_json, told_by
from tests.stack import KafkaStack, RegistryStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]
SECONDS_MAX = 300.0
AVRO = "io.confluent.connect.avro.AvroConverter"
JSON = {"value.converter": "org.apache.kafka.connect.json.JsonConverter", "value.converter.schemas.enable": "true"}
Table = Mapping[str, mappings.Oracle]


@dataclass(frozen=True)
class Way:
    """A connector that delivers the table."""

    name: str
    topic: str
    properties: Mapping[str, str]
    table: Table
    is_log: bool = False

    def told(self, kind: str, text: str) -> Told:
        """What is to be in the topic."""
        told = told_by(self.table, kind, text)
        is_no_json = told is not None and isinstance(told[1], float) and not math.isfinite(told[1])
        return None if is_no_json and self.properties.items() >= JSON.items() else told

    @property
    def letters(self) -> str:
        """The topic of its dead letters."""
        return f"{self.name}-bad"


def polled(name: str, url: str, table: Table) -> list[Way]:
    """``JdbcSource`` in both forms."""
    properties = {
        "connector.class": "JdbcSource",
        "connection.url": url,
        "mode": "incrementing",
        "table.whitelist": "kinds",
        "poll.interval.ms": "100",
    }
    made = []
    for form, converter in (("avro", {"value.converter": AVRO}), ("json", JSON)):
        own = f"{name}-{form}"
        made.append(Way(own, f"{own}.kinds", properties | converter | {"topic.prefix": f"{own}."}, table))
    return made


@dataclass(frozen=True)
class Delivery:
    """A worker with a connector for each way."""

    kafka: KafkaStack
    registry: RegistryStack
    folder: Path
    types: Sequence[Edge]
    ways: Sequence[Way]

    def run(self, copy: Callable[[], object]) -> None:
        """Return when all rows have come in all ways; ``copy`` doubles them when those of the log's snapshot have."""
        worker, _ = job_files(
            self.folder,
            bootstrap=self.kafka.bootstrap,
            topic=self.ways[0].name,
            source=self.folder / "unused",
            worker={"schema.registry.url": self.registry.url},
        )
        files = [self._file(way) for way in self.ways]
        life = WorkerLife(worker, *files, log=self.folder / "worker.log")
        try:
            life.start()
            for way in self.ways:
                if way.is_log:
                    self._wait(life, way, len(self.types))
            copy()
            for way in self.ways:
                self._wait(life, way, 2 * len(self.types))
            assert life.stop(seconds_max=SECONDS_MAX) == 0, life.log_text()[-6000:]
        finally:
            life.end()

    def _file(self, way: Way) -> Path:
        common = {
            "name": way.name,
            "key.converter": AVRO,
            "errors.tolerance": "all",
            "errors.deadletterqueue.topic.name": way.letters,
            "errors.restart.backoff.ms": "200",
        }
        return write_properties(self.folder / f"{way.name}.properties", common | dict(way.properties))

    def _wait(self, life: WorkerLife, way: Way, rows: int) -> None:
        def count() -> int:
            return sum(committed_values(self.kafka.bootstrap, topic).total() for topic in (way.topic, way.letters))

        is_there = wait_until(lambda: count() >= rows, seconds_max=SECONDS_MAX, look_seconds=0.5)
        assert is_there, (way.name, count(), life.log_text()[-6000:])

    def demand(self, texts: Sequence[str]) -> None:
        """That each way has told each value as the guide says of the database's text of it, and of no row twice."""
        wrong = {}
        for way in self.ways:
            found = self._found(way)
            expected = [way.told(kind, text) for (kind, _, _), text in zip(self.types, texts, strict=True)]
            assert sorted(found) == list(range(1, 2 * len(self.types) + 1))
            for number, told in found.items():
                at = (number - 1) % len(self.types)
                if repr(told) != repr(expected[at]) and told != expected[at]:  # NaN is not equal to itself
                    wrong[way.name, number] = (self.types[at], texts[at], told, expected[at])
        by_avro = [self.ways[0].told(kind, text) for (kind, _, _), text in zip(self.types, texts, strict=True)]
        assert [told is None for told in by_avro] == [told is None for _, _, told in self.types]
        assert not wrong, "\n".join(f"{where}: {what}" for where, what in wrong.items())

    def _found(self, way: Way) -> dict[int, Told]:
        """By row; None: it is a dead letter that names the column of its value."""
        records = journal.committed_records(self.kafka.bootstrap, way.topic)
        letters = journal.committed_records(self.kafka.bootstrap, way.letters)
        rows = [self._row(way, record.value or b"") for record in records]
        found = dict(rows)
        for letter in letters:
            row = json.loads(letter.value or b"")
            number = (row["after"] if way.is_log else row)["id"]
            message = journal.headers_of(letter)["__connect.errors.exception.message"]
            assert re.search(rf"\bc{(number - 1) % len(self.types)}: ", message), (way.name, message)
            found[number] = None
        assert len(found) == len(records) + len(letters), "a row came twice"
        return found

    def _row(self, way: Way, value: bytes) -> tuple[int, Told]:
        """Number of a row, and what it tells of its value."""
        form, row = self._avro(value) if value[0] == 0 else _json(value)
        if way.is_log:
            assert row["op"] == ("r" if row["after"]["id"] <= len(self.types) else "c")
            before = next(field for field in form if field["name"] == "before")
            form, row = before["type"][1]["fields"], row["after"]
        at = (row["id"] - 1) % len(self.types)
        assert [name for name, value in row.items() if value is not None and name != "id"] in ([f"c{at}"], [])
        (field,) = (each for each in form if f"c{at}" in (each.get("name"), each.get("field")))
        read = from_json if "field" in field else from_avro
        return row["id"], read(field if "field" in field else field["type"], row[f"c{at}"])

    def _avro(self, value: bytes) -> tuple[Any, Any]:
        """Fields and values, by fastavro and the registry; dates are days, because Python has none before Christ."""
        url = f"{self.registry.url}/schemas/ids/{int.from_bytes(value[1:5], 'big')}"
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310 - our own
            schema = json.loads(json.loads(answer.read())["schema"])
        bare = json.loads(json.dumps(schema).replace('"logicalType"', '"unused"'))
        return schema["fields"], fastavro.schemaless_reader(io.BytesIO(value[5:]), bare, None)


def _json(value: bytes) -> tuple[Any, Any]:
    told = json.loads(value)
    return told["schema"]["fields"], told["payload"]


def _copied(types: Sequence[Edge]) -> str:
    columns = ", ".join(f"c{at}" for at in range(len(types)))
    return f"insert into kinds ({columns}) select {columns} from kinds order by id"


def test_postgresql(kafka: KafkaStack, registry: RegistryStack, postgres: Postgres, tmp_path: Path) -> None:
    """``JdbcSource``, and ``PostgresCdcSource`` with Debezium's forms."""
    types = POSTGRESQL
    postgres.run(*POSTGRESQL_NAMES, *table_of(types, "bigserial primary key"))
    name = postgres.name
    log = {"connector.class": "PostgresCdcSource", **postgres.change_keys, "topic.prefix": name}
    log |= {"table.include.list": "public.kinds", "value.converter": AVRO}
    ways = [
        *polled(name, postgres.url, mappings.JDBC_POSTGRESQL),
        Way(f"{name}-log", f"{name}.public.kinds", log, mappings.LOG_POSTGRESQL, is_log=True),
    ]
    delivery = Delivery(kafka, registry, tmp_path, types, ways)
    try:
        delivery.run(lambda: postgres.run(_copied(types)))
        told = f"postgresql://postgres@127.0.0.1:{postgres.server.port}/{name}?options=-c%20TimeZone%3DUTC"
        # What format() gives is the type's own output: a cast to text takes the blanks of char(n) away.
        shown = ", ".join(f"format('%s', c{at})" for at in range(len(types)))
        with psycopg.connect(told) as session:
            rows = session.execute(f"select {shown} from kinds order by id").fetchall()
    finally:
        postgres.drop_slots()
    delivery.demand([str(rows[at][at]) for at in range(len(types))])


def _own_text_of_mysql(column: str, kind: str) -> str:
    """As SQL: of bytes their digits, of bits and floats their numbers, of a point its text."""
    word = kind.partition("(")[0]
    if word in {"binary", "varbinary", "blob"}:
        return f"hex({column})"
    return {"bit": f"cast({column} + 0 as char)", "point": f"st_astext({column})"}.get(word, f"cast({column} as char)")


def test_mysql_and_mariadb(kafka: KafkaStack, registry: RegistryStack, each_mysql: MySql, tmp_path: Path) -> None:
    """``JdbcSource``, and ``MySqlCdcSource`` with Debezium's forms."""
    types, name = mysql_types(each_mysql.scheme), each_mysql.name
    each_mysql.run("set sql_mode = ''", *table_of(types, "bigint primary key auto_increment"))
    log = {
        "connector.class": "MySqlCdcSource",
        "database.hostname": "127.0.0.1",
        "database.port": str(each_mysql.server.port),
        "database.user": "root",
        "database.server.id": "54330",
        "database.include.list": name,
        "topic.prefix": name,
        "value.converter": AVRO,
    }
    table = mappings.LOG_MARIADB if each_mysql.scheme == "mariadb" else mappings.LOG_MYSQL
    ways = [
        *polled(name, each_mysql.url, mappings.JDBC_MYSQL),
        Way(f"{name}-log", f"{name}.{name}.kinds", log, table, is_log=True),
    ]
    delivery = Delivery(kafka, registry, tmp_path, types, ways)
    delivery.run(lambda: each_mysql.run("set sql_mode = ''", _copied(types)))
    shown = ", ".join(_own_text_of_mysql(f"c{at}", kind) for at, (kind, _, _) in enumerate(types))
    rows = asyncio.run(each_mysql.rows(f"select {shown} from kinds order by id"))
    delivery.demand([str(rows[at][at]) for at in range(len(types))])


def test_sqlite(kafka: KafkaStack, registry: RegistryStack, tmp_path: Path, topic_name: str) -> None:
    """``JdbcSource``."""
    path = tmp_path / "kinds.db"
    shown = ", ".join(own_text_of_sqlite(f"c{at}") for at in range(len(SQLITE)))
    with closing(sqlite3.connect(path, isolation_level=None, timeout=SECONDS_MAX)) as session:
        for statement in table_of(SQLITE, "integer primary key autoincrement"):
            session.execute(statement)
        ways = polled(topic_name, f"jdbc:sqlite:{path}", mappings.SQLITE)
        delivery = Delivery(kafka, registry, tmp_path, SQLITE, ways)
        delivery.run(lambda: session.execute(_copied(SQLITE)))
        rows = session.execute(f"select {shown} from kinds order by id").fetchall()
    delivery.demand([str(rows[at][at]) for at in range(len(SQLITE))])
