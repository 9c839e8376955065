"""The server's log over the replication protocol: raw messages, gathered by relation and cut between transactions.

All calls block, one at a time (``FetchContext.run_blocking``), and none of them waits for the server to have something:
that is ``readable``, on the event loop.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import psycopg

from fetchers.postgres_cdc.catalogue import failure
from fetchers.postgres_cdc.config import PostgresCdcConfig
from fetchers.postgres_cdc.messages import SIZE, Messages, Singles
from fetchers.postgres_cdc.pgoutput import POSTGRES_EPOCH_MICROS, LogRelation, broken, read_relation
from fetchers.postgres_cdc.place import Origin, Place
from fetchers.postgres_cdc.replication import Replication
from fetchers.sdk import Disconnected
from fetchers.toolkit.exclusive_calls import ExclusiveCalls

BATCH_BYTES = 8 * 1024 * 1024
"""Of messages, after which a batch ends with its transaction."""
RECEIVED_MAX = 30_000
"""Messages that are looked at together."""
WHOLE_TIMES = 2
"""Up to so many times a batch's limits a transaction is kept whole."""
_ROW = frozenset(b"IUD")
_BEGIN, _COMMIT, _RELATION, _TRUNCATE = b"BCRT"
_ALL = 1 << 62
"""More changes than any transaction has."""


@dataclass
class Group:
    """Messages of one relation in their order."""

    relation: LogRelation
    messages: list[bytes] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Of each message its number in the batch."""


@dataclass
class Batch:
    """What was read together. Ends with a transaction, unless that is larger than a batch may be."""

    begin: Place
    end: Place
    groups: list[Group]
    positions: list[int]
    """Of each message where it is in the log."""
    firsts: list[int]
    """Of each transaction the number of its first message."""
    transactions: list[tuple[int, int]]
    """Of each its id, and when it committed in microseconds since the epoch."""
    previous_commits: list[int]
    """Of each where the transaction before it ended."""
    ends_transaction: bool

    def transaction_of(self, numbers: Sequence[int]) -> np.ndarray:
        """The place in ``transactions`` of messages."""
        return np.searchsorted(np.asarray(self.firsts), np.asarray(numbers), side="right") - 1


class Framing:
    """Cuts the stream into batches; knows no connection, so that tests can feed it."""

    def __init__(
        self,
        start: Place,
        *,
        rows_max: int,
        takes: Callable[[LogRelation], bool],
        has_key_still: Callable[[LogRelation], bool] = lambda _: True,
    ) -> None:
        """``rows_max``: messages after which a batch ends with its transaction; ``takes``: which tables are wanted.

        ``has_key_still``: whether a table that is described again in the same words has the key that its rows get.
        """
        self.place = start
        """After the last transaction that has ended."""
        self._start = start
        self._rows_max = rows_max
        self._takes = takes
        self._has_key_still = has_key_still
        self._relations: dict[bytes, tuple[bytes, LogRelation | None]] = {}
        self._waiting: bytes | None = None
        """A Relation message that changes what is gathered, and so begins the next batch."""
        self._is_open = False
        self._open = (0, 0)
        self._final = self._event = 0
        """Of the open transaction: where it will have committed, and how many changes of it there were."""
        self._skipped = self._done_skipped = self._seen = self._seen_events = 0
        """Of the open transaction: how many changes are delivered already; of relations that are done; Debezium's."""
        self._is_past, self._has_done = False, bool(start.done)
        self._reset(start)

    def _reset(self, begin: Place) -> None:
        self._from = begin
        self._groups: dict[bytes, Group] = {}
        self._positions: list[int] = []
        self._firsts: list[int] = []
        self._transactions: list[tuple[int, int]] = []
        self._commits: list[int] = []
        self._bytes = 0
        self._began_open = self._is_open
        if self._is_open:
            self._mark_transaction()

    @property
    def oids(self) -> frozenset[int]:
        """Numbers of the tables that the log has described, wanted or not."""
        return frozenset(int.from_bytes(oid, "big") for oid in self._relations)

    def forget(self, oids: Iterable[int]) -> None:
        """Tables of which the log has nothing left. One that gets such a number again is described first."""
        for oid in oids:
            self._relations.pop(oid.to_bytes(4, "big"), None)

    @property
    def has_rows(self) -> bool:
        """Whether anything is gathered."""
        return bool(self._positions)

    @property
    def begun(self) -> Place:
        """Where the batch began."""
        return self._from

    @property
    def is_open(self) -> bool:
        """Whether a transaction is open, or the batch in whose middle the last run ended: neither is to be parted."""
        return self._is_open or self._has_done

    def advance(self, position: int) -> None:
        """Hear from the server that there is nothing up to ``position``; between transactions only."""
        if self._has_done and not self._is_open and not self._start.until_events and position >= self._start.until:
            self._end_done()
        is_inside = not self._is_past and bool(self._start.events or self._start.seen)
        is_between = not (self.is_open or self._positions or is_inside)
        if is_between and position > self.place.commit:
            self.place = Place(position)

    def add_all(self, found: Messages) -> bool:
        """Take messages; True where the batch must be taken before the others are added."""
        while not found.is_over:
            singles = found.singles()
            count = self._together(singles) if singles is not None else 0
            found.at += SIZE * count
            if self._is_full() if count else self.add(*found.next()):
                return True
        return False

    def _together(self, found: Singles) -> int:
        """Take transactions of one change each up to a batch's limits: how many, 0 where they must be added singly."""
        start = self._start
        is_new = int(found.finals.min()) >= start.commit and (self._is_past or not (start.events or start.seen))
        if self._is_open or self._began_open or self._has_done or not is_new:
            return 0
        room = int(np.searchsorted(np.cumsum(found.sizes), BATCH_BYTES - self._bytes)) + 1
        count = max(1, min(len(found.rows), room, self._rows_max - len(self._positions)))
        relations = found.relations[:count]
        oids, firsts = np.unique(relations, return_index=True)
        groups = {int(oid): int(oid).to_bytes(4, "big") for oid in oids[np.argsort(firsts)]}  # as they come one by one
        if any(oid not in self._relations for oid in groups.values()):
            return 0
        is_wanted = np.isin(relations, [one for one, oid in groups.items() if self._relations[oid][1] is not None])
        numbers = len(self._positions) + np.cumsum(is_wanted) - is_wanted
        for one, oid in groups.items():
            if (relation := self._relations[oid][1]) is not None:
                group = self._groups.setdefault(oid, Group(relation))
                which = np.flatnonzero(relations == one)
                rows = found.rows[:count]
                group.messages += rows if len(which) == count else [rows[at] for at in which.tolist()]
                group.numbers += numbers[which].tolist()
        ends = np.maximum(found.ends[:count], start.commit).tolist()
        self._firsts += numbers.tolist()
        self._transactions += zip(found.ids[:count].tolist(), found.committed[:count].tolist(), strict=True)
        self._commits += [self.place.commit, *ends[:-1]]
        self._positions += found.positions[:count][is_wanted].tolist()
        self._bytes += int(found.sizes[:count][is_wanted].sum())
        self._is_past, self._event, self.place = True, 0, Place(ends[-1])
        return count

    def add(self, message: bytes, position: int) -> bool:
        """Take one message; True where the batch must be taken before the next one is added."""
        code = message[0]
        if code in _ROW:
            self._row(message, message[1:5], position)
            return self._is_too_large() or self._is_done_reached()
        if code == _BEGIN:
            self._final, committed, transaction = struct.unpack_from(">QqI", message, 1)
            self._open = (transaction, committed + POSTGRES_EPOCH_MICROS)
            self._is_open, self._event = True, 0
            self._mark_skipped(position)
            self._mark_transaction()
        elif code == _COMMIT:
            (end,) = struct.unpack_from(">Q", message, 10)
            self._is_open, self._event = False, 0
            self.place = Place(max(end, self._start.commit))
            is_reached = self._has_done and not self._start.until_events and end >= self._start.until
            return self._end_done() if is_reached else self._is_full() or self._began_open
        elif code == _RELATION:
            return self._relation(message)
        elif code == _TRUNCATE:
            count = int.from_bytes(message[1:5], "big")
            for at in range(6, 6 + 4 * count, 4):
                self._row(b"T" + message[at : at + 4], message[at : at + 4], position)
            return self._is_too_large() or self._is_done_reached()
        return False

    def _mark_transaction(self) -> None:
        self._firsts.append(len(self._positions))
        self._transactions.append(self._open)
        self._commits.append(self.place.commit)

    def _mark_skipped(self, position: int) -> None:
        """How many changes of the transaction that begins are delivered already."""
        start = self._start
        self._skipped = self._done_skipped = self._seen = 0
        if self._final < start.commit:
            self._skipped = _ALL
        elif not self._is_past:
            self._is_past, self._skipped = True, start.events
            self._seen = start.seen if position <= start.seen < self._final else 0
        if self._has_done:
            self._done_skipped = _ALL if self._final < start.until else start.until_events

    def _row(self, message: bytes, oid: bytes, position: int) -> None:
        self._event += 1
        if self._event <= self._skipped or self._is_seen(position):
            return
        group = self._groups.get(oid)
        if group is None:
            if oid not in self._relations:
                raise broken("a change of a table that it has not described")
            relation = self._relations[oid][1]
            if relation is None:
                return
            group = self._groups[oid] = Group(relation)
        if self._event <= self._done_skipped and group.relation.oid in self._start.done:
            return
        group.messages.append(message)
        group.numbers.append(len(self._positions))
        self._positions.append(position)
        self._bytes += len(message)

    def _is_seen(self, position: int) -> bool:
        if position != self._seen or not self._start.seen_events:
            return position <= self._seen
        self._seen_events += 1
        return self._seen_events <= self._start.seen_events

    def _relation(self, message: bytes) -> bool:
        known = self._relations.get(message[1:5])
        if known is not None and known[0] == message:
            relation = known[1]  # the server repeats itself after whatever may have altered the table
            if relation is None or relation.tells_key or self._has_key_still(relation):
                return False
        if message[1:5] in self._groups:
            self._waiting = message
            return True
        self._know(message)
        return False

    def _know(self, message: bytes) -> None:
        relation = read_relation(message)
        self._relations[message[1:5]] = (message, relation if self._takes(relation) else None)

    def _is_full(self) -> bool:
        is_full = len(self._positions) >= self._rows_max or self._bytes >= BATCH_BYTES
        return is_full and not self._has_done

    def _is_too_large(self) -> bool:
        is_large = len(self._positions) >= WHOLE_TIMES * self._rows_max or self._bytes >= WHOLE_TIMES * BATCH_BYTES
        return is_large and not self._has_done

    def _is_done_reached(self) -> bool:
        """Whether all is read again that pages of other tables had delivered: there the batch ends."""
        if not self._has_done or self._final < self._start.until or self._event < self._start.until_events:
            return False
        return bool(self._start.until_events) and self._end_done()

    def _end_done(self) -> bool:
        self._has_done, self._done_skipped = False, 0
        return True

    def take(self) -> Batch:
        """What is gathered, even if it is nothing."""
        end = Place(self.place.commit, self._event) if self._is_open and self._event else self.place
        batch = Batch(
            self._from,
            end,
            [group for group in self._groups.values() if group.messages],
            self._positions,
            self._firsts,
            self._transactions,
            self._commits,
            ends_transaction=not end.events,
        )
        self._reset(end)
        if self._waiting is not None:
            self._know(self._waiting)
            self._waiting = None
        return batch


class Log:
    """One replication connection that reads the slot."""

    def __init__(self, config: PostgresCdcConfig, framing: Framing, origin: Origin) -> None:
        """Nothing is connected yet. ``origin``: of the place where the framing begins."""
        self._config = config
        self._origin = origin
        self._framing = framing
        self._replication: Replication | None = None
        self._found = Messages()
        """Received, and not in a batch yet."""
        self._told = 0
        self._calls = ExclusiveCalls(self._release)

    def open(self) -> Replication:
        """Connect and start. Raises ``Retriable`` or ``Fatal``."""
        with self._called():
            self._release()
            self._replication = Replication(self._config, self._framing.place, self._origin)
            return self._replication

    @contextmanager
    def _called(self) -> Iterator[None]:
        """Around each call on the connection: errors of the driver are raised as ``Retriable`` or ``Fatal``."""
        try:
            with self._calls.call():
                yield
        except psycopg.Error as error:
            raise failure(error, self._config.database_hostname) from error

    def drain(self, confirmed: int) -> Batch | None:
        """Read what has arrived, up to a batch; None: no transaction is whole yet, or nothing is new.

        ``confirmed``: what is committed in Kafka, of which the server hears.
        """
        framing = self._framing
        with self._called():
            replication = self._replication
            if replication is None:
                raise Disconnected("read before it was opened")
            if confirmed > self._told:
                replication.tell(confirmed)
                self._told = confirmed
            while not self._found.is_over or self._receive(replication):
                if framing.add_all(self._found):
                    return framing.take()
            framing.advance(replication.heard)
            if framing.is_open:
                return None
            return framing.take() if framing.has_rows or framing.place != framing.begun else None

    def _receive(self, replication: Replication) -> bool:
        """Take what has arrived, up to a batch's size; whether that is anything."""
        self._found = Messages()  # before others take its room
        self._found = replication.receive(count_max=RECEIVED_MAX, bytes_max=BATCH_BYTES)
        return not self._found.is_over

    def close(self) -> None:
        """Let go of the connection: at once, or after the call that runs."""
        self._calls.close()

    def _release(self) -> None:
        if self._replication is not None:
            self._replication.close()
        self._replication = None


async def readable(descriptor: int, woken: asyncio.Event, seconds: float) -> None:
    """Wait until the server has sent something, the event is set, or the time is over."""
    loop = asyncio.get_running_loop()
    timer = loop.call_later(seconds, woken.set)
    loop.add_reader(descriptor, woken.set)
    try:
        await woken.wait()
    finally:
        timer.cancel()
        loop.remove_reader(descriptor)
