"""What a deleted connector takes away from its server: the slot, and the publication if it has made that itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import psycopg
from psycopg.rows import dict_row

from fetchers.postgres_cdc.catalogue import Catalogue, SlotInUseError, made_for
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.history import demand_server, history
from fetchers.postgres_cdc.place import position_text, read_origin, read_place
from fetchers.postgres_cdc.replication import replication_session
from fetchers.sdk import Fatal, FetchContext, Retriable

STATEMENT_SECONDS_MAX = 15
CALL_SECONDS_MAX = 50.0
_SLOT = """
select plugin, database::text as database, active_pid, (confirmed_flush_lsn - '0/0')::int8 as confirmed
from pg_replication_slots where slot_name = %s"""
_PUBLICATION = """
select obj_description(oid, 'pg_publication') as told,
  (select count(*) from pg_replication_slots where plugin = 'pgoutput' and database = current_database()) as readers
from pg_publication where pubname = %s"""


async def take_away(config: PostgresCdcConfig, context: FetchContext, others: Sequence[Mapping[str, str]]) -> bool:
    """See ``SourceConnector.on_deleted``; what is told of a failure has the SQL that does it by hand.

    ``config``: with addresses that may be connected to.
    """
    if not config.slot_drop_on_delete:
        return False
    name = config.slot_name
    by_hand = (
        f"Where nobody needs it, run SELECT pg_drop_replication_slot('{name}'); and forget the offsets: create the "
        "connector again as STOPPED, and DELETE /connectors/<name>/offsets"
    )

    def dropped() -> bool:
        for other in others:
            if (shares := _shares_slot(config, other)) is None:
                raise Retriable(f"connector {other.get('name')} may read it too: its variables have no values just now")
            if shares:
                raise Fatal(f"connector {other.get('name')} reads it too")
        offset = context.offset_of(config.source_partition)
        place = read_place(offset)
        with replication_session(config) as session:
            session.execute(f"set statement_timeout = '{STATEMENT_SECONDS_MAX}s'".encode())
            if place is not None:
                demand_server(history(session), read_origin(offset), place)
            session.row_factory = dict_row
            server = Catalogue(config, session)
            _drop_slot(server, config, None if place is None else place.start)
            _drop_publication(server, config)
        return place is not None

    try:
        return await context.run_blocking(dropped, subject="server", seconds_max=CALL_SECONDS_MAX)
    except Retriable as error:
        raise Retriable(f"the slot {name} is not dropped: {error}. {by_hand}") from error
    except (Fatal, ValueError) as error:
        raise Fatal(f"the slot {name} is not dropped: {error}. {by_hand}") from error


def _drop_slot(server: Catalogue, config: PostgresCdcConfig, needed: int | None) -> None:
    """``needed``: where the slot should stand at most; None: no offset says that it was ever this connector's."""
    found = server.rows(_SLOT, (config.slot_name,))
    if not found:
        return
    (slot,) = found
    if needed is None or (slot["plugin"], slot["database"]) != ("pgoutput", config.database_dbname):
        raise Fatal("nothing says that it is this connector's")
    if (slot["confirmed"] or 0) > needed:
        stands = f"it stands at {position_text(slot['confirmed'])}, and this connector at {position_text(needed)}"
        raise Fatal(f"somebody else has read it: {stands}")
    if slot["active_pid"]:
        raise SlotInUseError(f"it is being read, by process {slot['active_pid']}")
    server.rows("select pg_drop_replication_slot(%s)", (config.slot_name,))


def _drop_publication(server: Catalogue, config: PostgresCdcConfig) -> None:
    """The connector's own, unless another slot of the database may have need of it: the server does not say which."""
    found = server.rows(_PUBLICATION, (config.publication_name,))
    if found and found[0]["told"] == made_for(config.slot_name) and not found[0]["readers"]:
        # It may be another role's by now, say. Without a slot it holds back nothing; the slot is gone, and that counts.
        with suppress(psycopg.Error):
            server.rows(f"drop publication {server.quoted(config.publication_name)}")


def _shares_slot(config: PostgresCdcConfig, other: Mapping[str, str]) -> bool | None:
    """Whether another connector's config names the same slot; None: it does if a variable without a value says so."""
    same = {
        "slot.name": (config.slot_name, "debezium"),
        "database.hostname": (config.database_hostname, ""),
        "database.port": (str(config.database_port), "5432"),
        "database.dbname": (config.database_dbname, ""),
    }
    told = {key: (other.get(key, default).strip(), mine) for key, (mine, default) in same.items()}
    if any(value != mine and "${" not in value for value, mine in told.values()):
        return False
    return True if all(value == mine for value, mine in told.values()) else None
