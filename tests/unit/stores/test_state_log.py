"""The log of a standalone worker holds what is there, not all that ever was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from service.stores.state_log import ClaimMissing, LogRecord, MemoryStateLog


async def test_only_the_newest_record_of_a_key_is_held() -> None:
    """A task that changes its state for years does not fill the memory; offsets go on as in a topic."""
    log = MemoryStateLog("statuses", records=[(b"a", b"0"), (b"b", b"0")])
    heard: list[tuple[bytes | None, bytes | None, int]] = []

    def receive(records: Sequence[LogRecord]) -> None:
        heard.extend((record.key, record.value, record.offset) for record in records)

    await log.start(receive)
    await log.write([(b"a", b"1"), (b"a", b"2")])
    await log.write([(b"c", b"1"), (b"b", None)])
    assert heard == [
        *((b"a", b"0", 0), (b"b", b"0", 1)),
        *((b"a", b"1", 2), (b"a", b"2", 3)),
        *((b"c", b"1", 4), (b"b", None, 5)),
    ]
    await log.stop()
    heard.clear()
    await log.start(receive)
    assert heard == [(b"a", b"2", 3), (b"c", b"1", 4)]


async def test_the_leaders_writes_need_a_claim() -> None:
    """Where there is none, that is all that is wrong: nobody has taken it."""
    log = MemoryStateLog("configs")
    with pytest.raises(ClaimMissing):
        await log.write([(b"a", b"0")], as_leader=True)
    await log.claim_leadership()
    await log.write([(b"a", b"0")], as_leader=True)
