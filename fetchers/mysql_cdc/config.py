"""The keys of ``MySqlCdcSource``: those of Debezium's connectors for MySQL and MariaDB that mean something here."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from fetchers.sdk import Boolean, Importance, Key, NameList, Secret
from fetchers.toolkit.binary_modes import BinaryMode
from fetchers.toolkit.debezium_keys import DebeziumConfig
from fetchers.toolkit.name_lists import Adjustment

CONNECTION, TABLES, SNAPSHOT, EVENTS, LOG = "Connection", "Tables", "Snapshot", "Events", "Log"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
SERVER_ID_MAX = (1 << 32) - 1
_OF_MARIADB = {"disable": "disabled", "trust": "required", "verify-ca": "verify_ca", "verify-full": "verify_identity"}


def _ssl_mode(value: object) -> object:
    """A word of Debezium's connector for MariaDB as that of the one for MySQL."""
    return _OF_MARIADB.get(value.lower(), value) if isinstance(value, str) else value


class MySqlCdcConfig(DebeziumConfig):
    """Changes of tables, as the binary log of MySQL or MariaDB has them."""

    debezium_connector: ClassVar[str] = "mysql"
    database_hostname: Annotated[str, Field(min_length=1), Key(_HIGH, CONNECTION, 1, "LONG", example="localhost")]
    """Host of the database."""
    database_port: Annotated[int, Field(ge=1, le=65535), Key(_HIGH, CONNECTION, 2, "SHORT")] = 3306
    """Port of the database."""
    database_user: Annotated[str, Field(min_length=1), Key(_HIGH, CONNECTION, 3, "MEDIUM", example="headrace")]
    """User, with the rights SELECT, REPLICATION SLAVE and REPLICATION CLIENT (in MariaDB also BINLOG MONITOR and
    REPLICATION SLAVE ADMIN under their own names), and on MySQL RELOAD for a snapshot."""
    database_password: Annotated[Secret | None, Key(_HIGH, CONNECTION, 4, "SHORT")] = None
    """Password of the user."""
    database_server_id: Annotated[
        int, Field(ge=1, le=SERVER_ID_MAX), Key(_HIGH, CONNECTION, 5, "SHORT", example="184054")
    ]
    """A number that no server and no other reader of this database has: the server ends an older reader of the same."""
    database_ssl_mode: Annotated[
        Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"],
        BeforeValidator(_ssl_mode),
        Key(_MEDIUM, CONNECTION, 6, "SHORT"),
    ] = "preferred"
    """``required``: TLS; ``verify_identity`` (and ``verify_ca``, which is the same here): and the server's certificate
    must be right. ``preferred`` and ``disabled``: no TLS. ``disable``, ``trust``, ``verify-ca`` and ``verify-full``, as
    Debezium's connector for MariaDB has them, are the same."""
    log_silence_max_ms: Annotated[int, Field(ge=300), Key(_LOW, LOG, 2, "SHORT")] = 30_000
    """Milliseconds of silence after which the connection is taken for lost; the server is told to say something every
    second, or three times in this time."""
    topic_prefix: Annotated[
        str, Field(pattern="^[A-Za-z0-9._-]+$", max_length=180), Key(_HIGH, EVENTS, 1, "MEDIUM", example="shop")
    ]
    """Begins topics (``prefix.database.table``) and the names of schemas. Never change it."""
    database_include_list: Annotated[NameList, Key(_HIGH, TABLES, 1, "LONG")] = ()
    """Regular expressions for the whole names of databases to read; all but the server's own when empty."""
    database_exclude_list: Annotated[NameList, Key(_MEDIUM, TABLES, 2, "LONG")] = ()
    """Regular expressions for databases not to read."""
    table_include_list: Annotated[NameList, Key(_HIGH, TABLES, 3, "LONG", example="shop\\.orders")] = ()
    """Regular expressions for whole names ``database.table`` to read; all when empty."""
    table_exclude_list: Annotated[NameList, Key(_MEDIUM, TABLES, 4, "LONG")] = ()
    """Regular expressions for tables not to read."""
    column_include_list: Annotated[NameList, Key(_MEDIUM, TABLES, 5, "LONG")] = ()
    """Regular expressions for whole names ``database.table.column`` of columns to deliver; all when empty."""
    column_exclude_list: Annotated[NameList, Key(_MEDIUM, TABLES, 6, "LONG")] = ()
    """Regular expressions for columns not to deliver."""
    snapshot_mode: Annotated[
        Literal["initial", "initial_only", "no_data", "schema_only", "never"], Key(_HIGH, SNAPSHOT, 1, "MEDIUM")
    ] = "initial"
    """Where no offset is stored: ``initial`` reads all rows and then the log from that very point, ``initial_only``
    ends there, ``no_data`` (and its older names ``schema_only``, ``never``) begins with the log as it is now."""
    snapshot_locking_mode: Annotated[Literal["minimal", "none"], Key(_LOW, SNAPSHOT, 2, "SHORT")] = "minimal"
    """On MySQL ``minimal`` stops all writers for the moment in which the snapshot begins; ``none`` does not, and is
    right only while nobody writes. MariaDB needs no lock, and none is taken."""
    snapshot_lock_timeout_ms: Annotated[int, Field(ge=1_000, le=300_000), Key(_LOW, SNAPSHOT, 7, "SHORT")] = 10_000
    """Milliseconds, in whole seconds, that the lock of ``minimal`` may wait for statements that run already. All
    writers wait behind it; then it is given up, and tried again later."""
    snapshot_fetch_size: Annotated[int, Field(ge=1, le=1_000_000), Key(_LOW, SNAPSHOT, 3, "SHORT")] = 10_000
    """Most rows of a page of a snapshot."""
    snapshot_request_id: Annotated[
        str, Field(max_length=200), Key(_LOW, SNAPSHOT, 4, "MEDIUM", example="2026-07-01")
    ] = ""
    """Set it to another text, while the connector runs, and the tables of ``snapshot.request.tables`` are read again
    beside the log; empty it, and reading them again ends. The same text is obeyed once."""
    snapshot_request_tables: Annotated[NameList, Key(_LOW, SNAPSHOT, 5, "LONG", example="shop\\.orders")] = ()
    """Regular expressions of which one must match a table's whole ``database.table``; all tables when empty."""
    table_poll_interval_ms: Annotated[int, Field(ge=10), Key(_LOW, SNAPSHOT, 6, "SHORT")] = 60_000
    """Milliseconds between two looks for tables that were added."""
    decimal_handling_mode: Annotated[Literal["precise", "double", "string"], Key(_MEDIUM, EVENTS, 2, "SHORT")] = (
        "precise"
    )
    """What becomes of DECIMAL: Connect's Decimal, a double (which may round), or its digits as text."""
    bigint_unsigned_handling_mode: Annotated[Literal["long", "precise"], Key(_MEDIUM, EVENTS, 3, "SHORT")] = "long"
    """``precise``: unsigned BIGINT is Connect's Decimal; ``long``: a 64-bit number, and what is none is rejected."""
    time_precision_mode: Annotated[
        Literal["adaptive_time_microseconds", "connect"], Key(_MEDIUM, EVENTS, 12, "SHORT")
    ] = "adaptive_time_microseconds"
    """Debezium's types by a column's precision, or Connect's, in which microseconds are cut off, and which have no TIME
    below 0 or above a day: such a value is rejected."""
    binary_handling_mode: Annotated[BinaryMode, Key(_LOW, EVENTS, 13, "SHORT")] = "bytes"
    """BINARY, VARBINARY and BLOB as bytes, or as text: hexadecimal digits, or base64 in one of its two alphabets."""
    tombstones_on_delete: Annotated[Boolean, Key(_MEDIUM, EVENTS, 4, "SHORT")] = True
    """Whether a null with the row's key follows each delete, so that compaction forgets the row."""
    skipped_operations: Annotated[NameList, Key(_LOW, EVENTS, 5, "SHORT")] = ("t",)
    """Of ``c``, ``u``, ``d``, ``t`` (TRUNCATE), or ``none``. Rows alone (``event.form=row``) cannot say ``t``."""
    event_form: Annotated[Literal["envelope", "row"], Key(_MEDIUM, EVENTS, 6, "SHORT")] = "envelope"
    """``row``: rows alone with ``__deleted``, as Debezium's ``ExtractNewRecordState`` with ``rewrite`` makes them."""
    schema_name_adjustment_mode: Annotated[Adjustment, Key(_LOW, EVENTS, 7, "SHORT")] = "none"
    """How names of schemas are made fit for Avro."""
    field_name_adjustment_mode: Annotated[Adjustment, Key(_LOW, EVENTS, 8, "SHORT")] = "none"
    """How names of fields are made fit for Avro."""
    heartbeat_interval_ms: Annotated[int, Field(ge=0), Key(_MEDIUM, EVENTS, 9, "SHORT")] = 0
    """Milliseconds between heartbeats to their topic, to a second; 0: none. The offset moves on without them, too."""
    heartbeat_topics_prefix: Annotated[str, Field(pattern="^[A-Za-z0-9._-]+$"), Key(_LOW, EVENTS, 10, "SHORT")] = (
        "__debezium-heartbeat"
    )
    """Heartbeats go to ``<this>.<topic.prefix>``."""
    heartbeat_action_query: Annotated[str, Key(_LOW, EVENTS, 11, "LONG")] = ""
    """SQL that is run before each heartbeat, such as an UPDATE of a table that is read."""
    max_batch_bytes: Annotated[int, Field(ge=1_000, le=1 << 28), Key(_LOW, LOG, 1, "SHORT")] = 4_000_000
    """Bytes of the log after which what was read is handed over; a larger transaction goes on in further pages."""

    @property
    def lock_seconds_max(self) -> int | None:
        """How long the lock with which a snapshot begins on MySQL may wait; None: there is none."""
        return self.snapshot_lock_timeout_ms // 1000 if self.snapshot_locking_mode == "minimal" else None
