"""What a task that follows a log does where it meets another server, or another task, than it had expected."""

from __future__ import annotations

from fetchers.postgres_cdc.catalogue import ReplicaError, SlotMovedError
from fetchers.postgres_cdc.place import position_text, read_place
from fetchers.sdk import Fatal, FetchContext, FetchError, Partition, Retriable

REPLICA_SECONDS_MAX = 300.0
"""How long a replica that cannot serve is waited for: an address may lead to it some time before it takes over."""


class Doubts:
    """Judges of one connector's errors what only its offsets, or time, can tell."""

    def __init__(self) -> None:
        """None yet."""
        self._replica_since: float | None = None

    def end(self) -> None:
        """Hear that a server serves its log."""
        self._replica_since = None

    async def judged(self, error: FetchError, context: FetchContext, partition: Partition) -> FetchError:
        """What is to be raised for an error; the same where there is no doubt about it."""
        if isinstance(error, SlotMovedError):
            return await _after_last_reader(error, context, partition)
        if not isinstance(error, ReplicaError):
            return error
        now = context.clock.monotonic()
        self._replica_since = now if self._replica_since is None else self._replica_since
        if now - self._replica_since < REPLICA_SECONDS_MAX:
            return error
        return Fatal(
            f"{error}. It was waited for {REPLICA_SECONDS_MAX:.0f} s. Let it take over (SELECT pg_promote()), or "
            "name the primary in database.hostname"
        )


async def _after_last_reader(error: SlotMovedError, context: FetchContext, partition: Partition) -> FetchError:
    """Where the slot has gone on beyond the place: the same, or ``Retriable``.

    An earlier task of the connector may have held the slot until now, not knowing that it was replaced. The server
    hears of nothing that is not stored before: no offset that is read afterwards lies before what it was told by one.
    """
    await context.read_offsets()
    place = read_place(context.offset_of(partition))
    if place is None or place.start < error.confirmed:
        return error
    return Retriable(
        f"an earlier task of this connector has read the slot up to {position_text(error.confirmed)}, and stored "
        f"{position_text(place.start)}: it is gone on from there"
    )
