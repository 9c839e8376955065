"""Sessions that speak the replication protocol: the slot that is made by one, and the stream of its log.

The server hears from here of nothing but what is committed in Kafka: neither how far its log has gone nor that it asked
makes it forget anything. Facts: the chapter "Streaming Replication Protocol" of PostgreSQL's manual, for the messages;
libpq's chapters "Functions Associated with the COPY Command" and "Asynchronous Command Processing".
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import repeat, starmap, takewhile
from operator import itemgetter
from threading import Lock
from typing import Any

import psycopg
import psycopg.errors
from psycopg import pq

from fetchers.postgres_cdc.catalogue import ReplicaError, choices, failure, quoted_name, refusal
from fetchers.postgres_cdc.columns import SESSION
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.history import demand_log, history
from fetchers.postgres_cdc.messages import Messages
from fetchers.postgres_cdc.pgoutput import POSTGRES_EPOCH_MICROS
from fetchers.postgres_cdc.place import Origin, Place, position_text, read_position
from fetchers.sdk import Disconnected, Fatal, Retriable
from fetchers.toolkit.postgres_texts import AS_IT_IS, NO_ENCODING

STATUS_SECONDS_MAX = 10.0
"""Between two signs of life; a quarter of the server's ``wal_sender_timeout`` where that is less."""
LOCK_SECONDS = 0.02
_TIMEOUT = b"select setting::int from pg_settings where name = 'wal_sender_timeout'"
_STATUS_FORM = struct.Struct(">cQQQqB")
FAILOVER_VERSION = 170_000
"""Of the server, from which on a slot may be one that replicas keep."""
_NOT_KEPT = """
select 1 from pg_replication_slots s where slot_name = %s and active_pid is null
  and not (to_jsonb(s) ->> 'failover')::bool"""
_NOT_SUPPORTED = "0A000"
"""``feature_not_supported``: a replica before version 16 decodes no log (``CheckLogicalDecodingRequirements`` in the
server's ``logical.c``). It passes when the replica takes over."""
_SEGMENT_REMOVED = "58P01"
"""``undefined_file``: of a stream, that a segment of the log is gone which the slot needs (``WalSndSegmentOpen`` in the
server's ``walsender.c``). It does not come back, and the view of slots may call the slot whole."""

_LEAVES_OUT = "55000"
"""``object_not_in_prerequisite_state``: from version 18 on a warning, where it was an error, of a publication that was
dropped, or made later than what is decoded: its changes are left out (``LoadPublications`` in ``pgoutput.c``)."""
_OPTIONS = f"{SESSION} -c client_min_messages=warning"


def replication_connection(config: PostgresCdcConfig) -> psycopg.Connection[Any]:
    """A session that speaks the replication protocol."""
    return psycopg.connect(
        **config.session, options=_OPTIONS, replication="database", autocommit=True, cursor_factory=psycopg.ClientCursor
    )


@contextmanager
def replication_session(config: PostgresCdcConfig) -> Iterator[psycopg.Connection[Any]]:
    """The same for a few questions; raises ``Retriable`` or ``Fatal``, as everything asked in it does."""
    connection = None
    try:
        connection = replication_connection(config)
        yield connection
    except psycopg.Error as error:
        raise failure(error, config.database_hostname) from error
    finally:
        if connection is not None:
            connection.close()


@contextmanager
def created_slot(config: PostgresCdcConfig) -> Iterator[tuple[int, str, Origin]]:
    """Make the slot: where its log begins, and the name of the snapshot of just that moment, while this is open."""
    with replication_session(config) as connection:
        here = history(connection)
        name = quoted_name(config.slot_name, connection)
        is_kept = config.slot_failover and not here.is_replica and connection.info.server_version >= FAILOVER_VERSION
        how = "(SNAPSHOT 'export', FAILOVER)" if is_kept else "EXPORT_SNAPSHOT"
        sql = f"CREATE_REPLICATION_SLOT {name} LOGICAL pgoutput {how}"
        try:
            ((_, position, snapshot, _),) = connection.execute(sql.encode()).fetchall()
        except psycopg.errors.FeatureNotSupported as error:
            if here.is_replica:  # as for _NOT_SUPPORTED
                raise ReplicaError(f"{config.database_hostname}: {str(error).splitlines()[0]}") from error
            raise
        yield read_position(position), snapshot, here.origin


class Replication:
    """The stream of a slot's log over a connection of its own; any thread may call, and no call waits for the server.

    Raises ``psycopg.Error``, ``Retriable`` or ``Fatal``.
    """

    def __init__(self, config: PostgresCdcConfig, place: Place, origin: Origin) -> None:
        """Connect, and have the server send its log from ``place`` on; this alone waits for it.

        ``origin``: of the place. Whether the server has the log from there on is asked in the session that reads it: an
        earlier one may have been with another server, and a slot that stands further is gone on from without a word.
        """
        self._config = config
        self._lock = Lock()
        self._flushed = 0
        """What the server was told to forget."""
        self.heard = 0
        """Up to where the server has sent all that it has, by its own words."""
        self._is_over = False
        self._lost: psycopg.OperationalError | None = None
        self._left_out = ""
        """What the server has said of changes that it does not send."""
        self._connection = connection = replication_connection(config)
        self._libpq = connection.pgconn
        connection.add_notice_handler(self._heed)
        try:
            self.status_seconds = self._start(place, origin)
            self._descriptor = os.dup(self._libpq.socket)
        except BaseException:  # an interrupt too: nobody else knows of the session yet
            connection.close()
            raise

    def _start(self, place: Place, origin: Origin) -> float:
        """Seconds between two signs of life."""
        ((milliseconds,),) = self._connection.execute(_TIMEOUT).fetchall()
        here = demand_log(self._connection, self._config, place, origin)
        self.origin = here.origin
        """Of all that comes."""
        slot = quoted_name(self._config.slot_name, self._connection)
        # One that is being read is left alone: the server would wait for its reader, for ever perhaps.
        if (
            self._config.slot_failover
            and not here.is_replica
            and self._connection.execute(_NOT_KEPT.encode(), (self._config.slot_name,)).fetchall()
        ):
            self._connection.execute(f"ALTER_REPLICATION_SLOT {slot} (FAILOVER)".encode())
        publication = quoted_name(self._config.publication_name, self._connection).replace("'", "''")
        if self._connection.info.parameter_status("server_encoding") == NO_ENCODING:
            self._connection.execute(AS_IT_IS.encode())
        found = self._libpq.exec_(
            f"START_REPLICATION SLOT {slot} LOGICAL {position_text(place.start)} "
            f"(proto_version '1', publication_names '{publication}')".encode()
        )
        if found.status != pq.ExecStatus.COPY_BOTH:
            raise self._ended(found, is_replica=here.is_replica)
        self._libpq.nonblocking = 1
        return min(STATUS_SECONDS_MAX, milliseconds / 4000 or STATUS_SECONDS_MAX)

    def fileno(self) -> int:
        """A descriptor that is readable when something has come that ``receive`` has not seen, such as the end.

        It is our own until ``close``: libpq closes its own at once when it finds the connection lost, and the number
        could be another connection's before the event loop has let go of it.
        """
        return self._descriptor

    def receive(self, *, count_max: int, bytes_max: int) -> Messages:
        """What has come, about so much of it; nothing: there is no more now. Keepalives are heeded."""
        with self._lock:
            found = self._received(count_max, bytes_max)
            for position, asks in found.keepalives:
                self.heard = max(self.heard, position)
                if asks:
                    # A server that shuts down asks until all that it has sent is flushed. It is not; so it hears only
                    # that it has come: 0 is the protocol's word for a position that is not known.
                    self._send(self._flushed if self._flushed >= position else 0)
            return found

    def _received(self, count_max: int, bytes_max: int) -> Messages:
        runs: list[bytes] = []
        lengths: list[int] = []
        size, has_read = 0, False
        while size < bytes_max and len(lengths) < count_max and not self._is_over:
            if found := self._taken():
                lengths += map(len, found)
                runs.append(b"".join(found))
                size, has_read = size + len(runs[-1]), False
            elif self._lost is not None:
                self._is_over = True
            elif has_read:
                break
            else:
                self._has_read()
                has_read = True
        if self._left_out:  # somewhere between the messages that were taken: none of them is delivered
            raise Fatal(f"{self._config.database_hostname}: {self._left_out}. {choices(self._config.slot_name)}")
        if self._is_over and not lengths and (not self._has_read() or not self._libpq.is_busy()):
            raise self._ended(self._libpq.get_result())
        return Messages(b"".join(runs), lengths)

    def _heed(self, notice: psycopg.errors.Diagnostic) -> None:
        """Called by psycopg, while messages are read."""
        if notice.sqlstate == _LEAVES_OUT and self._config.publication_name in (notice.message_primary or ""):
            self._left_out = f"{notice.message_primary} ({notice.sqlstate}): {notice.message_detail}"

    def _taken(self) -> list[memoryview]:
        """The messages that libpq has read as a whole, with no line of Python for each.

        What it gives is empty where there is no more now, and at the end of the stream, behind which it refuses.
        """
        try:
            return list(takewhile(len, map(itemgetter(1), starmap(self._libpq.get_copy_data, repeat((1,))))))
        except psycopg.OperationalError:
            self._is_over = True
            return []

    def _has_read(self) -> bool:
        """Read from the socket; False: the connection is lost, and what came before, such as why, can yet be taken."""
        try:
            self._libpq.consume_input()
        except psycopg.OperationalError as error:
            self._lost = self._lost or error
        return self._lost is None

    def _ended(self, result: Any, *, is_replica: bool = False) -> Exception:
        """Why there is no stream (any more)."""
        host = self._config.database_hostname
        if self._lost is not None and (result is None or result.status == pq.ExecStatus.COPY_BOTH):
            return failure(self._lost, host)
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            return Disconnected(f"{host}: the server has ended its log; it is being shut down")
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        if state == _NOT_SUPPORTED and is_replica:
            return Retriable(f"{host}: {result.get_error_message().strip()} ({state}): this replica has not taken over")
        if state == _SEGMENT_REMOVED:
            message = result.get_error_message().strip().splitlines()[0]
            return Fatal(f"{host}: {message} ({state}). {choices(self._config.slot_name)}")
        return refusal(state, result.get_error_message(), host)

    def tell(self, flushed: int, *, waits: bool = True) -> bool:
        """Let the server forget its log up to there, and see that somebody reads it.

        False: another thread uses the connection just now, for a moment, and this one is not to wait.
        """
        if not self._lock.acquire(blocking=waits):
            return False
        try:
            self._flushed = max(self._flushed, flushed)
            self._send(self._flushed)
        finally:
            self._lock.release()
        return True

    @contextmanager
    def telling(self, flushed: Callable[[], int]) -> Iterator[None]:
        """Tell of oneself from time to time, on the event loop, whatever the task waits for meanwhile, such as Kafka.

        ``flushed``: what is committed in Kafka. Nobody reads what the server sends while the task waits, and so nobody
        would see that it asks.
        """
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        def tell() -> None:
            nonlocal timer
            is_told = self.tell(flushed(), waits=False)
            timer = loop.call_later(self.status_seconds if is_told else LOCK_SECONDS, tell)

        timer = loop.call_later(self.status_seconds, tell)
        try:
            yield
        finally:
            timer.cancel()

    def _send(self, flushed: int) -> None:
        """Send a status; where that fails the stream is over, and only ``receive`` learns from the server why.

        Its words may have come already, before or behind log that nobody has taken yet.
        """
        now = time.time_ns() // 1000 - POSTGRES_EPOCH_MICROS
        written = max(self.heard, self._flushed)
        with suppress(psycopg.OperationalError):
            self._libpq.put_copy_data(_STATUS_FORM.pack(b"r", written, flushed, flushed, now, 0))
            self._libpq.flush()

    def close(self) -> None:
        """End the session."""
        with self._lock, suppress(psycopg.Error):
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
            self._connection.close()
