"""The keys of ``JdbcSource``: those of Confluent's JDBC source, and a few of our own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from fetchers.sdk import Boolean, Importance, Key, NameList, Secret
from fetchers.sql.confluent_keys import UNREAD
from fetchers.toolkit.databases import DatabaseUrl, Login, read_url, url_text, zone_name
from fetchers.toolkit.unread_keys import Unread, UnreadKeysConfig

DATABASE, MODE, CONNECTOR, TASK = "Database", "Mode", "Connector", "Task"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_URL_EXAMPLE = "jdbc:postgresql://localhost:5432/shop"


def _small(value: object) -> object:
    """Confluent's connector takes the words of an enumeration in small and in capital letters."""
    return value.lower() if isinstance(value, str) else value


def _ends(text: str) -> str:
    try:
        found = json.loads(text) if text else {}
        is_right = all(isinstance(end, int) for ends in found.values() for end in ends)
    except (ValueError, TypeError, AttributeError, RecursionError):
        is_right = False
    if not is_right:
        message = 'Expected lists of ids by table, such as {"public.orders": [1000, 2000]}'
        raise ValueError(message)
    return text


class JdbcConfig(UnreadKeysConfig):
    """Tables, or one query, of a database, read again and again."""

    unread_keys: ClassVar[tuple[Unread, ...]] = UNREAD

    connection_url: Annotated[
        str,
        BeforeValidator(url_text),
        Key(_HIGH, DATABASE, 1, "LONG", "JDBC URL", example=_URL_EXAMPLE),
    ]
    """``jdbc:postgresql://host/db``, ``jdbc:mysql://host/db``, ``jdbc:mariadb://host/db`` or ``jdbc:sqlite:file.db``;
    ``user`` and ``password`` may stand behind a ``?``."""
    connection_user: Annotated[str | None, Key(_HIGH, DATABASE, 2, "MEDIUM", "JDBC User")] = None
    """User of the database; goes before the one in the URL."""
    connection_password: Annotated[Secret | None, Key(_HIGH, DATABASE, 3, "SHORT", "JDBC Password")] = None
    """Password of the user."""
    table_whitelist: Annotated[NameList, Key(_MEDIUM, DATABASE, 4, "LONG", "Table Whitelist")] = ()
    """Tables to read, by name, ``schema.name`` or ``database.schema.name``; without other lists or a query."""
    table_blacklist: Annotated[NameList, Key(_MEDIUM, DATABASE, 5, "LONG", "Table Blacklist")] = ()
    """Tables not to read; all others are."""
    table_include_list: Annotated[NameList, Key(_MEDIUM, DATABASE, 6, "LONG", "Table Include List")] = ()
    """Regular expressions of which one must match a table's whole ``schema.name`` or name."""
    table_exclude_list: Annotated[NameList, Key(_MEDIUM, DATABASE, 7, "LONG", "Table Exclude List")] = ()
    """Regular expressions of tables not to read."""
    catalog_pattern: Annotated[str | None, Key(_MEDIUM, DATABASE, 8, "SHORT", "Catalog Pattern")] = None
    """Accepted where the URL's database fits it, because a connector reads that alone."""
    schema_pattern: Annotated[str | None, Key(_MEDIUM, DATABASE, 9, "SHORT", "Schema pattern")] = None
    """Schemas in which tables are looked for, ``%`` and ``_`` as in SQL's LIKE; all but the system's own when empty."""
    table_types: Annotated[NameList, Key(_LOW, CONNECTOR, 4, "MEDIUM", "Table Types")] = ("TABLE",)
    """``TABLE``, ``VIEW`` or both; of PostgreSQL also ``PARTITIONED TABLE`` and ``FOREIGN TABLE``, which ``TABLE`` has,
    and ``MATERIALIZED VIEW``, which ``VIEW`` has."""
    db_timezone: Annotated[str, BeforeValidator(zone_name), Key(_MEDIUM, CONNECTOR, 8, "MEDIUM", "DB time zone")] = (
        "UTC"
    )
    """Zone of dates and times that have none themselves."""
    numeric_mapping: Annotated[
        Literal["none", "precision_only", "best_fit", "best_fit_eager_double"],
        BeforeValidator(_small),
        Key(_LOW, DATABASE, 10, "SHORT", "Map Numeric Values, Integral or Decimal, By Precision and Scale"),
    ] = "none"
    """What becomes of NUMERIC: ``none`` a Decimal; ``precision_only`` whole numbers of up to 18 digits as integers;
    ``best_fit`` also those with a fraction as doubles, ``best_fit_eager_double`` of any number of digits."""
    timestamp_granularity: Annotated[
        Literal[
            "connect_logical",
            "micros_long",
            "micros_string",
            "micros_iso_datetime_string",
            "nanos_long",
            "nanos_string",
            "nanos_iso_datetime_string",
        ],
        BeforeValidator(_small),
        Key(_LOW, CONNECTOR, 9, "SHORT", "Timestamp granularity for timestamp columns"),
    ] = "connect_logical"
    """``connect_logical`` is Connect's Timestamp, which has milliseconds: finer fractions are cut. The others keep
    microseconds, as numbers or texts."""
    quote_sql_identifiers: Annotated[
        Literal["ALWAYS", "NEVER", "always", "never"], Key(_MEDIUM, DATABASE, 11, "MEDIUM", "Quote Identifiers")
    ] = "ALWAYS"
    """Accepted; names are always quoted, as the database itself has them."""

    mode: Annotated[
        Literal["bulk", "incrementing", "timestamp", "timestamp+incrementing"],
        Key(_HIGH, MODE, 1, "MEDIUM", "Table Loading Mode", example="incrementing"),
    ]
    """``bulk``: all rows at each poll; ``incrementing``: rows with higher ids than before; ``timestamp``: rows with
    later timestamps; ``timestamp+incrementing``: both: changed rows are seen, and equal timestamps told apart."""
    incrementing_column_name: Annotated[str, Key(_MEDIUM, MODE, 2, "MEDIUM", "Incrementing Column Name")] = ""
    """Column that only grows; the table's auto-increment column when empty."""
    timestamp_column_name: Annotated[NameList, Key(_MEDIUM, MODE, 3, "MEDIUM", "Timestamp Column Name")] = ()
    """Columns with the time of a row's last change; of several the first that is not null."""
    timestamp_initial: Annotated[int | None, Key(_LOW, MODE, 4, "MEDIUM", "Unix time value of initial timestamp")] = (
        None
    )
    """Milliseconds since the epoch from which on rows are read at first; -1: from now on."""
    validate_non_null: Annotated[Boolean, Key(_LOW, MODE, 5, "SHORT", "Validate Non Null")] = True
    """Refuse columns of the mode that may be null: rows in which they are null are never read."""
    query: Annotated[str, Key(_MEDIUM, MODE, 6, "SHORT", "Query")] = ""
    """One SELECT to be read in place of tables; it is wrapped, so that it may be any."""
    query_suffix: Annotated[str, Key(_LOW, MODE, 7, "MEDIUM", "Query suffix")] = ""
    """Refused: a suffix such as LIMIT loses rows; pages are bounded by ``batch.max.rows``."""

    topic_prefix: Annotated[
        str,
        Field(pattern="^[A-Za-z0-9._-]+$", max_length=249),
        Key(_HIGH, CONNECTOR, 1, "MEDIUM", "Topic Prefix", example="shop."),
    ]
    """Topics are this and the table's name; with a query it is the topic's whole name."""
    batch_max_rows: Annotated[
        int, Field(ge=1, le=1_000_000), Key(_LOW, CONNECTOR, 3, "SHORT", "Max Rows Per Batch")
    ] = 10_000
    """Most rows of a page (Confluent's default is 1000; larger pages cost less)."""
    table_poll_interval_ms: Annotated[
        int, Field(ge=1), Key(_LOW, CONNECTOR, 5, "SHORT", "Metadata Change Monitoring Interval (ms)")
    ] = 60_000
    """Milliseconds between two looks for new tables."""
    timestamp_delay_interval_ms: Annotated[
        int, Field(ge=0), Key(_HIGH, CONNECTOR, 7, "MEDIUM", "Delay Interval (ms)")
    ] = 0
    """Rows are read when their timestamp is so old; for timestamps that clients set by clocks of their own."""
    late_commits: Annotated[Literal["wait", "ignore"], Key(_MEDIUM, MODE, 8, "SHORT", "Late commits")] = "wait"
    """``wait``: a range is read when no transaction is open that could still write into it, so that no row is lost;
    ``ignore``: at once, as other connectors do."""
    load_parts: Annotated[
        int, Field(ge=1, le=1000), Key(_MEDIUM, CONNECTOR, 11, "SHORT", "Parts of a first load", example="16")
    ] = 1
    """Into how many ranges of ids the first load of a table is split, in mode ``incrementing``; the tasks read them
    side by side. 1: not at all."""
    key_columns: Annotated[NameList, Key(_MEDIUM, CONNECTOR, 10, "MEDIUM", "Key columns")] = ()
    """Columns of the record key; none: no key, as Confluent's connector has it."""
    dialect_name: Annotated[str, Key(_LOW, DATABASE, 12, "LONG", "Database Dialect")] = ""
    """Accepted; the URL says which database it is."""
    task_number: Annotated[int, Field(ge=0), Key(_LOW, TASK, 1, "SHORT", "Task")] = 0
    """Set by the connector for each task: which one it is."""
    task_count: Annotated[int, Field(ge=1), Key(_LOW, TASK, 2, "SHORT", "Tasks")] = 1
    """Set by the connector for each task: how many there are."""

    load_ends: Annotated[str, AfterValidator(_ends), Key(_LOW, TASK, 3, "LONG", "Ends of parts")] = ""
    """Set by the connector for each task: ids at which the parts of a first load end, by table, as JSON."""

    @property
    def ends_of_parts(self) -> Mapping[str, Sequence[int]]:
        """By the tables' full names; for the tables that were there when the work was split."""
        found: Mapping[str, Sequence[int]] = json.loads(self.load_ends) if self.load_ends else {}
        return found

    @property
    def types(self) -> Sequence[str]:
        """The words of ``table.types``, in capital letters."""
        return tuple(word.upper() for word in self.table_types)

    @property
    def url(self) -> DatabaseUrl:
        """The URL, read."""
        return read_url(self.connection_url)

    @property
    def login(self) -> Login:
        """Who reads."""
        return Login(self.url, self.connection_user, self.connection_password)

    @property
    def uses_ids(self) -> bool:
        """Whether rows are told apart by an incrementing column."""
        return self.mode in {"incrementing", "timestamp+incrementing"}

    @property
    def uses_times(self) -> bool:
        """Whether rows are found by timestamps."""
        return self.mode in {"timestamp", "timestamp+incrementing"}
