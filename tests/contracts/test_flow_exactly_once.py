"""Exactly once, simulated: a flow that is cut off anywhere and started anew gives every record once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from fetchers.sdk import FetchContext, Inbox, InboxLimits, Page, Retriable, SourceConnector, listen
from metrics.events import SourceGap
from service.domain.errors import Recovery, recovery_of
from service.kafka.errors import DeliveryRetriable
from service.pipeline.task import SourceTask
from spark_batch.errors import ConversionRetriable
from tests.unit.pipeline.fake_kafka import LETTERS, OFFSETS, TOPIC, FakeKafka, Transaction
from tests.unit.pipeline.fakes import BAD, FakeConversion, NumbersConfig, World, numbers
from tests.unit.pipeline.virtual_time import run_virtual


@dataclass
class Disruptions:
    """What goes wrong, by the number of the call that it befalls (over all incarnations)."""

    cuts: set[int]
    """Await points at which the process dies."""
    aborted_commits: set[int]
    unacknowledged_commits: set[int]
    """Committed, but the answer is lost: nobody but the offset topic knows."""
    lost_conversions: set[int]
    failed_fetches: set[int]
    turns: int = 0
    fetches: int = 0
    cut: asyncio.Event = field(default_factory=asyncio.Event)

    async def turn(self, _place: str) -> None:
        """Pass, or die here."""
        self.turns += 1
        if self.turns in self.cuts:
            self.cut.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0)

    def fetch(self, _position: int) -> Exception | None:
        """Fail now and then; the fetcher is asked again."""
        self.fetches += 1
        return Retriable("cut") if self.fetches in self.failed_fetches else None


numbers_of_calls = st.sets(st.integers(1, 60), max_size=6)
disruptions = st.builds(
    Disruptions,
    cuts=st.sets(st.integers(1, 150), max_size=8),
    aborted_commits=numbers_of_calls,
    unacknowledged_commits=numbers_of_calls,
    # Two in a row at most: more in a row are a poisoned batch, which is another test's.
    lost_conversions=st.sets(st.integers(1, 20).map(lambda number: 3 * number), max_size=6),
    failed_fetches=numbers_of_calls,
)
sources = st.lists(
    st.builds(lambda is_bad, number: (BAD if is_bad else b"") + b"%d" % number, st.booleans(), st.integers(0, 12)),
    max_size=40,
)


@settings(max_examples=120, deadline=None)
@given(disruptions, sources, st.integers(1, 6), st.booleans())
def test_every_record_arrives_once_whatever_is_cut_off(
    broken: Disruptions,
    source: list[bytes],
    page_records: int,
    has_dedupe: bool,  # noqa: FBT001 - Hypothesis fills it
) -> None:
    """Cut at any await point, commits aborted or unacknowledged, Spark and source lost: once, in order, balanced."""
    kafka = run_virtual(_run_to_the_end(broken, source, page_records=page_records, has_dedupe=has_dedupe))
    # Without de-duplication fields equal payloads are different records.
    settled = _without_duplicates(source) if has_dedupe else source
    assert kafka.values(TOPIC) == [payload for payload in settled if not payload.startswith(BAD)]
    assert kafka.values(LETTERS) == [payload for payload in settled if payload.startswith(BAD)]
    _assert_offsets_are_true(kafka.transactions, source, has_dedupe=has_dedupe)


def _without_duplicates(source: list[bytes]) -> list[bytes]:
    """What comes again, and what comes bad after it came good."""
    found: dict[bytes, None] = {}
    for payload in source:
        if payload not in found and payload.removeprefix(BAD) not in found:
            found[payload] = None
    return list(found)


def test_a_commit_whose_acknowledgement_is_lost_is_not_repeated() -> None:
    """The case at the heart of it, by hand: the offset was committed with the records, so the next start goes on."""
    broken = Disruptions(set(), set(), {2}, set(), set())
    source = [b"%d" % number for number in range(9)]
    kafka = run_virtual(_run_to_the_end(broken, source, page_records=3, has_dedupe=False))
    assert kafka.values(TOPIC) == source


class Talking(SourceConnector[NumbersConfig]):
    """A listener whose source says each message once and gives none again; ``said`` outlives its incarnations."""

    said: Iterator[int] = iter(())

    def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """What has not been said yet."""
        return listen(context, self._receive, limits=InboxLimits(page_records_max=3))

    async def _receive(self, inbox: Inbox) -> None:
        inbox.connected(is_resumed=False)
        for number in self.said:
            await inbox.put([b"%d" % number])
        await asyncio.Event().wait()


@settings(max_examples=20, deadline=None)
@given(numbers_of_calls, numbers_of_calls)
def test_what_a_source_says_once_is_never_there_twice(aborted: set[int], unacknowledged: set[int]) -> None:
    """Whatever becomes of commits: of a source that cannot go back a part may be lost, which is told, none repeated."""
    kafka, world = run_virtual(_hear_to_the_end(Disruptions(set(), aborted, unacknowledged, set(), set())))
    heard = [int(value or b"") for value in kafka.values(TOPIC)]
    assert heard == sorted(set(heard))
    is_whole = heard == list(range(100))
    assert is_whole or world.told(SourceGap)


async def _hear_to_the_end(broken: Disruptions) -> tuple[FakeKafka, World]:
    kafka = _fragile(broken)
    world = World(kafka)
    said = iter(range(100))
    is_complete = False
    while not is_complete:
        broken.cut.clear()
        listener = Talking(NumbersConfig.model_validate({"topic": TOPIC}))
        listener.said = said
        is_complete = await _run_incarnation(world.task(listener), broken)
    return kafka, world


def _fragile(broken: Disruptions) -> FakeKafka:
    broken.cut = asyncio.Event()
    return FakeKafka(
        turn=broken.turn,
        before_commit=lambda number: DeliveryRetriable("lost") if number in broken.aborted_commits else None,
        after_commit=lambda number: DeliveryRetriable("unknown") if number in broken.unacknowledged_commits else None,
    )


async def _run_to_the_end(
    broken: Disruptions, source: list[bytes], *, page_records: int, has_dedupe: bool
) -> FakeKafka:
    kafka = _fragile(broken)
    conversion = FakeConversion(
        kafka=kafka,
        script=lambda call: ConversionRetriable("gone") if call in broken.lost_conversions else 0.05 * (call % 3),
    )
    world = World(kafka, conversion, has_dedupe=has_dedupe)
    is_complete = False
    while not is_complete:
        fetcher = numbers(source, page_records=page_records, kafka=kafka, script=broken.fetch)
        broken.cut.clear()
        is_complete = await _run_incarnation(world.task(fetcher), broken)
    return kafka


async def _run_incarnation(task: SourceTask, broken: Disruptions) -> bool:
    """Whether it came to the end of the source; False when it was cut off or failed on something retriable."""
    async with asyncio.TaskGroup() as group:
        run = group.create_task(_until_over(task))
        cut = group.create_task(broken.cut.wait())
        idle = group.create_task(_wait_idle(task))
        done, _ = await asyncio.wait({run, cut, idle}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (cut, idle, run):
            waiting.cancel()
    return idle in done and run not in done and cut not in done


async def _until_over(task: SourceTask) -> None:
    try:
        await task.run()
    except ExceptionGroup as failures:
        if recovery_of(failures) is not Recovery.RESTART:
            raise


async def _wait_idle(task: SourceTask) -> None:
    while task.activity.idle_seconds is None:
        await asyncio.sleep(0.01)


def _assert_offsets_are_true(transactions: list[Transaction], source: list[bytes], *, has_dedupe: bool) -> None:
    """After each transaction the offset stands exactly behind the records that were settled."""
    settled: list[bytes | None] = []
    for transaction in transactions:
        settled += transaction.values(TOPIC) + transaction.values(LETTERS)
        positions = [json.loads(value or b"")["position"] for value in transaction.values(OFFSETS)]
        if positions:
            before = source[: positions[-1]]
            expected = _without_duplicates(before) if has_dedupe else before
            assert sorted(map(str, settled)) == sorted(map(str, expected))
