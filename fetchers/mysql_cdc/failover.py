"""Another server than the one that was read: a replica that was promoted, another address behind the same name.

Files and positions of two servers have nothing to do with each other; what they share are the GTIDs of transactions. So
the log of another server is asked for by the GTIDs that were read, from then on for good: its order may be another one.
MySQL sends what is not in a set of them (``COM_BINLOG_DUMP_GTID``), and knows by itself only whether its *own*
transactions were read; the others are compared here. MariaDB looks for the last transaction of each domain in its log.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import replace

from fetchers.mysql_cdc.places import GtidSet, Place
from fetchers.sdk import Fatal
from fetchers.toolkit.mysql import MySqlConnection
from fetchers.toolkit.mysql_texts import text_literal

CHOICES = (
    "Go on at a server that has them, or forget the offset (DELETE /connectors/NAME/offsets) so that "
    "snapshot.mode=initial reads all rows anew"
)
_BY_GTIDS = 4
"""The flag of ``COM_BINLOG_DUMP_GTID`` that its set is heeded."""
_NAMED_MAX = 200


async def at_this_server(connection: MySqlConnection, place: Place, end: Place) -> Place:
    """The stored place as this server has it; ``end``: of its log. Raises ``Fatal`` where it has none."""
    same = place.log_of == end.log_of if place.log_of else place.server_id in (0, end.server_id)
    if same and not place.is_by_gtids:
        if not connection.is_mariadb:
            await _compare_log(connection, place)
        elif place.log_of:
            await _compare_place(connection, place)
        return replace(place, server_id=end.server_id, log_of=end.log_of)
    if not same:
        was = place.log_of or place.server_id
        told = f"the stored place is one of the server {was}, and this is {end.log_of}: files and positions of two "
        told += "servers have nothing to do with each other"
        if not place.gtids.text:
            raise Fatal(f"{told}, and no GTIDs are stored. {CHOICES}")
        if place.is_inside:
            raise Fatal(
                f"{told}, and part of a transaction is delivered, behind the GTIDs {place.gtids.text[:_NAMED_MAX]}. Go "
                'back to the first server; or take "delivered", "until", "tables", "event" and "row" out of the offset '
                "(PATCH /connectors/NAME/offsets): then that transaction comes again from its beginning"
            )
        if place.prepared:
            xids = "; ".join(xid for xid, _ in place.prepared)[:_NAMED_MAX]
            raise Fatal(
                f"{told}, and XA transactions were prepared there whose end was not read ({xids}). Go back to the "
                'first server until they have ended. Where they were rolled back, take "prepared" out of the offset '
                "(PATCH /connectors/NAME/offsets). Where they are committed here, their rows would be missing: "
                "forget the offset (DELETE /connectors/NAME/offsets) so that snapshot.mode=initial reads all rows anew"
            )
        place = Place(
            "",
            4,
            place.gtids,
            server_id=end.server_id,
            seconds=place.seconds,
            log_of=end.log_of,
            is_by_gtids=True,
            is_unlisted=place.is_unlisted,
        )
    if not connection.is_mariadb:
        await _compare(connection, place.gtids)
    return place


async def _compare_place(connection: MySqlConnection, place: Place) -> None:
    """Whether the log of this MariaDB has at the place what it had there: it has not after ``RESET MASTER``.

    Of MySQL its refusal of such a place is all that is known without GTIDs, and ``_compare_log`` with them.
    """
    file, position = text_literal(place.file), place.position
    (row,) = await connection.rows(f"SELECT binlog_gtid_pos({file}, {position}) AS gtids")
    here, stored = (_by_domain(text) for text in (row["gtids"], place.gtids.text))
    for domain in here.keys() & stored.keys():
        if here[domain] != stored[domain]:
            raise Fatal(
                f"{connection.host}: the log at {place.file}:{place.position} is behind the transaction {here[domain]} "
                f"and was behind {stored[domain]} when it was read: it was begun anew, as by RESET MASTER. {CHOICES}"
            )


async def _compare_log(connection: MySqlConnection, place: Place) -> None:
    """Whether this MySQL still knows of all that was read from it: not where it was made anew from an older backup.

    Its files have the names of those that were read, and it gives out whatever they have behind a position.
    """
    if not place.gtids.text:
        return
    read = text_literal(place.gtids.text)
    (row,) = await connection.rows(f"SELECT GTID_SUBTRACT({read}, @@global.gtid_executed) AS missing")
    if row["missing"]:
        raise Fatal(
            f"{connection.host}: this server does not know of the transactions {row['missing'][:_NAMED_MAX]} any more, "
            "which were read from it: it was made from an older backup, or its log was begun anew (RESET MASTER). "
            f"{CHOICES}"
        )


def _by_domain(gtids: object) -> dict[str, str]:
    return {text.split("-")[0]: text for text in str(gtids or "").split(",") if text}


async def _compare(connection: MySqlConnection, gtids: GtidSet) -> None:
    """Whether this MySQL has read what was read, and still has what was not."""
    read = text_literal(gtids.text)
    (row,) = await connection.rows(
        f"SELECT @@global.gtid_mode AS mode, GTID_SUBTRACT({read}, @@global.gtid_executed) AS missing, "
        f"GTID_SUBTRACT(@@global.gtid_purged, {read}) AS purged"
    )
    host = connection.host
    if row["mode"] != "ON":
        raise Fatal(f"{host}: this server has no GTIDs (gtid_mode={row['mode']}), by which alone it can be gone on")
    if row["missing"]:
        raise Fatal(
            f"{host}: this server does not have the transactions {row['missing'][:_NAMED_MAX]}, which were read from "
            f"another one: what it has in their place is not known. {CHOICES}"
        )
    if row["purged"]:
        raise Fatal(
            f"{host}: this server has removed the transactions {row['purged'][:_NAMED_MAX]} from its log, which were "
            f"not read yet. {CHOICES}. Keep logs longer: binlog_expire_logs_seconds"
        )


def dump_by_gtids(gtids: GtidSet, server_id: int) -> bytes:
    """The body of ``COM_BINLOG_DUMP_GTID``: flags, number, no file, its position, and the set."""
    ranges = gtids.ranges()
    encoded = struct.pack("<Q", len(ranges))
    for source, found in ranges.items():
        encoded += uuid.UUID(source).bytes + struct.pack("<Q", len(found))
        encoded += b"".join(struct.pack("<QQ", begin, last + 1) for begin, last in found)
    return struct.pack("<HIIQI", _BY_GTIDS, server_id, 0, 4, len(encoded)) + encoded


def refused_gtids(host: str, gtids: GtidSet, told: str) -> Fatal:
    """What the server's refusal of these GTIDs means."""
    return Fatal(
        f"{host}: this server cannot go on behind the GTIDs {gtids.text[:_NAMED_MAX]}: it does not have them, or it "
        f"has removed from its log what comes behind them ({told}). {CHOICES}"
    )
