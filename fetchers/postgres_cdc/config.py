"""The keys of ``PostgresCdcSource``: Debezium's main keys for PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PrivateAttr

from fetchers.postgres_cdc.columns import Modes
from fetchers.sdk import Boolean, Finding, Importance, Key, NameList, Secret, Severity
from fetchers.sdk.page import Partition
from fetchers.sdk.reach import AllowedAddresses
from fetchers.toolkit.binary_modes import BinaryMode
from fetchers.toolkit.databases import KEPT_ALIVE, addresses_of, libpq_hosts
from fetchers.toolkit.debezium_keys import DebeziumConfig
from fetchers.toolkit.name_lists import Adjustment, list_findings

_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_CONNECTION, _CHANGES, _SNAPSHOT, _VALUES = "Connection", "Changes", "Snapshot", "Values"
_SLOT = Field(pattern="^[a-z0-9_]{1,63}$")
_OPERATIONS = {"c", "u", "d", "t", "none"}


class PostgresCdcConfig(DebeziumConfig):
    """Tables of a PostgreSQL database: first as they are, then each change as the server's log has it."""

    debezium_connector: ClassVar[str] = "postgresql"
    _addresses: AllowedAddresses = PrivateAttr(default=AllowedAddresses())
    database_hostname: Annotated[str, Field(min_length=1), Key(_HIGH, _CONNECTION, 1, example="db.example.org")]
    """Host of the server, the primary."""
    database_port: Annotated[int, Field(ge=1, le=65535), Key(_HIGH, _CONNECTION, 2)] = 5432
    """Its port."""
    database_user: Annotated[str, Field(min_length=1), Key(_HIGH, _CONNECTION, 3, example="headrace")]
    """A role with ``REPLICATION``, and ``SELECT`` on the tables."""
    database_password: Annotated[Secret | None, Key(_HIGH, _CONNECTION, 4)] = None
    """Its password."""
    database_dbname: Annotated[str, Field(min_length=1), Key(_HIGH, _CONNECTION, 5, example="shop")]
    """The database; a connector reads one."""
    database_sslmode: Annotated[
        Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"], Key(_MEDIUM, _CONNECTION, 6)
    ] = "prefer"
    """How the connection is encrypted, as libpq has it."""

    topic_prefix: Annotated[
        str, Field(pattern="^[A-Za-z0-9._-]+$", max_length=180), Key(_HIGH, _CHANGES, 1, example="shop")
    ]
    """Begins the topics, ``<topic.prefix>.<schema>.<table>``, and names the source partition: never change it."""
    plugin_name: Annotated[Literal["pgoutput"], Key(_MEDIUM, _CHANGES, 2)] = "pgoutput"
    """The server's own plugin; the others of Debezium are not known here."""
    slot_name: Annotated[str, _SLOT, Key(_HIGH, _CHANGES, 3)] = "debezium"
    """The replication slot, one for each connector; it is made where there is none yet, and dropped when the connector
    is deleted, never when it stops."""
    slot_drop_on_delete: Annotated[Boolean, Key(_MEDIUM, _CHANGES, 19)] = True
    """Whether a connector that is deleted drops its slot, and the publication if it has made that itself; its offsets
    are forgotten then, and one of the same name begins with a new snapshot. Else a connector that is created under the
    same name goes on where the deleted one stood, and the slot holds the server's log until then."""
    slot_failover: Annotated[Boolean, Key(_MEDIUM, _CHANGES, 20)] = False
    """Whether replicas keep the slot, so that one that takes over has it: PostgreSQL 17 and newer, on the primary. A
    slot that is there without it is altered. Elsewhere it has no effect, as with Debezium, and validation warns."""
    publication_name: Annotated[str, Field(min_length=1, max_length=63), Key(_HIGH, _CHANGES, 4)] = "dbz_publication"
    """The publication, which says what the server sends."""
    publication_autocreate_mode: Annotated[Literal["all_tables", "filtered", "disabled"], Key(_MEDIUM, _CHANGES, 5)] = (
        "all_tables"
    )
    """Where there is no publication: ``all_tables`` makes one of all (for which a superuser is needed), ``filtered``
    one of the tables of the lists, to which later ones are added at each start; ``disabled`` refuses."""
    schema_include_list: Annotated[NameList, Key(_MEDIUM, _CHANGES, 6)] = ()
    """Regular expressions (RE2) of which one must match a schema's whole name, in any case."""
    schema_exclude_list: Annotated[NameList, Key(_MEDIUM, _CHANGES, 7)] = ()
    """Schemas not to read."""
    table_include_list: Annotated[NameList, Key(_HIGH, _CHANGES, 8, example="public.orders")] = ()
    """Regular expressions of which one must match a table's whole ``schema.table``, in any case."""
    table_exclude_list: Annotated[NameList, Key(_MEDIUM, _CHANGES, 9)] = ()
    """Tables not to read."""
    column_include_list: Annotated[NameList, Key(_MEDIUM, _CHANGES, 10)] = ()
    """Regular expressions of which one must match ``schema.table.column``; columns of a key are always there."""
    column_exclude_list: Annotated[NameList, Key(_MEDIUM, _CHANGES, 11)] = ()
    """Columns to leave out."""
    skipped_operations: Annotated[NameList, Key(_LOW, _CHANGES, 12)] = ("t",)
    """Of ``c``, ``u``, ``d`` and ``t`` (truncate) those that are left out; ``none``: none of them."""
    tombstones_on_delete: Annotated[Boolean, Key(_MEDIUM, _CHANGES, 13)] = True
    """Whether a delete is followed by a record without a value, by which compaction forgets the key."""
    change_form: Annotated[Literal["envelope", "flattened"], Key(_MEDIUM, _CHANGES, 14)] = "envelope"
    """``envelope``: Debezium's, with before, after, source and operation; ``flattened``: the row itself, and
    ``__deleted``."""
    heartbeat_interval_ms: Annotated[int, Field(ge=0), Key(_MEDIUM, _CHANGES, 15)] = 0
    """Milliseconds between heartbeats to their topic; 0: none. The slot moves on without them, too."""
    heartbeat_topics_prefix: Annotated[str, Field(pattern="^[A-Za-z0-9._-]+$"), Key(_LOW, _CHANGES, 16)] = (
        "__debezium-heartbeat"
    )
    """Heartbeats go to ``<this>.<topic.prefix>``."""
    heartbeat_action_query: Annotated[str, Key(_LOW, _CHANGES, 17)] = ""
    """SQL that is run with each heartbeat, such as an UPDATE of a table that is read."""

    snapshot_mode: Annotated[Literal["initial", "initial_only", "no_data", "never"], Key(_HIGH, _SNAPSHOT, 1)] = (
        "initial"
    )
    """``initial``: the tables as they are, where no offset is stored, then the log; ``initial_only``: no log after
    it; ``no_data`` and ``never``: the log alone."""
    snapshot_fetch_size: Annotated[int, Field(ge=1, le=1_000_000), Key(_MEDIUM, _SNAPSHOT, 2)] = 10_240
    """Most rows of a page of the snapshot."""
    snapshot_request_id: Annotated[str, Field(max_length=200), Key(_LOW, _SNAPSHOT, 3, example="2026-07-01")] = ""
    """Set it to another text, while the connector runs, and the tables of ``snapshot.request.tables`` are read again
    beside the log; empty it, and reading them again ends. The same text is obeyed once."""
    snapshot_request_tables: Annotated[NameList, Key(_LOW, _SNAPSHOT, 4, example="public\\.orders")] = ()
    """Regular expressions of which one must match a table's whole ``schema.table``; all tables when empty."""
    table_poll_interval_ms: Annotated[int, Field(ge=10), Key(_LOW, _SNAPSHOT, 5)] = 60_000
    """Milliseconds between two looks for tables that were added: to the publication, or with
    ``publication.autocreate.mode=filtered`` to the database."""
    max_batch_size: Annotated[int, Field(ge=1, le=1_000_000), Key(_MEDIUM, _CHANGES, 18)] = 20_480
    """Changes that are decoded together; a transaction is not cut below twice as many."""

    decimal_handling_mode: Annotated[Literal["precise", "double", "string"], Key(_MEDIUM, _VALUES, 1)] = "precise"
    """NUMERIC as Connect's Decimal, as doubles, or as texts, which alone hold NaN and the infinities."""
    time_precision_mode: Annotated[
        Literal["adaptive", "adaptive_time_microseconds", "connect"], Key(_MEDIUM, _VALUES, 2)
    ] = "adaptive"
    """Debezium's types by a column's precision, or Connect's, in which microseconds are cut off."""
    interval_handling_mode: Annotated[Literal["numeric", "string"], Key(_LOW, _VALUES, 3)] = "numeric"
    """Intervals as microseconds, with months of 365.25/12 days, or as ISO 8601."""
    binary_handling_mode: Annotated[BinaryMode, Key(_LOW, _VALUES, 4)] = "bytes"
    """``bytea`` as bytes, or as text: hexadecimal digits, or base64 in one of its two alphabets."""
    unavailable_value_placeholder: Annotated[str, Key(_LOW, _VALUES, 5)] = "__debezium_unavailable_value"
    """Stands for a large text or ``bytea`` that an update has not changed, and that the log therefore has not."""
    schema_name_adjustment_mode: Annotated[Adjustment, Key(_LOW, _VALUES, 6)] = "none"
    """How names of schemas are adjusted; what Avro itself sees always is."""
    field_name_adjustment_mode: Annotated[Adjustment, Key(_LOW, _VALUES, 7)] = "none"
    """How names of fields are adjusted."""

    @property
    def source_partition(self) -> Partition:
        """As Debezium names it."""
        return {"server": self.topic_prefix}

    @property
    def modes(self) -> Modes:
        """How values are read."""
        return Modes(
            self.decimal_handling_mode,
            self.time_precision_mode,
            self.interval_handling_mode,
            self.binary_handling_mode,
        )

    @property
    def session(self) -> dict[str, Any]:
        """Parameters of libpq for any connection; looks up the host, and raises as ``addresses_of``."""
        secret = self.database_password
        parts = {
            **libpq_hosts(
                self.database_hostname,
                addresses_of(self.database_hostname, self.database_port, self._addresses),
            ),
            "port": str(self.database_port),
            "user": self.database_user,
            "dbname": self.database_dbname,
            "sslmode": self.database_sslmode,
            "application_name": f"headrace {self.topic_prefix}"[:63],
            "connect_timeout": "10",
            **KEPT_ALIVE,
            "password": None if secret is None else secret.get_secret_value(),
        }
        return {name: value for name, value in parts.items() if value is not None}

    def within(self, addresses: AllowedAddresses) -> Self:
        """The same config, whose sessions are made to these addresses alone."""
        made = self.model_copy()
        made._addresses = addresses  # noqa: SLF001 - its own class
        return made


def findings(config: PostgresCdcConfig) -> Iterator[Finding]:
    """What does not fit together."""
    yield from list_findings(
        {
            "schema.include.list": config.schema_include_list,
            "schema.exclude.list": config.schema_exclude_list,
            "table.include.list": config.table_include_list,
            "table.exclude.list": config.table_exclude_list,
            "column.include.list": config.column_include_list,
            "column.exclude.list": config.column_exclude_list,
            "snapshot.request.tables": config.snapshot_request_tables,
        }
    )
    for word in config.skipped_operations:
        if word not in _OPERATIONS:
            yield Finding("skipped.operations", word, "Expected some of c, u, d, t, or none")
    if config.heartbeat_action_query and not config.heartbeat_interval_ms:
        told = "It is run with each heartbeat, of which there are none: set heartbeat.interval.ms."
        yield Finding("heartbeat.action.query", None, told, Severity.WARNING)
