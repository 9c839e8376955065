"""Keys of ``JdbcSink``: those of Confluent's connector, under its names and with its defaults, and one of our own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from fetchers.sdk import BackOff, Boolean, Finding, Importance, Key, NameList, Secret
from fetchers.sdk.config import AnyCase
from fetchers.toolkit.databases import Login, read_url, url_text, zone_name
from service.sinks.contract import PutLimits, SinkConfig, unknown_names

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_CONNECTION, _WRITES, _MAPPING, _DDL, _RETRIES = "Connection", "Writes", "Data Mapping", "DDL Support", "Retries"
KAFKA_FIELDS = ("__connect_topic", "__connect_partition", "__connect_offset")
"""Columns of a record's place in Kafka, for ``pk.mode=kafka`` without ``pk.fields``."""
_URL_EXAMPLE = "jdbc:postgresql://localhost:5432/shop"


class JdbcSinkConfig(SinkConfig):
    """Writes records as rows of a table: inserted, upserted, updated, deleted."""

    foreign_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "timestamp.fields.list": (),
        "timestamp.precision.mode": ("microseconds",),
    }

    connection_url: Annotated[str, BeforeValidator(url_text), Key(_HIGH, _CONNECTION, 1, example=_URL_EXAMPLE)]
    """``jdbc:postgresql://host/db``, ``jdbc:mysql://host/db``, ``jdbc:mariadb://host/db`` or ``jdbc:sqlite:file.db``;
    ``user`` and ``password`` may stand behind a ``?``."""
    connection_user: Annotated[str | None, Key(_HIGH, _CONNECTION, 2)] = None
    """User of the database; goes before the one in the URL."""
    connection_password: Annotated[Secret | None, Key(_HIGH, _CONNECTION, 3)] = None
    """Password of the user."""
    dialect_name: Annotated[str, Key(_LOW, _CONNECTION, 4)] = ""
    """Accepted; the URL says which database it is."""
    connection_attempts: Annotated[int, Field(ge=1), Key(_LOW, _CONNECTION, 5)] = 3
    """Accepted; a put whose connection is lost or refused is tried again as ``max.retries`` says, over a new one."""
    connection_backoff_ms: Annotated[int, Field(ge=1), Key(_LOW, _CONNECTION, 6)] = 10_000
    """Accepted; the wait is that of ``retry.backoff.ms``."""
    trim_sensitive_log: Annotated[Boolean, Key(_LOW, _CONNECTION, 7)] = False
    """Whether what the database says of a row that it refuses is left out of dead letters, logs and the task's trace,
    but for its code: databases repeat values in their messages."""

    insert_mode: Annotated[Literal["insert", "upsert", "update"], AnyCase, Key(_HIGH, _WRITES, 1)] = "insert"
    """``insert``: a new row for each record; ``upsert``: the row of the key is made or replaced; ``update``: only rows
    that are there are changed."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000), Key(_MEDIUM, _WRITES, 2)] = 10_000
    """Records of one put, which is one transaction (Confluent's default is 3000; larger puts cost less)."""
    delete_enabled: Annotated[Boolean, Key(_MEDIUM, _WRITES, 3)] = False
    """Whether a null value deletes the row of its key; needs ``pk.mode=record_key``. Else null values are refused."""
    table_types: Annotated[NameList, Key(_LOW, _WRITES, 4)] = ("TABLE",)
    """Accepted; tables, partitioned tables and views that take rows are all written to."""
    offsets_table: Annotated[str, Key(_MEDIUM, _WRITES, 5)] = ""
    """A table for this connector's offsets, made if it is missing: they are written in the transaction of the rows, so
    that each record is written exactly once in every mode. Empty: at least once, which upserts make harmless."""

    table_name_format: Annotated[str, Field(min_length=1), Key(_MEDIUM, _MAPPING, 1)] = "${topic}"
    """Name of the table; ``${topic}`` is the topic's. A dot divides schema and table."""
    pk_mode: Annotated[Literal["none", "kafka", "record_key", "record_value"], AnyCase, Key(_HIGH, _MAPPING, 2)] = (
        "none"
    )
    """What the primary key is: nothing; the record's topic, partition and offset; its key, or fields of it; fields of
    its value."""
    pk_fields: Annotated[NameList, Key(_MEDIUM, _MAPPING, 3)] = ()
    """Columns of the primary key: three names with ``kafka``, one name for a key that is a single value, else names of
    fields; all fields when empty."""
    fields_whitelist: Annotated[NameList, Key(_MEDIUM, _MAPPING, 4)] = ()
    """Fields of the value that are written; all when empty."""
    db_timezone: Annotated[str, BeforeValidator(zone_name), Key(_MEDIUM, _MAPPING, 5)] = "UTC"
    """Zone in which timestamps are written to columns that have none themselves."""
    date_timezone: Annotated[Literal["DB_TIMEZONE", "UTC"], AnyCase, Key(_MEDIUM, _MAPPING, 6)] = "UTC"
    """Accepted; a date is written as the day that it is, as Confluent's does with ``UTC``. Its ``DB_TIMEZONE`` moves
    days by ``db.timezone``, west of Greenwich to the day before."""

    replace_null_with_default: Annotated[Boolean, Key(_MEDIUM, _MAPPING, 7)] = True
    """Whether a field that is null and has a default in its schema is written as that default. JsonConverter has a key
    of the same name, and puts defaults there whatever stands here unless its own is false as well."""

    auto_create: Annotated[Boolean, Key(_MEDIUM, _DDL, 1)] = False
    """Whether a missing table is made from the record's schema; fields with a default make columns with it."""
    auto_evolve: Annotated[Boolean, Key(_MEDIUM, _DDL, 2)] = False
    """Whether fields that have no column get one, which may be null. No column is ever changed or dropped."""
    quote_sql_identifiers: Annotated[Literal["ALWAYS", "NEVER"], AnyCase, Key(_MEDIUM, _DDL, 3)] = "ALWAYS"
    """``ALWAYS``: names are as they are written; ``NEVER``: the database folds plain names as it does in SQL."""

    max_retries: Annotated[int, Field(ge=0), Key(_MEDIUM, _RETRIES, 1)] = 10
    """How often in a row a put is tried again while the database is away or busy; then the task fails."""
    retry_backoff_ms: Annotated[int, Field(ge=0), Key(_MEDIUM, _RETRIES, 2)] = 3000
    """Milliseconds between two tries."""

    @property
    def login(self) -> Login:
        """Who writes, and where."""
        return Login(read_url(self.connection_url), self.connection_user, self.connection_password)

    @property
    def limits(self) -> PutLimits:
        """Bounds of puts."""
        seconds = self.retry_backoff_ms / 1000
        return PutLimits(
            records_max=self.batch_size,
            retries_max=self.max_retries,
            waits=BackOff(first_seconds=seconds, cap_seconds=seconds, jitter_seconds=0),
        )

    def own_findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        if self.insert_mode != "insert" and self.pk_mode == "none":
            yield Finding("pk.mode", "none", f"insert.mode={self.insert_mode} needs a primary key")
        if self.delete_enabled and self.pk_mode != "record_key":
            yield Finding("delete.enabled", "true", "Deletes need pk.mode=record_key: the key says which row it is")
        if self.date_timezone == "DB_TIMEZONE" and self.db_timezone != "UTC":
            message = "Days are not moved to another zone: expected UTC, or DB_TIMEZONE with db.timezone=UTC"
            yield Finding("date.timezone", self.date_timezone, message)
        if self.pk_mode == "kafka" and len(self.pk_fields) not in {0, len(KAFKA_FIELDS)}:
            message = "Expected names for topic, partition and offset, or none"
            yield Finding("pk.fields", ",".join(self.pk_fields), message)
        found = unknown_names(self.table_name_format)
        if found:
            yield Finding("table.name.format", self.table_name_format, found)
        if len({name.lower() for name in self.pk_fields}) < len(self.pk_fields):
            yield Finding("pk.fields", ",".join(self.pk_fields), "A column is named twice")
