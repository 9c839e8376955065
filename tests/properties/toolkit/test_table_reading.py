"""A table that is read beside its log, over any history of commits, late visibility and kills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import Offset, Page
from fetchers.sdk import rows as forms
from fetchers.sdk.testing import FakeContext
from fetchers.toolkit.change_events import Changes, ChangeTable
from fetchers.toolkit.change_form import CREATE, DELETE, READ, UPDATE, ChangeForm
from fetchers.toolkit.table_reading import Progress, Stretch, TableReading

KEYS, STRETCH_ROWS = 8, 2
LOG, READING = {"server": "s"}, {"server": "s", "snapshot": "tables"}
TABLE = ChangeTable(
    ChangeForm("s", "model", "db", {"number": forms.INT64}), ("t",), {"id": forms.INT64, "v": forms.INT64}, ["id"]
)


@dataclass
class Server:
    """A table and its log. A commit is in the log at once, and others see it when it is made visible."""

    log: list[tuple[int, int | None]] = field(default_factory=list)
    """Of each commit the key, and its version; None: the row is deleted."""
    unseen: set[int] = field(default_factory=set)
    told: int = 0
    """How many commits the reader has been told."""

    def commit(self, key: int, *, deletes: bool) -> None:
        """One row's change; a session waits for the one that has the row."""
        self.unseen -= {at for at in self.unseen if self.log[at][0] == key}
        self.unseen.add(len(self.log))
        self.log.append((key, None if deletes else len(self.log)))

    def rows(self, upto: int | None = None) -> dict[int, int]:
        """What a session sees; with ``upto``: after so many commits."""
        found: dict[int, int] = {}
        for at, (key, version) in enumerate(self.log[:upto]):
            if at in self.unseen and upto is None:
                continue
            if version is None:
                found.pop(key, None)
            else:
                found[key] = version
        return found

    async def tables(self) -> Mapping[str, bool]:
        """Only one."""
        return {"t": True}

    @property
    def made(self) -> Mapping[str, str]:
        """It is always the same."""
        return {"t": "1"}

    async def stretch(self, table: str, after: Sequence[str]) -> Stretch | None:
        """A few rows."""
        assert table == "t"
        seen = sorted(one for one in self.rows().items() if not after or one[0] > int(after[0]))[:STRETCH_ROWS]
        last = (str(seen[-1][0]),) if len(seen) == STRETCH_ROWS else None
        waits = "a commit" if any(at < self.told for at in self.unseen) else ""
        return Stretch(_page([(READ, key, version) for key, version in seen], {}), last, (len(self.log),), waits)


def _page(events: Sequence[tuple[int, int, int]], offset: Offset) -> Page:
    rows = pa.StructArray.from_arrays([pa.array([one[at] for one in events], pa.int64()) for at in (1, 2)], ["id", "v"])
    codes = np.array([one[0] for one in events], np.uint8)
    gone = pa.array(codes == DELETE)
    after = pa.StructArray.from_arrays(rows.flatten(), ["id", "v"], mask=gone)
    before = pa.StructArray.from_arrays(rows.flatten(), ["id", "v"], mask=pa.array(codes != DELETE))
    return TABLE.page(Changes(codes, before, after, 0, {"number": 1}), handled_us=0, offset=offset, partition=LOG)


@dataclass
class Consumer:
    """What is in Kafka: the state by key, and the newest version that was shown of each."""

    state: dict[int, int] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)

    def take(self, page: Page) -> None:
        """No key is shown older than before."""
        for at in range(len(page)):
            key, value = page.original(at)
            number = json.loads(key or b"")["id"]
            if value is None:
                continue
            event = json.loads(value)
            image = event["after"] or event["before"]
            assert image["v"] >= self.newest.get(number, -1), f"{number} is shown older than before"
            self.newest[number] = image["v"]
            if event["op"] == "d":
                self.state.pop(number, None)
            else:
                self.state[number] = image["v"]


class Reader:
    """One that is killed and made anew from what is committed."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.consumer = Consumer()
        self.context = FakeContext()
        self.context.commit(Page([], {"at": len(server.log)}, partition=LOG))
        self.begin()

    def begin(self) -> None:
        """From the stored offsets."""
        server = self.server
        progress = Progress.read(self.context.offset_of(READING)) or Progress(waiting=("t",))
        server.told = int(str(self.context.offset_of(LOG)["at"]))
        self.reading = TableReading(server, progress, self.context, READING)

    async def step(self, commits: int, *, pages_kept: int) -> None:
        """Follow the log over so many commits, then read beside it; only the first pages come to Kafka."""
        server, pages = self.server, []
        until = min(len(server.log), server.told + commits)
        if until > server.told:
            events = [self._event(at) for at in range(server.told, until)]
            server.told = until
            pages.append(self.reading.heed(_page(events, {"at": until})))
        pages += [page async for page in self.reading.advance((until,))]
        for page in pages[:pages_kept]:
            self.consumer.take(page)
            self.context.commit(page)
        if pages_kept < len(pages):
            self.begin()

    def _event(self, at: int) -> tuple[int, int, int]:
        key, version = self.server.log[at]
        known = key in self.server.rows(at)
        return (UPDATE if known else CREATE, key, version) if version is not None else (DELETE, key, at)


_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, KEYS), st.booleans()),
        st.tuples(st.just("see"), st.integers(0, 3), st.none()),
        st.tuples(st.just("read"), st.integers(0, 4), st.integers(0, 3)),
    ),
    max_size=60,
)


@given(st.sets(st.integers(1, KEYS)), _STEPS)
@settings(max_examples=150, deadline=None)
def test_the_state_is_the_table_and_no_key_is_shown_stale(
    first: set[int], steps: list[tuple[str, int, object]]
) -> None:
    """Changes amid a stretch, commits that are seen after the log has told them, kills between any pages."""

    async def run() -> None:
        server = Server()
        for key in sorted(first):
            server.commit(key, deletes=False)
        server.unseen.clear()
        reader = Reader(server)
        for what, number, more in steps:
            if what == "commit" and (not more or number in server.rows(len(server.log))):
                server.commit(number, deletes=bool(more))
            elif what == "see":
                server.unseen -= set(sorted(server.unseen)[:number])
            elif what == "read":
                await reader.step(number, pages_kept=int(str(more)))
        server.unseen.clear()
        while reader.reading.is_waiting or server.told < len(server.log):
            await reader.step(3, pages_kept=3)
        assert reader.consumer.state == server.rows()

    asyncio.run(run())
