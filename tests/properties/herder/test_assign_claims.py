"""What is said in a round arrives as it was meant, and fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from service.domain.cluster import Member, Roster
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.herder.assignment import Assignment, rebased
from service.herder.membership import WITNESSES
from service.herder.rounds import Claim, decode_claim, decode_roster, encode_claim, encode_roster
from tests.unit.herder.config_log import cluster, members

INSTANCES: st.SearchStrategy[InstanceId] = st.builds(ConnectorId, st.text(max_size=5)) | st.builds(
    TaskId, st.text(max_size=5), st.integers(0, 300)
)
MEMBERS = st.sampled_from(members("abcdef"))


@given(MEMBERS, st.integers(0), st.integers(0), st.dictionaries(INSTANCES, MEMBERS))
def test_a_claim_is_read_as_it_was_written(
    who: Member, offset: int, generation: int, owners: dict[InstanceId, Member]
) -> None:
    """Any name and number; what is told of others, too."""
    owned = {instance for instance, owner in owners.items() if owner == who}
    others = {instance: owner for instance, owner in owners.items() if owner != who}
    read = decode_claim(encode_claim(Claim(who, offset, generation, tuple(owned), others)))

    assert (read.member, read.offset, read.generation) == (who, offset, generation)
    assert set(read.owned) == owned
    assert len(read.owned) == len(owned)
    assert read.others == others


@given(st.sets(MEMBERS, min_size=1), MEMBERS, st.dictionaries(INSTANCES, MEMBERS), st.integers(0))
def test_a_roster_is_read_as_it_was_written(
    present: set[Member], leader: Member, base: dict[InstanceId, Member], offset: int
) -> None:
    """Owners may be absent, and the leader is told even if it owned nothing."""
    roster = Roster(7, leader, tuple(sorted(present)), base, offset)

    assert decode_roster(encode_roster(roster)) == roster


def test_twenty_workers_with_a_thousand_connectors_fit_into_one_record_of_the_broker() -> None:
    """All parts of a round stand in one record, of which the broker takes 1 MB."""
    group = members("abcdefghijklmnopqrst")
    base = rebased({}, cluster({f"orders-{number * 7919:06d}-source": 2 for number in range(1000)}), members=group)
    part = encode_roster(Roster(1, group[0], group, base.owners(), 0))
    claims = [claimed(base, who, knows_others=number < WITNESSES) for number, who in enumerate(group)]

    assert len(part) * len(group) + sum(map(len, claims)) < 1_000_000


def claimed(base: Assignment, who: Member, *, knows_others: bool) -> bytes:
    """As a worker makes it."""
    others = {instance: owner for instance, owner in base.owners().items() if owner != who}
    return encode_claim(Claim(who, 0, 1, tuple(base.owned_by(who)), others if knows_others else {}))
