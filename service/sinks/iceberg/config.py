"""Keys of ``IcebergSink``: those of Apache Iceberg's own sink for Kafka Connect, under its names, and a few of our own.

Source: https://iceberg.apache.org/docs/latest/kafka-connect/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import quote, urlsplit

import re2
from pydantic import Field
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from fetchers.sdk import Boolean, Finding, Importance, Key, NameList
from fetchers.sdk.config import ParsedConfig, SecretMap, TextMap
from metrics.redaction import SENSITIVE_NAME, Redactor
from service.sinks.contract import SinkConfig

_HIGH, _LOW = Importance.HIGH, Importance.LOW
_TABLES, _CATALOG, _COMMITS = "Tables", "Catalog", "Commits"
_NAME_KEY = "iceberg.catalog"
_JAVA_CATALOGS = {
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.jdbc.JdbcCatalog": "sql",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
}
_JAVA_KEYS = {"jdbc.user": "", "jdbc.password": "", "catalog-impl": "", "io-impl": "", "type": "", "name": ""}
"""Properties of Java's catalogues that are read here and not handed on."""
_HEADERS = "header."
"""Before the names of headers that each request to a REST catalogue is sent with, and of which nobody knows more."""
CATALOGS = ("rest", "sql", "glue")
_TABLE_KEYS = ("commit-branch", "id-columns", "partition-by", "route-regex")
_NO_NAME = re.compile(r"[/\\\x00-\x1f]")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")
CODE_KEYS = ("py-catalog-impl", "py-io-impl", "s3.retry-strategy-impl", "write.py-location-provider.impl")
"""Properties of PyIceberg that name a class, which it imports and calls."""


@dataclass(frozen=True, slots=True)
class TableKeys:
    """What the config says of one table."""

    name: str
    branch: str
    partition_by: tuple[str, ...]
    route: Any
    """Of values of the route field whose records go to it."""


def _alias(name: str) -> Any:
    return Field(alias=name)


class IcebergSinkConfig(SinkConfig):
    """Appends records as rows of Apache Iceberg tables, each record once."""

    free_prefixes: ClassVar[tuple[str, ...]] = (_NAME_KEY,)

    iceberg_catalog_properties: Annotated[SecretMap, Field(alias="iceberg.catalog"), Key(_HIGH, _CATALOG, 1)] = Field(
        default_factory=dict
    )
    """Properties of the catalogue: ``type`` (``rest``, ``sql`` or ``glue``; or ``catalog-impl`` with the name of a Java
    class), ``uri``, ``warehouse``, ``credential``, ``token``, ``s3.endpoint`` and what else PyIceberg has. All are
    shown nowhere. ``iceberg.catalog`` itself is the catalogue's name, ``iceberg`` where it is not given."""

    iceberg_tables: Annotated[NameList, Key(_HIGH, _TABLES, 1)] = ()
    """Tables that records go to, as ``namespace.table``. Every record goes to each, or to those that
    ``iceberg.tables.route-field`` and ``iceberg.table.<table>.route-regex`` say."""
    iceberg_tables_dynamic_enabled: Annotated[
        Boolean, _alias("iceberg.tables.dynamic-enabled"), Key(group=_TABLES, order=2)
    ] = False
    """Whether the route field's text is the name of the table."""
    iceberg_tables_route_field: Annotated[
        str | None, _alias("iceberg.tables.route-field"), Key(group=_TABLES, order=3)
    ] = None
    """Field of the value that says which table a record goes to; a dot leads into a struct. A record whose field is
    null, or meant for no table, is passed over, as in Apache's sink."""
    iceberg_tables_dynamic_max: Annotated[
        int, Field(ge=1), _alias("iceberg.tables.dynamic-max"), Key(_LOW, _TABLES, 4)
    ] = 1000
    """Tables that a task writes to at most; a record for one more is refused. A key of headrace."""
    iceberg_tables_auto_create_enabled: Annotated[
        Boolean, _alias("iceberg.tables.auto-create-enabled"), Key(group=_TABLES, order=5)
    ] = False
    """Whether a missing table, and its namespace, is made from the record's schema."""
    iceberg_tables_auto_create_props: Annotated[
        TextMap, _alias("iceberg.tables.auto-create-props"), Key(group=_TABLES, order=6)
    ] = Field(default_factory=dict)
    """Properties of tables that are made."""
    iceberg_tables_evolve_schema_enabled: Annotated[
        Boolean, _alias("iceberg.tables.evolve-schema-enabled"), Key(group=_TABLES, order=7)
    ] = False
    """Whether a table follows its records: fields that it has not are added, ``int`` becomes ``long``, ``float``
    becomes ``double``, decimals get more digits, and what may be null in records becomes optional."""
    iceberg_tables_schema_force_optional: Annotated[
        Boolean, _alias("iceberg.tables.schema-force-optional"), Key(group=_TABLES, order=8)
    ] = False
    """Whether all columns of a table that is made are optional."""
    iceberg_tables_schema_case_insensitive: Annotated[
        Boolean, _alias("iceberg.tables.schema-case-insensitive"), Key(group=_TABLES, order=9)
    ] = False
    """Whether fields find columns whose names differ in upper and lower case."""
    iceberg_tables_default_partition_by: Annotated[
        str, _alias("iceberg.tables.default-partition-by"), Key(group=_TABLES, order=10)
    ] = ""
    """Partitions of tables that are made: ``day(placed_at), bucket(id, 16), region``."""
    iceberg_tables_default_commit_branch: Annotated[
        str, _alias("iceberg.tables.default-commit-branch"), Key(group=_TABLES, order=11)
    ] = "main"
    """Branch of the tables that is written to."""
    iceberg_tables_default_id_columns: Annotated[
        str, _alias("iceberg.tables.default-id-columns"), Key(_LOW, _TABLES, 12)
    ] = ""
    """Accepted; rows are only appended, so none is found by its columns."""
    iceberg_tables_replace_null_with_default: Annotated[
        Boolean, _alias("iceberg.tables.replace-null-with-default"), Key(_LOW, _TABLES, 13)
    ] = False
    """Not supported: refused where it is true. A null stays null."""
    iceberg_tables_write_props: Annotated[TextMap, _alias("iceberg.tables.write-props"), Key(_LOW, _TABLES, 14)] = (
        Field(default_factory=dict)
    )
    """Properties that go before the tables' own when data files are written, such as
    ``write.parquet.compression-codec``."""
    iceberg_table: Annotated[TextMap, Key(group=_TABLES, order=15)] = Field(default_factory=dict)
    """Of one table: ``iceberg.table.<table>.route-regex``, ``.partition-by``, ``.commit-branch``, ``.id-columns``."""
    iceberg_tables_cdc_field: Annotated[str, _alias("iceberg.tables.cdc-field"), Key(_LOW, _TABLES, 16)] = ""
    """Not supported: rows are only appended. Refused where it is given."""
    iceberg_tables_upsert_mode_enabled: Annotated[
        Boolean, _alias("iceberg.tables.upsert-mode-enabled"), Key(_LOW, _TABLES, 17)
    ] = False
    """Not supported: rows are only appended. Refused where it is true."""

    iceberg_control_commit_interval_ms: Annotated[
        int, Field(ge=100), _alias("iceberg.control.commit.interval-ms"), Key(_HIGH, _COMMITS, 1)
    ] = 300_000
    """Milliseconds between two commits."""
    iceberg_control_commit_records: Annotated[int, Field(ge=1), Key(group=_COMMITS, order=2)] = 5_000_000
    """Records after which a commit is made before its time. A key of headrace."""
    iceberg_control_commit_bytes: Annotated[int, Field(ge=1), Key(group=_COMMITS, order=3)] = 1_073_741_824
    """Bytes of rows, in memory, after which a commit is made before its time. A key of headrace."""
    buffer_bytes: Annotated[int, Field(ge=1_048_576), Key(group=_COMMITS, order=4)] = 134_217_728
    """Bytes of rows that a task holds in memory; above it, data files are written before their commit. A key of
    headrace."""
    behavior_on_null_values: Annotated[Literal["ignore", "fail"], Key(group=_COMMITS, order=5)] = "ignore"
    """What a null value does: nothing, as in Apache's sink, or it is refused. A key of headrace."""
    iceberg_control_topic: Annotated[str, Key(_LOW, _COMMITS, 6)] = "control-iceberg"
    """Accepted; there is no control topic: each task commits by itself."""
    iceberg_control_group_id_prefix: Annotated[
        str, _alias("iceberg.control.group-id-prefix"), Key(_LOW, _COMMITS, 7)
    ] = "cg-control"
    """Accepted; there is no control topic."""
    iceberg_control_commit_timeout_ms: Annotated[
        int, Field(ge=1), _alias("iceberg.control.commit.timeout-ms"), Key(_LOW, _COMMITS, 8)
    ] = 30_000
    """Accepted; no task waits for another one."""
    iceberg_control_commit_threads: Annotated[int, Field(ge=1), Key(_LOW, _COMMITS, 9)] = 4
    """Accepted; a task commits one table after another."""
    iceberg_control_commit_max_consecutive_failures: Annotated[
        int, Field(ge=1), _alias("iceberg.control.commit.max-consecutive-failures"), Key(_LOW, _COMMITS, 10)
    ] = 1
    """Accepted; ``errors.restart.max`` of the worker says how often a task begins anew."""
    iceberg_coordinator_transactional_prefix: Annotated[str, Key(_LOW, _COMMITS, 11)] = ""
    """Accepted; there is no coordinator."""
    iceberg_kafka: Annotated[SecretMap, Key(_LOW, _COMMITS, 12)] = Field(default_factory=dict)
    """Accepted; there is no control topic to be written to."""
    iceberg_hadoop_conf_dir: Annotated[str, _alias("iceberg.hadoop-conf-dir"), Key(_LOW, _CATALOG, 2)] = ""
    """Not supported: there is no Hadoop. Refused where it is given."""
    iceberg_hadoop: Annotated[SecretMap, Key(_LOW, _CATALOG, 3)] = Field(default_factory=dict)
    """Not supported: there is no Hadoop. Refused where a key of it is given."""

    @classmethod
    def parse(cls, properties: Mapping[str, str | None]) -> ParsedConfig[Self]:
        """Read a flat map. The catalogue's name is a key by itself and the beginning of others."""
        name = properties.get(_NAME_KEY)
        others = {key: value for key, value in properties.items() if key != _NAME_KEY}
        return super().parse(others if name is None else {**others, f"{_NAME_KEY}.name": name})

    @property
    def catalog_texts(self) -> dict[str, str]:
        """The catalogue's properties as they are given, secrets readable."""
        return {name: secret.get_secret_value() for name, secret in self.iceberg_catalog_properties.items()}

    def hidden(self, text: str) -> str:
        """A text, such as the answer of a catalogue, without the secrets among the catalogue's properties."""
        redactor = Redactor()
        for name, secret in self.catalog_texts.items():
            if SENSITIVE_NAME.search(name) or name.startswith(_HEADERS):
                redactor.learn(secret)
                # A credential is a client's id and its secret, and either may be repeated alone.
                redactor.learn(secret.partition(":")[2])
        return redactor.redact(text)

    @property
    def catalog_type(self) -> str:
        """``rest``, ``sql``, ``glue``, or what else the config says."""
        given = self.catalog_texts
        java = given.get("catalog-impl", "")
        return _JAVA_CATALOGS.get(java, java) or given.get("type", "").lower()

    @property
    def catalog_name(self) -> str:
        """Of the catalogue; tables of a SQL catalogue are found under it."""
        return self.catalog_texts.get("name", "iceberg")

    @property
    def catalog(self) -> dict[str, str]:
        """The catalogue's properties as PyIceberg names them."""
        given = self.catalog_texts
        made = {name: text for name, text in given.items() if name not in _JAVA_KEYS}
        made["type"] = self.catalog_type
        if "s3.path-style-access" in given:
            is_path = given["s3.path-style-access"].lower() == "true"
            made["s3.force-virtual-addressing"] = str(not is_path).lower()
        if made["type"] == "sql":
            made["uri"] = _sql_address(given)
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """Tables that the config names."""
        return () if self.iceberg_tables_dynamic_enabled else self.iceberg_tables

    def table(self, name: str) -> TableKeys:
        """What is said of a table."""
        own = {key: self.iceberg_table.get(f"{name}.{key}", "") for key in _TABLE_KEYS}
        return TableKeys(
            name,
            own["commit-branch"] or self.iceberg_tables_default_commit_branch,
            _parts(own["partition-by"] or self.iceberg_tables_default_partition_by),
            re2.compile(own["route-regex"]) if own["route-regex"] else None,
        )

    def own_findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        yield from self._catalog_findings()
        yield from self._table_findings()
        for key in ("iceberg.tables.cdc-field", "iceberg.tables.upsert-mode-enabled"):
            if getattr(self, key.replace(".", "_").replace("-", "_")):
                yield Finding(key, None, f"{key} is not supported: rows are appended, never changed or deleted")
        if self.iceberg_tables_replace_null_with_default:
            yield Finding("iceberg.tables.replace-null-with-default", "true", "Not supported: a null stays null")
        if self.iceberg_hadoop_conf_dir or self.iceberg_hadoop:
            key = "iceberg.hadoop-conf-dir" if self.iceberg_hadoop_conf_dir else "iceberg.hadoop."
            yield Finding(key, None, "Not supported: there is no Hadoop; use a REST or SQL catalogue")
        for key, given in (
            ("write-props", self.iceberg_tables_write_props),
            ("auto-create-props", self.iceberg_tables_auto_create_props),
        ):
            file_format = given.get("write.format.default", "parquet")
            if file_format.lower() != "parquet":
                yield Finding(f"iceberg.tables.{key}.write.format.default", file_format, "Only parquet is written")
            for name in CODE_KEYS:
                if name in given:
                    yield Finding(f"iceberg.tables.{key}.{name}", None, "Not supported: a config names no code")

    def _catalog_findings(self) -> Iterator[Finding]:
        given = self.catalog_texts
        key = "iceberg.catalog.catalog-impl" if "catalog-impl" in given else "iceberg.catalog.type"
        if self.catalog_type not in CATALOGS:
            message = f"Expected one of {', '.join(CATALOGS)}"
            yield Finding(key, self.catalog_type or None, message)
        elif self.catalog_type != "glue" and not given.get("uri"):
            yield Finding("iceberg.catalog.uri", None, 'Missing required configuration "iceberg.catalog.uri"')
        elif self.catalog_type == "rest" and urlsplit(given["uri"]).scheme not in {"http", "https"}:
            yield Finding("iceberg.catalog.uri", None, "Expected an address as https://catalog:8181")
        elif self.catalog_type == "sql" and not _sql_address(given):
            message = "Expected sqlite:////folder/catalog.db or postgresql://host/database, with or without jdbc:"
            yield Finding("iceberg.catalog.uri", None, message)
        for name in (*CODE_KEYS, "auth"):  # of REST catalogues, and no text
            if name in given:
                yield Finding(f"iceberg.catalog.{name}", None, "Not supported: a config names no code")

    def _table_findings(self) -> Iterator[Finding]:
        route = self.iceberg_tables_route_field
        if self.iceberg_tables_dynamic_enabled and not route:
            yield Finding("iceberg.tables.route-field", None, "iceberg.tables.dynamic-enabled needs a route field")
        if not self.iceberg_tables_dynamic_enabled and not self.iceberg_tables:
            message = 'Missing required configuration "iceberg.tables": or set iceberg.tables.dynamic-enabled'
            yield Finding("iceberg.tables", None, message)
        for name in self.iceberg_tables:
            if not is_table_name(name):
                yield Finding("iceberg.tables", name, "Expected names as namespace.table")
        yield from self._route_findings()
        for key, text in self.iceberg_table.items():
            if key.rpartition(".")[2] not in _TABLE_KEYS:
                yield Finding(f"iceberg.table.{key}", text, f"Expected one of {', '.join(_TABLE_KEYS)} at the end")
            elif key.endswith(".route-regex") and not _is_pattern(text):
                yield Finding(f"iceberg.table.{key}", text, "Expected a regular expression")

    def _route_findings(self) -> Iterator[Finding]:
        if self.iceberg_tables_route_field is None or len(self.names) == 1:
            return
        for name in self.names:
            if f"{name}.route-regex" not in self.iceberg_table:
                key = f"iceberg.table.{name}.route-regex"
                yield Finding(key, None, f"{name} would get no record: say which, or leave out the route field")


def is_table_name(name: str) -> bool:
    """Whether it is as ``namespace.table``; catalogues make folders of its parts, which must not lead elsewhere."""
    parts = name.split(".")
    return len(parts) > 1 and all(part.strip() for part in parts) and _NO_NAME.search(name) is None


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in _OUTSIDE_PARENTHESES.split(text) if part.strip())


def _is_pattern(text: str) -> bool:
    try:
        re2.compile(text)
    except re2.error:
        return False
    return True


def _sql_address(given: Mapping[str, str]) -> str:
    """The database's address as SQLAlchemy takes it; empty where it is of another database, or is none."""
    text = given.get("uri", "").removeprefix("jdbc:")
    if text.startswith("sqlite:"):
        path = text.removeprefix("sqlite:")
        return f"sqlite:{path}" if path.startswith("///") else f"sqlite:///{path}"
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.partition("+")[0] not in {"postgresql", "postgres"}:
        return ""
    user, word = (quote(given.get(f"jdbc.{name}", ""), safe="") for name in ("user", "password"))
    login = "" if not user or "@" in rest else f"{user}:{word}@" if word else f"{user}@"
    made = f"postgresql+psycopg://{login}{rest}"
    try:
        make_url(made)
    except (ArgumentError, ValueError):
        return ""
    return made
