"""A streaming query's run on the driver: whatever dies when, every record is in the sink once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fetchers.sdk import DedupeScope, Page
from fetchers.sdk.page import Rejection
from service.spark_source import stream as stream_module
from service.spark_source.feed import SourceFeed
from service.spark_source.options import OptionsRefusedError, read_options
from service.spark_source.pages_folder import KeptPages, delete_up_to, places
from spark_batch.data_source import FeedStreamReader
from tests.counting_source import CLASS, SCHEMA, grow_to


def numbers(batch: pa.RecordBatch) -> list[int]:
    """Of rows that all are valid."""
    found: list[Any] = batch.column("n").to_pylist()
    return found


class Query:
    """Spark's side of a query: a log of offsets, a log of commits, a sink that replaces a batch it has already.

    It asks in the order in which Spark 4.1 asks (`MicroBatchExecution`): for the newest offset before the first.
    """

    def __init__(self, folder: Path) -> None:
        self.until = folder / "until"
        self.grow_to(0)
        options = {
            "connector.class": CLASS,
            "counting.until": str(self.until),
            "counting.page": "4",
            "contract.schema": SCHEMA,
            "poll.interval.ms": "1",
            "batch.records.max": "8",
            "headrace.pages.path": str(folder / "pages"),
            "headrace.trigger.records.max": "16",
        }
        self.folder = folder
        self.feed = SourceFeed(read_options(options))
        self.offsets: list[Any] = []
        self.committed = -1
        self.sink: dict[int, list[int]] = {}
        self.reader = FeedStreamReader(self.feed)

    def grow_to(self, count: int) -> None:
        """So many numbers there are now."""
        grow_to(self.until, count)

    def plan(self) -> bool:
        """Log the end of a new batch, unless the last one is not committed or nothing is new."""
        if self.committed < len(self.offsets) - 1:
            return False
        end = self._logged(self.reader.latestOffset())
        if self.offsets and end == self.offsets[-1]:
            return False
        self.offsets.append(end)
        return True

    def run(self) -> None:
        """Read the last batch into the sink."""
        if self.committed < len(self.offsets) - 1:
            at = len(self.offsets) - 1
            parts = self.reader.partitions(self._start(at), self.offsets[at])
            self.sink[at] = [n for part in parts for batch in self.reader.read(part) for n in numbers(batch)]

    def commit(self) -> None:
        """The batch in the sink is there for good."""
        at = len(self.offsets) - 1
        if at in self.sink and self.committed < at:
            self.committed = at
            self.reader.commit(self.offsets[at])

    def crash(self) -> None:
        """Everything but the logs and the sink is gone; a new driver begins, as Spark does."""
        self.reader.stop()
        self.reader = FeedStreamReader(self.feed)
        if self.offsets:
            self.reader.partitions(self.offsets[-1], self.offsets[-1])

    @property
    def delivered(self) -> list[int]:
        """Of committed batches, in order."""
        return [n for at in range(self.committed + 1) for n in self.sink[at]]

    @property
    def kept(self) -> list[Path]:
        """Files of pages that are still there."""
        return list((self.folder / "pages").rglob("*.arrow"))

    def _start(self, at: int) -> Any:
        return self.offsets[at - 1] if at else self._logged(self.reader.initialOffset())

    @staticmethod
    def _logged(offset: Any) -> Any:
        return json.loads(json.dumps(offset))


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triggers follow each other at once."""
    monkeypatch.setattr(stream_module, "REST_SECONDS", 0.02)


@pytest.fixture(name="query")
def query_fixture(tmp_path: Path) -> Iterator[Query]:
    """A new one."""
    query = Query(tmp_path)
    yield query
    query.reader.stop()


def test_batches_follow_each_other_and_files_go_with_their_commit(query: Query) -> None:
    """By the trigger's limit; the fetcher hears of what is committed, and of nothing else."""
    query.grow_to(40)
    while query.plan() or len(query.delivered) < 40:
        query.run()
        assert not query.until.with_suffix(".committed").exists() or query.committed >= 0
        query.commit()
        assert query.kept == []
    assert query.delivered == list(range(40))
    assert len(query.offsets) > 1
    assert query.until.with_suffix(".committed").read_text().split()[-1] == "40"
    assert not query.plan()


def test_a_logged_batch_is_the_same_after_a_crash_whatever_the_source_says_meanwhile(query: Query) -> None:
    """Its pages lie in the folder: nothing is fetched again for it, and nothing comes into it."""
    query.grow_to(6)
    assert query.plan()
    query.crash()
    query.grow_to(14)
    query.run()
    assert query.sink[0] == list(range(6))
    query.commit()
    assert query.plan()
    query.run()
    query.commit()
    assert query.delivered == list(range(14))


def test_what_was_kept_and_never_logged_is_fetched_again(query: Query) -> None:
    """A driver that died between the two has told nobody of it; its files are nobody's."""
    query.grow_to(4)
    query.plan()
    query.run()
    query.commit()
    query.grow_to(9)
    query.reader.latestOffset()
    query.crash()
    assert query.plan()
    query.run()
    query.commit()
    assert query.delivered == list(range(9))


STEPS = st.lists(st.sampled_from(["grow", "plan", "run", "commit", "crash"]), max_size=14)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_every_record_is_delivered_once(steps: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    """In order, whatever the driver was doing when it died."""
    query = Query(tmp_path_factory.mktemp("query"))
    count = 0
    try:
        for step in steps:
            count += 5 if step == "grow" else 0
            query.grow_to(count)
            if step != "grow":
                getattr(query, step)()
            assert query.delivered == list(range(len(query.delivered)))
        while len(query.delivered) < count:
            query.plan()
            query.run()
            query.commit()
        assert query.delivered == list(range(count))
        query.grow_to(count + 1)
        query.plan()
        query.run()
        query.commit()
        # What a dead driver has kept and never logged goes with the next commits.
        assert all(int(file.name.partition("-")[0]) > query.offsets[-1]["number"] for file in query.kept)
    finally:
        query.reader.stop()


def test_pages_are_kept_whole(tmp_path: Path) -> None:
    """Columns, offsets, the fetcher's own rejections and the window come back as they were."""
    pages = [
        Page(
            [b"a", None],
            {"next": 2},
            {"p": "é"},
            topic="t",
            keys=[None, b"k"],
            timestamps_ms=[1, None],
            positions=[7, 8],
            rejections=(Rejection(0, "too_large", "record: too long"),),
            dedupe=DedupeScope("b", "a"),
        ),
        Page([], {"next": 3}),
    ]
    for place in (str(tmp_path / "folder" / "1.arrow"), f"file://{tmp_path}/folder/2.arrow"):
        kept = KeptPages(place)
        kept.write(pages)
        for page, found in zip(pages, kept.read(), strict=True):
            for name in ("payload_column", "keys", "timestamps_ms", "positions"):
                wanted = getattr(page, name)
                assert getattr(found, name).to_pylist() == ([] if wanted is None else wanted.to_pylist())
            for name in ("offset", "partition", "topic", "rejections", "dedupe"):
                assert getattr(found, name) == getattr(page, name)

    (gone,) = places(str(tmp_path), "s", "run", range(7, 8))
    gone.write(pages)
    delete_up_to(str(tmp_path), "s", 6)
    assert gone.read()
    delete_up_to(str(tmp_path), "s", 7)
    delete_up_to(str(tmp_path), "nowhere", 7)
    with pytest.raises(OSError, match="arrow"):
        gone.read()


def test_a_stream_says_what_it_needs(query: Query) -> None:
    """A folder, and no de-duplication that nobody would remember over a restart."""
    given = {**query.feed.options.properties, "dedupe.fields": "n"}
    with pytest.raises(OptionsRefusedError) as refusal:
        FeedStreamReader(SourceFeed(read_options(given))).initialOffset()
    assert [finding.key for finding in refusal.value.findings] == ["headrace.pages.path", "dedupe.fields"]
