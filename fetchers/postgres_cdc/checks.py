"""What a server must be set to, and a user be allowed: told with the SQL that mends it.

Facts: the pages "CREATE PUBLICATION" and "ALTER PUBLICATION" of PostgreSQL's manual.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import psycopg

from fetchers.postgres_cdc.catalogue import RUN_BY_ANOTHER, Catalogue, catalogue
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.replication import FAILOVER_VERSION, replication_connection
from fetchers.sdk import Fatal, Finding, Severity
from fetchers.toolkit.name_lists import unmatched_findings
from fetchers.toolkit.refusals import Unreachable, session_finding

_MAKER = """
select rolsuper as is_super, has_database_privilege(current_database(), 'CREATE') as may_create
from pg_roles where rolname = current_user"""
_OWN = """
select pg_has_role(c.relowner, 'USAGE') as is_own from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s"""
_RIGHTS = """
select has_schema_privilege(n.oid, 'USAGE') as may_enter, has_table_privilege(c.oid, 'SELECT') as may_read,
  row_security_active(c.oid) as is_filtered
from pg_class c join pg_namespace n on n.oid = c.relnamespace where n.nspname = %s and c.relname = %s"""
_BARE = """
select n.nspname::text as schema, c.relname::text as name from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and c.relreplident <> 'f' and (c.relreplident = 'n' or not exists (select from pg_index i
  where i.indrelid = c.oid and case when c.relreplident = 'i' then i.indisreplident else i.indisprimary end))"""
"""Tables without a replica identity."""
_PUBLISHES = """
select pubinsert as c, pubupdate as u, pubdelete as d, pubtruncate as t from pg_publication where pubname = %s"""
_WORDS = {"c": "insert", "u": "update", "d": "delete", "t": "truncate"}
_NAMED_MAX = 10
_COLUMNS = """
select a.attname::text as name from pg_attribute a join pg_class c on c.oid = a.attrelid
  join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relname = %s and a.attnum > 0 and not a.attisdropped"""


def checked(config: PostgresCdcConfig) -> list[Finding]:
    """All that can be known before the log is read. Blocks; raises ``Retriable`` for what may pass."""
    found: list[Finding] = []
    try:
        with catalogue(config) as server:
            found += settings_findings(server, config)
            found += _table_findings(server, config)
            found += _failover_findings(server, config)
    except (Fatal, Unreachable) as error:
        found.append(session_finding(error, config.database_hostname))
    return found


def demand(findings: Iterable[Finding]) -> None:
    """Raise ``Fatal`` with the first one."""
    for finding in findings:
        raise Fatal(finding.message)


def settings_findings(server: Catalogue, config: PostgresCdcConfig) -> Iterator[Finding]:
    """Why no slot can be had, or not this one."""
    level = server.rows("show wal_level")[0]["wal_level"]
    if level != "logical":
        told = f"wal_level is {level}. Run: ALTER SYSTEM SET wal_level = logical; and restart the server"
        yield Finding("database.hostname", config.database_hostname, told)
    role = server.rows("select rolreplication or rolsuper as may from pg_roles where rolname = current_user")
    if not (role and role[0]["may"]) and not _may_replicate(config):
        told = f"Role {config.database_user} may not replicate. Run: ALTER ROLE "
        yield Finding("database.user", config.database_user, f"{told}{server.quoted(config.database_user)} REPLICATION")
    try:
        has_slot = server.slot() is not None
    except Fatal as error:
        yield Finding("slot.name", config.slot_name, str(error))
        return
    sql = "select current_setting('max_replication_slots')::int - count(*) as free from pg_replication_slots"
    if not has_slot and server.rows(sql)[0]["free"] <= 0:
        told = (
            "No replication slot is free. Run: SELECT slot_name, active FROM pg_replication_slots; and "
            "SELECT pg_drop_replication_slot('…') for one that nobody uses, or raise max_replication_slots"
        )
        yield Finding("slot.name", config.slot_name, told)


def _failover_findings(server: Catalogue, config: PostgresCdcConfig) -> Iterator[Finding]:
    """Why replicas do not keep the slot, or what the one that takes over may lack."""
    if not config.slot_failover:
        return
    told = ""
    (version,) = server.rows(
        "select current_setting('server_version') as told, current_setting('server_version_num') as n"
    )
    if int(version["n"]) < FAILOVER_VERSION:
        told = f"It has no effect: replicas keep slots from PostgreSQL 17 on, and the server has {version['told']}."
    elif server.is_replica:
        told = "It has no effect while the server is a replica: replicas keep slots of their primary alone."
    elif not server.rows("show synchronized_standby_slots")[0]["synchronized_standby_slots"]:
        told = (
            "Changes may be delivered that the replica that takes over never had, and the task would stop there. Name "
            "the replica's slot: ALTER SYSTEM SET synchronized_standby_slots = '…'; SELECT pg_reload_conf();"
        )
    if told:
        yield Finding("slot.failover", "true", told, Severity.WARNING)


def _may_replicate(config: PostgresCdcConfig) -> bool:
    """By trying: hosted servers give the right by roles of their own."""
    try:
        replication_connection(config).close()
    except psycopg.OperationalError:
        return False
    return True


def _table_findings(server: Catalogue, config: PostgresCdcConfig) -> Iterator[Finding]:
    tables = sorted({*server.listed_tables(), *server.tables()})  # published ones may be partitioned tables
    if not tables:
        yield Finding("table.include.list", ",".join(config.table_include_list), "No table is meant by the lists.")
    lists = {"column.include.list": config.column_include_list, "column.exclude.list": config.column_exclude_list}
    yield from unmatched_findings(lists, _columns(server, tables) if any(lists.values()) else ())
    yield from rights_findings(server, config, tables)
    if tables:
        yield from _publication_findings(server, config)
        yield from _changes_findings(server, config, tables)


def _changes_findings(
    server: Catalogue, config: PostgresCdcConfig, tables: Collection[tuple[str, str]]
) -> Iterator[Finding]:
    """Which changes of rows would not come, and which the server would refuse to whoever makes them."""
    wanted = {code for code in _WORDS if code not in config.skipped_operations}
    for row in server.rows(_PUBLISHES, (config.publication_name,)):
        published = {code for code, is_published in row.items() if is_published}
        if missing := [_WORDS[code] for code in _WORDS if code in wanted - published]:
            all_words = ", ".join(word for code, word in _WORDS.items() if code in wanted | published)
            sql = f"ALTER PUBLICATION {server.quoted(config.publication_name)} SET (publish = '{all_words}')"
            told = f"It does not publish {', '.join(missing)}: these changes never come. {RUN_BY_ANOTHER}: {sql}"
            yield Finding("publication.name", config.publication_name, told, Severity.WARNING)
    without = {(row["schema"], row["name"]) for row in server.rows(_BARE)}
    bare = [server.quoted(*table) for table in tables if table in without]
    if bare:
        told = (
            "Tables without a replica identity: once they are published, the server refuses UPDATE and DELETE on them "
            f"to everybody. Give them a primary key, or run: ALTER TABLE {bare[0]} REPLICA IDENTITY FULL"
        )
        named = ", ".join(bare[:_NAMED_MAX]) + (f" and {len(bare) - _NAMED_MAX} more" if len(bare) > _NAMED_MAX else "")
        yield Finding("table.include.list", named, told, Severity.WARNING)


def rights_findings(
    server: Catalogue, config: PostgresCdcConfig, tables: Iterable[tuple[str, str]]
) -> Iterator[Finding]:
    """Why a snapshot would not see all rows of these tables."""
    user = server.quoted(config.database_user)
    closed: set[str] = set()
    for schema, table in tables:
        for found in server.rows(_RIGHTS, (schema, table)):
            name = server.quoted(schema, table)
            if not found["may_enter"] and schema not in closed:
                closed.add(schema)
                told = f"Run: GRANT USAGE ON SCHEMA {server.quoted(schema)} TO {user}"
                yield Finding("database.user", config.database_user, f"Schema {schema} may not be entered. {told}")
            if not found["may_read"]:
                told = f"Run: GRANT SELECT ON {name} TO {user}"
                yield Finding("database.user", config.database_user, f"{name} may not be read. {told}")
            if found["is_filtered"]:
                told = f"The log has rows that a snapshot would not see. Run: ALTER ROLE {user} BYPASSRLS"
                yield Finding("database.user", config.database_user, f"{name} has row-level security. {told}")


def _columns(server: Catalogue, tables: Iterable[tuple[str, str]]) -> set[str]:
    """Of these tables, as ``schema.table.column``."""
    return {".".join((*table, row["name"])) for table in tables for row in server.rows(_COLUMNS, table)}


def _publication_findings(server: Catalogue, config: PostgresCdcConfig) -> Iterator[Finding]:
    """Whether the publication is there and has the tables, or can be made so at the start."""
    name, mode, published = config.publication_name, config.publication_autocreate_mode, server.publications()
    (maker,) = server.rows(_MAKER)
    if not published:
        sql = server.publication_sql()
        if mode == "disabled":
            yield Finding("publication.name", name, f"There is none of this name. Run: {sql}")
        elif mode == "all_tables" and not maker["is_super"]:
            told = "There is none of this name, and superusers alone make one of all tables. Run as one"
            yield Finding("publication.name", name, f"{told}: {sql}; or set publication.autocreate.mode=filtered")
        elif not (maker["may_create"] and _are_own(server, server.listed_tables())):
            told = "There is none of this name, and who makes it needs CREATE on the database and must own the tables"
            yield Finding("publication.name", name, f"{told}. {RUN_BY_ANOTHER}: {sql}")
    elif not published[0]["is_all"] and (missing := server.unpublished()):
        sql = f"{RUN_BY_ANOTHER}: {server.adding_sql(*missing)}"
        if mode != "filtered":
            told = f"Nothing is read of tables that it has not. {sql}"
            yield Finding("publication.name", name, told, Severity.WARNING)
        elif not (published[0]["is_own"] and _are_own(server, missing)):
            told = f"Tables are missing in it, which only who owns it and them may add. {sql}"
            yield Finding("publication.name", name, told)


def _are_own(server: Catalogue, tables: Iterable[tuple[str, str]]) -> bool:
    return all(row["is_own"] for table in tables for row in server.rows(_OWN, table))
