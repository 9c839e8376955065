"""What is asked of the server besides rows: tables, types, slot, publication. Blocking calls over one connection.

Facts: the chapters "Logical Replication", "pg_replication_slots" and "pg_publication_tables" of PostgreSQL's manual.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import psycopg.errors
from psycopg import sql as composing
from psycopg.rows import dict_row

from fetchers.postgres_cdc.columns import SESSION, TYPES, Type, type_of
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.pgoutput import LogRelation, RelationColumn
from fetchers.postgres_cdc.place import position_text
from fetchers.sdk import Fatal, FetchError, Retriable
from fetchers.toolkit.databases import PASSING
from fetchers.toolkit.name_lists import NameFilter
from fetchers.toolkit.postgres_texts import NO_ENCODING
from fetchers.toolkit.refusals import postgresql_refusal

_OWN_TYPES = 16384
"""``FirstNormalObjectId`` of the server's ``transam.h``: types with lower numbers come with it and stay as they are."""
_TABLE = """
select c.oid::int8 as oid, c.relreplident::text as identity from pg_class c join pg_namespace n
  on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s"""
_COLUMNS = """
select a.attname::text as name, a.atttypid::int8 as type_oid, a.atttypmod as modifier
from pg_attribute a where a.attrelid = %s and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
order by a.attnum"""
_KEY = """
select a.attname::text as name from pg_index i cross join unnest(i.indkey::int2[]) with ordinality as k(number, at)
  join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
where i.indrelid = %s and case when %s = 'i' then i.indisreplident else i.indisprimary end and k.at <= i.indnkeyatts
order by k.at"""
_KEYED = """
with told as materialized (
  select schemaname, tablename, to_jsonb(p) -> 'attnames' as columns from pg_publication_tables p where pubname = %s)
select n.nspname::text as schema, c.relname::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
  left join told on told.schemaname = n.nspname and told.tablename = c.relname
where c.relreplident <> 'n' and exists (select from pg_index i where i.indrelid = c.oid
  and case when c.relreplident = 'i' then i.indisreplident else i.indisprimary end
  and not exists (select from pg_attribute a where a.attrelid = c.oid
    and a.attnum = any((i.indkey::int2[])[0:i.indnkeyatts - 1])
    and (a.attgenerated <> '' or not coalesce(told.columns ? a.attname, true))))"""
"""Of a key of which the log does not tell a column, it tells no rows apart: the table has none."""
_MEMBERS = """
select n.nspname::text as schema, c.relname::text as name from pg_publication p
  join pg_publication_rel r on r.prpubid = p.oid
  cross join lateral (select r.prrelid::oid union select relid::oid from pg_partition_tree(r.prrelid)) t(oid)
  join pg_class c on c.oid = t.oid join pg_namespace n on n.oid = c.relnamespace where p.pubname = %s"""
_PUBLISHED = """
select to_jsonb(p) ->> 'rowfilter' as filter, to_jsonb(p) -> 'attnames' as columns, c.relkind::text as kind
from pg_publication_tables p join pg_namespace n on n.nspname = p.schemaname
  join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
where p.pubname = %s and p.schemaname = %s and p.tablename = %s"""
RUN_BY_ANOTHER = "Run as a superuser, or as who owns the publication and the tables"
_MADE_BY_ANOTHER = (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation)
_SLOT = """
select active, active_pid, plugin, database::text as database, wal_status,
  (confirmed_flush_lsn - '0/0')::int8 as confirmed,
  to_jsonb(s) ->> 'invalidation_reason' as reason,
  (to_jsonb(s) ->> 'synced')::bool and pg_is_in_recovery() as is_replicas
from pg_replication_slots s where slot_name = %s"""
"""Columns that came with version 17 are NULL before it."""
_REASONS = {
    "rows_removed": "has removed rows of its catalogue that the slot {0} needed (is hot_standby_feedback off?)",
    "wal_level_insufficient": "gave up the slot {0}, because wal_level was not logical on the primary",
    "idle_timeout": "gave up the slot {0}, because nobody read it for longer than idle_replication_slot_timeout",
}
"""What has become of a slot, by ``invalidation_reason``; else its log is gone."""
_LOG_END = "case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_flush_lsn() end"


class SlotInUseError(Retriable):
    """Another session reads the slot, perhaps one that is about to end."""


class ReplicaError(Retriable):
    """The server is a replica that cannot do this before it takes over."""


class SlotMovedError(Fatal):
    """The slot begins behind the place that is to be read from."""

    def __init__(self, message: str, confirmed: int) -> None:
        """``confirmed``: where it begins."""
        super().__init__(message)
        self.confirmed = confirmed


@dataclass(frozen=True)
class Slot:
    """The replication slot, as the server has it."""

    confirmed: int
    """Position up to which the server may have forgotten the log."""
    active_pid: int | None
    is_replicas: bool = False
    """Whether the server is a replica that keeps its primary's slot, which nobody reads before it has taken over."""


def failure(error: psycopg.Error, host: str) -> FetchError:
    """By SQLSTATE; a connection that was not made has none, only libpq's text."""
    return refusal(error.sqlstate or "", str(error) or type(error).__name__, host)


def refusal(state: str, text: str, host: str) -> FetchError:
    """What is done about a server's words; ``state``: SQLSTATE, empty where there is none."""
    if not state:
        return postgresql_refusal(text, host)
    message = text.strip().splitlines()[0]
    if state == "55006":
        return SlotInUseError(f"{host}: {message} ({state}); a slot has one reader: is another connector on it?")
    if state == "25006":  # read_only_sql_transaction: of a replica, or a setting that a person must mend
        return ReplicaError(f"{host}: {message} ({state}): it is a replica, or default_transaction_read_only is on")
    if state.startswith(PASSING):
        return Retriable(f"{host}: {message} ({state})")
    return Fatal(f"{host}: {message} ({state})")


def quoted_name(name: str, connection: psycopg.Connection[Any]) -> str:
    """A name as SQL."""
    return composing.Identifier(name).as_string(connection)


@contextmanager
def catalogue(config: PostgresCdcConfig) -> Iterator[Catalogue]:
    """A session for a few questions; raises ``Retriable`` or ``Fatal``, as everything asked in it does."""
    connection = None
    try:
        connection = psycopg.connect(
            **config.session,
            options=f"{SESSION} -c statement_timeout=120000",
            autocommit=True,
            row_factory=dict_row,
            cursor_factory=psycopg.ClientCursor,  # several statements at once, and no types of parameters are guessed
        )
        yield Catalogue(config, connection)
    except psycopg.Error as error:
        raise failure(error, config.database_hostname) from error
    finally:
        if connection is not None:
            connection.close()


class Catalogue:
    """Questions to the server."""

    def __init__(self, config: PostgresCdcConfig, connection: psycopg.Connection[dict[str, Any]]) -> None:
        self._config = config
        self._connection = connection
        self._types: dict[int, dict[str, Any]] = {}
        """What the server says of its own types, by number."""

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[dict[str, Any]]:
        """Of a SELECT."""
        with self._connection.execute(sql.encode(), values or None) as cursor:
            return cursor.fetchall() if cursor.description else []

    @property
    def takes_any_bytes(self) -> bool:
        """Whether the database has no encoding."""
        return self._connection.info.parameter_status("server_encoding") == NO_ENCODING

    @property
    def is_replica(self) -> bool:
        """Whether the server has not taken over yet, if it ever does."""
        return bool(self.rows("select pg_is_in_recovery() as it")[0]["it"])

    def log_end(self) -> int:
        """How far the server's log is written."""
        return int(self.rows(f"select (({_LOG_END}) - '0/0')::int8 as position")[0]["position"])

    def backlog(self) -> int:
        """Bytes of log that the server keeps for the slot; 0 where there is no slot."""
        sql = f"select (({_LOG_END}) - restart_lsn)::int8 as size from pg_replication_slots where slot_name = %s"  # noqa: S608 - our own text
        return sum(row["size"] or 0 for row in self.rows(sql, (self._config.slot_name,)))

    def dropped(self, oids: Collection[int]) -> tuple[frozenset[int], int]:
        """Those among numbers of tables that no table has, and where the log has told all that they ever held.

        Who drops a table waits until those that write to it have committed. What others see may not be on the disk yet.
        """
        sql = """
        select array(select oid::int8 from unnest(%s::oid[]) as asked(oid)
            where not exists (select from pg_class c where c.oid = asked.oid)) as oids,
          (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_insert_lsn() end
            - '0/0')::int8 as position"""
        (found,) = self.rows(sql, (sorted(oids),))
        return frozenset(found["oids"]), found["position"]

    def quoted(self, *names: str) -> str:
        """Names as SQL, with dots between them."""
        return ".".join(quoted_name(name, self._connection) for name in names)

    def types(self, columns: Sequence[RelationColumn]) -> Mapping[str, Type]:
        """Types of columns by name; those that somebody has made are asked for each time, for they may be altered."""
        found, asked = self._types, {column.type_oid for column in columns} - self._types.keys()
        if asked:
            rows = {row["oid"]: row for row in self.rows(TYPES, (sorted(asked),))}
            self._types |= {oid: row for oid, row in rows.items() if oid < _OWN_TYPES}
            found = {**self._types, **rows}
        return {column.name: type_of(found, column.type_oid, column.modifier) for column in columns}

    def keys(self, relation: LogRelation) -> tuple[str, ...]:
        """Columns of the key in the key's order: those of the replica identity, of full rows the primary key's.

        What the log says of the identity goes before what the server says now.
        """
        if relation.identity == "n":
            return ()
        rows = self.rows(_KEY, (relation.oid, relation.identity))
        found, columns = tuple(row["name"] for row in rows), {column.name for column in relation.columns}
        flagged = tuple(column.name for column in relation.columns if column.is_identity)
        if relation.identity == "f":
            return found if set(found) <= columns else ()
        if not set(found) <= columns and (relation.schema, relation.name) not in self.keyed_tables():
            return ()  # the rest of the key tells no rows apart
        return found if set(found) == set(flagged) else flagged

    def relation(self, schema: str, name: str) -> LogRelation | None:
        """A table as the log would tell it now: with the columns that the publication has of it."""
        found = self.rows(_TABLE, (schema, name))
        if not found:
            return None
        published = [row["columns"] for row in self.rows(_PUBLISHED, (self._config.publication_name, schema, name))]
        oid, identity = found[0]["oid"], found[0]["identity"]
        keys = {row["name"] for row in self.rows(_KEY, (oid, identity))}
        columns = tuple(
            RelationColumn(row["name"], row["type_oid"], row["modifier"], identity == "f" or row["name"] in keys)
            for row in self.rows(_COLUMNS, (oid,))
            if not published or published[0] is None or row["name"] in published[0]
        )
        return LogRelation(oid, schema, name, identity, columns)

    def source(self, schema: str, name: str) -> str:
        """What is read of a table, as SQL: rows as the log has them, under the name ``r``.

        Neither those of tables that inherit from it, nor those that the publication's filter leaves out.
        """
        found = self.rows(_PUBLISHED, (self._config.publication_name, schema, name))
        is_whole = bool(found) and found[0]["kind"] == "p"  # the partitions have its rows
        table = f"{'' if is_whole else 'only '}{self.quoted(schema, name)}"
        condition = found[0]["filter"] if found else None
        return f"(select * from {table} where {condition}) as r" if condition else f"{table} as r"  # noqa: S608 - the server's own text

    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of the tables that the publication has and the config's lists mean, by name."""
        sql = "select schemaname::text as schema, tablename::text as name from pg_publication_tables where pubname = %s"
        found = self.rows(f"{sql} order by 1, 2", (self._config.publication_name,))
        return [(row["schema"], row["name"]) for row in found if takes_table(self._config, row["schema"], row["name"])]

    def keyed_tables(self) -> set[tuple[str, str]]:
        """Schema and name of all tables with a key."""
        return {(row["schema"], row["name"]) for row in self.rows(_KEYED, (self._config.publication_name,))}

    def next_transaction(self) -> int:
        """The number that no transaction has yet, not even one that runs."""
        sql = "select pg_snapshot_xmax(pg_current_snapshot())::text as number"
        return int(self.rows(sql)[0]["number"])

    def listed_tables(self) -> list[tuple[str, str]]:
        """Tables of the database that the lists mean, whether or not they are published."""
        sql = (
            "select n.nspname::text as schema, c.relname::text as name from pg_class c join pg_namespace n "
            "on n.oid = c.relnamespace where c.relkind = 'r' and c.relpersistence = 'p' "
            "and n.nspname <> 'information_schema' and n.nspname !~ '^pg_' order by 1, 2"
        )
        found = self.rows(sql)
        return [(row["schema"], row["name"]) for row in found if takes_table(self._config, row["schema"], row["name"])]

    def slot(self) -> Slot | None:
        """The connector's slot; raises ``Fatal`` where it is of no use."""
        name = self._config.slot_name
        found = self.rows(_SLOT, (name,))
        if not found:
            return None
        row = found[0]
        if row["plugin"] != "pgoutput" or row["database"] != self._config.database_dbname:
            told = f"the slot {name} is of plugin {row['plugin']} and database {row['database']}"
            raise Fatal(f"{told}: name another in slot.name")
        if row["wal_status"] == "lost":
            told = _REASONS.get(row["reason"] or "", "has removed log that the slot {0} needed").format(name)
            raise Fatal(f"the server {told}. {choices(name)}")
        return Slot(row["confirmed"] or 0, row["active_pid"], is_replicas=bool(row["is_replicas"]))

    def demand_log(self, needed: int) -> None:
        """See that the log can be read from a stored offset on without a hole; raises ``Fatal``, or ``Retriable``."""
        config, slot = self._config, self.slot()
        told = choices(config.slot_name)
        if slot is None and self.is_replica:
            raise ReplicaError(f"{config.database_hostname} is a replica, and has no slot {config.slot_name}")
        if slot is None:
            why = "there is none: it was dropped, or the server is a replica that took over without it"
            raise Fatal(f"the slot {config.slot_name} is needed from {position_text(needed)} on, and {why}. {told}")
        if slot.is_replicas:
            raise Retriable(f"this replica has not taken over: it keeps the slot {config.slot_name} for that")
        if slot.confirmed > needed:
            raise SlotMovedError(
                f"the slot {config.slot_name} begins at {position_text(slot.confirmed)}, and "
                f"{position_text(needed)} is needed: somebody else has read it. {told}",
                slot.confirmed,
            )
        end = self.log_end()
        if end < needed:
            # From here the server would send nothing before it has written as much again, and leave all of that out.
            where = f"the server's log ends at {position_text(end)}, before the offset's {position_text(needed)}"
            if self.is_replica:
                raise Retriable(f"{where}: this replica is behind")
            raise Fatal(f"{where}: it is another server, or one made from an older backup or replica. {told}")
        if not self.publications():
            raise Fatal(f"there is no publication {config.publication_name} any more. {told}")

    def publications(self) -> list[dict[str, Any]]:
        """The publication, if there is one: whether it is of all tables, and whether the user owns it."""
        sql = (
            "select puballtables as is_all, pg_has_role(pubowner, 'USAGE') as is_own from pg_publication "
            "where pubname = %s"
        )
        return self.rows(sql, (self._config.publication_name,))

    def publish(self) -> None:
        """Make the publication where there is none, by ``publication.autocreate.mode``; raises ``Fatal``."""
        config = self._config
        if self.publications():
            self.publish_tables()
            return
        sql = self.publication_sql()
        if config.publication_autocreate_mode == "disabled":
            raise Fatal(f"there is no publication {config.publication_name}. Run: {sql}")
        told = f"COMMENT ON PUBLICATION {self.quoted(config.publication_name)} IS '{made_for(config.slot_name)}'"
        self._published(sql, f"{sql}; {told}")  # in one transaction, as all that is sent together

    def _published(self, sql: str, run: str) -> None:
        try:
            self.rows(run)
        except _MADE_BY_ANOTHER:
            pass
        except psycopg.errors.InsufficientPrivilege as error:
            raise Fatal(f"{str(error).splitlines()[0]}. {RUN_BY_ANOTHER}: {sql}") from error

    def publish_tables(self, but: Collection[str] = ()) -> None:
        """Add the tables of the lists to a publication that is ``filtered``, but for some ``schema.table``."""
        found = self.publications()
        if self._config.publication_autocreate_mode != "filtered" or not found or found[0]["is_all"]:
            return
        for schema, table in self.unpublished():
            if f"{schema}.{table}" not in but:
                self._published(sql := self.adding_sql((schema, table)), sql)

    def unpublished(self) -> list[tuple[str, str]]:
        """Tables of the lists that the publication has not, neither by name nor as a partition."""
        members = self.rows(_MEMBERS, (self._config.publication_name,))
        published = {*self.tables(), *((row["schema"], row["name"]) for row in members)}
        return [table for table in self.listed_tables() if table not in published]

    def adding_sql(self, *tables: tuple[str, str]) -> str:
        """What adds them to the publication."""
        names = ", ".join(self.quoted(*table) for table in tables)
        return f"ALTER PUBLICATION {self.quoted(self._config.publication_name)} ADD TABLE {names}"

    def publication_sql(self) -> str:
        """What makes the publication; raises ``Fatal`` where there is no table for it."""
        begun = f"CREATE PUBLICATION {self.quoted(self._config.publication_name)} FOR"
        if self._config.publication_autocreate_mode == "all_tables":
            return f"{begun} ALL TABLES"
        tables = [self.quoted(*table) for table in self.listed_tables()]
        if not tables:
            raise Fatal("there is no table that table.include.list and the other lists mean")
        return f"{begun} TABLE {', '.join(tables)}"


def takes_table(config: PostgresCdcConfig, schema: str, table: str) -> bool:
    """Whether the lists of schemas and tables mean it."""
    in_schema = NameFilter(config.schema_include_list, config.schema_exclude_list).takes(schema)
    return in_schema and NameFilter(config.table_include_list, config.table_exclude_list).takes(f"{schema}.{table}")


def made_for(slot: str) -> str:
    """Comment on a publication that was made by the connector of this slot."""
    return f"made by headrace for the slot {slot}"


def choices(slot: str) -> str:
    """What a person may do where the log has a hole, which nothing may bridge silently."""
    return (
        "Changes may be missing since then. Either read the tables anew: delete the connector's offsets (DELETE "
        f"/connectors/<name>/offsets while it is stopped), run SELECT pg_drop_replication_slot('{slot}') where the "
        "slot is still there, and start it with snapshot.mode=initial; or go on with a hole: the same with "
        "snapshot.mode=no_data."
    )
