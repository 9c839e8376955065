"""Random histories of a cluster: joins, leaves, crashes, sleeps, returns, and a config log read in any chunks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from service.domain.cluster import Member, Roster
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.herder.assignment import Assignment, AssignmentTracker
from service.herder.membership import WITNESSES
from service.herder.rounds import (
    Claim,
    Grace,
    convened,
    decode_claim,
    decode_roster,
    encode_claim,
    encode_roster,
    known_owners,
)
from tests.properties.herder.test_assignment import moved, moves_needed
from tests.unit.herder.config_log import ConfigLog, instances, member

GRACE_SECONDS = 3.0
REMEMBERED_MAX = 6
NAMES = st.sampled_from([f"c{number}" for number in range(8)])
URLS = st.sampled_from([member(name) for name in "abcde"])
COUNTS = st.integers(0, 12)


@dataclass
class Worker:
    """What one process knows."""

    me: Member
    tracker: AssignmentTracker
    grace: Grace = field(default_factory=lambda: Grace(GRACE_SECONDS))
    is_witness: bool = False

    def read(self, log: ConfigLog, records_max: int) -> None:
        """Read on, so many records."""
        for change in log.after(self.tracker.offset)[:records_max]:
            self.tracker.on_change(change)

    def claim(self) -> Claim:
        """As it is said in a round."""
        tracker = self.tracker
        owners = tracker.assignment.owners()
        others = {instance: owner for instance, owner in owners.items() if owner != self.me and self.is_witness}
        owned = tuple(tracker.owned_by(self.me))
        return decode_claim(encode_claim(Claim(self.me, tracker.offset, tracker.generation, owned, others)))


class Cluster(RuleBasedStateMachine):
    """Rounds are held as the broker would: whoever is in takes part, any of them leads."""

    def __init__(self) -> None:
        super().__init__()
        self.log = ConfigLog()
        self.present: dict[Member, Worker] = {}
        self.asleep: dict[Member, Worker] = {}
        self.generation = 0
        self.now = 0.0

    @initialize(sizes=st.dictionaries(NAMES, st.integers(0, 5), max_size=8), urls=st.sets(URLS, min_size=1, max_size=4))
    def begin(self, sizes: dict[str, int], urls: set[Member]) -> None:
        """A cluster with a past."""
        for name, tasks in sizes.items():
            self.log.write(name, tasks)
        for url in sorted(urls):
            self.present[url] = self.started(url)
        self.hold_round(leader=0, records=0, can_catch_up=True)

    def started(self, url: Member) -> Worker:
        """A process that has read the log and knows nothing else."""
        return Worker(url, AssignmentTracker(self.log.config, remembered_max=REMEMBERED_MAX))

    @rule(name=NAMES, tasks=st.none() | st.integers(0, 5))
    def write(self, name: str, tasks: int | None) -> None:
        """A connector is created, resized, stopped or deleted."""
        self.log.write(name, tasks)

    @rule()
    def write_other(self) -> None:
        """A record that has nothing to do with connectors."""
        self.log.write_other()

    @rule(records=COUNTS, data=st.data())
    @precondition(lambda self: self.present)
    def read(self, records: int, data: st.DataObject) -> None:
        """One worker reads on."""
        self.present[data.draw(st.sampled_from(sorted(self.present)))].read(self.log, records)

    @rule(seconds=st.sampled_from([0.5, 2.0, 4.0]))
    def wait(self, seconds: float) -> None:
        """Time goes on."""
        self.now += seconds

    @rule(url=URLS, leader=COUNTS, records=COUNTS, can_catch_up=st.booleans())
    def join(self, url: Member, leader: int, records: int, can_catch_up: bool) -> None:  # noqa: FBT001 - drawn
        """A worker starts, wakes up, or has crashed and is back before anyone noticed."""
        self.present[url] = self.asleep.pop(url) if url in self.asleep else self.started(url)
        self.hold_round(leader, records, can_catch_up)

    @rule(is_asleep=st.booleans(), leader=COUNTS, records=COUNTS, data=st.data())
    @precondition(lambda self: len(self.present) > 1)
    def depart(self, is_asleep: bool, leader: int, records: int, data: st.DataObject) -> None:  # noqa: FBT001 - drawn
        """A worker leaves, crashes, or sleeps for longer than its session."""
        worker = self.present.pop(data.draw(st.sampled_from(sorted(self.present))))
        if is_asleep:
            self.asleep[worker.me] = worker
        self.hold_round(leader, records, can_catch_up=True)

    @rule(leader=COUNTS, records=COUNTS, can_catch_up=st.booleans())
    def look_again(self, leader: int, records: int, can_catch_up: bool) -> None:  # noqa: FBT001 - drawn
        """A round for no reason, or for the end of a grace."""
        self.hold_round(leader, records, can_catch_up)

    def hold_round(self, leader: int, records: int, can_catch_up: bool) -> None:  # noqa: FBT001 - drawn
        """Rounds until everyone can follow; ``records`` is what some read between joining and hearing the roster."""
        workers = [self.present[url] for url in sorted(self.present)]
        claims = [worker.claim() for worker in workers]
        head = workers[leader % len(workers)]
        if can_catch_up:
            head.read(self.log, len(self.log.changes))
        self.generation += 1
        known = known_owners(head.tracker, claims)
        roster, head.grace = convened(
            known,
            head.tracker.config,
            head.grace,
            generation=self.generation,
            leader=head.me,
            members=[claim.member for claim in claims],
            began=self.now,
            now=self.now,
        )
        self.check_base(known, roster, held=head.grace.held(self.now))
        told = decode_roster(encode_roster(roster))
        is_followed = True
        for place, worker in enumerate(workers):
            worker.read(self.log, records * place)
            is_followed &= worker.tracker.on_roster(told)
            absent = {*told.base.values()} - {*told.members}
            worker.grace = worker.grace.seen(absent, self.now)
            worker.is_witness = worker.me in told.members[:WITNESSES]
        if not is_followed:
            self.hold_round(leader, 0, can_catch_up=True)

    @staticmethod
    def check_base(known: Mapping[InstanceId, Member], roster: Roster, *, held: frozenset[Member]) -> None:
        """No owner but members and those whose grace runs; as few moves as can be."""
        assert set(roster.base.values()) <= {*roster.members, *held}
        for kind in (ConnectorId, TaskId):
            wanted = [instance for instance in roster.base if isinstance(instance, kind)]
            kept = [known[i] for i in wanted if known.get(i) in {*roster.members, *held}]
            loads = [kept.count(each) for each in roster.members]
            stayers = {i for i in wanted if known.get(i) in roster.members}
            assert len(stayers & moved(known, roster.base)) == moves_needed(loads, len(wanted) - len(kept))

    @rule()
    def read_all(self) -> None:
        """Everyone reads to the end, and then knows the same."""
        for worker in self.present.values():
            worker.read(self.log, len(self.log.changes))
            assert not worker.tracker.is_behind
            assert worker.tracker.generation == self.generation

    @invariant()
    def who_has_read_as_far_as_another_agrees_with_it(self) -> None:
        """All that the log speaks of has one owner, the same for all, and shares are even to within one."""
        agreed: dict[tuple[int, int], Assignment] = {}
        for tracker in (worker.tracker for worker in self.present.values()):
            if tracker.is_behind:
                continue
            assignment = agreed.setdefault((tracker.generation, tracker.offset), tracker.assignment)
            assert assignment.owners() == tracker.assignment.owners()
            assert assignment.owners().keys() == instances(tracker.config)
            assert set(assignment.members) == set(self.present)
            check_even(assignment)

    def teardown(self) -> None:
        """However it went on, in the end all agree."""
        self.read_all()
        self.who_has_read_as_far_as_another_agrees_with_it()


def check_even(assignment: Assignment) -> None:
    """Loads are counted right, and differ by one at most."""
    for shares in (assignment.connectors, assignment.tasks):
        counted = Counter(shares.owners.values())
        assert dict(counted) == dict(shares.loads)
        loads = [counted[each] for each in assignment.members]
        assert max(loads) - min(loads) <= 1


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
