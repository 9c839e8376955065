"""Who owns what: even, sticky, and the same for everyone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from service.domain.cluster import Member
from service.domain.ids import ConnectorId, InstanceId, TaskId
from service.herder.assignment import Assignment, folded, rebased
from tests.unit.herder.config_log import cluster, instances, member, members

NAMES = st.text("abcdefgh", min_size=1, max_size=2)
SIZES = st.dictionaries(NAMES, st.integers(0, 9), max_size=12)
GROUPS = st.sets(st.sampled_from("stuvwxyz"), min_size=1, max_size=6).map(lambda names: members("".join(sorted(names))))


def moved(before: Mapping[InstanceId, Member], after: Mapping[InstanceId, Member]) -> set[InstanceId]:
    """What has changed hands."""
    return {instance for instance in before.keys() & after.keys() if before[instance] != after[instance]}


def spread(assignment: Assignment) -> int:
    """The difference between the busiest and the idlest present worker, of connectors or of tasks."""
    return max(
        max(loads) - min(loads)
        for shares in (assignment.connectors, assignment.tasks)
        for loads in [[Counter(shares.owners.values())[each] for each in assignment.members]]
    )


def moves_needed(loads: list[int], new: int) -> int:
    """How many have to move to make ``loads`` even with ``new`` more; every way to be even is tried."""
    fair, remainder = divmod(sum(loads) + new, len(loads))
    return min(
        sum(max(0, load - fair - (place in ones)) for place, load in enumerate(loads))
        for ones in combinations(range(len(loads)), remainder)
    )


@settings(deadline=None)
@given(st.tuples(SIZES, SIZES), st.tuples(GROUPS, GROUPS), st.data())
def test_a_new_base_is_whole_even_and_moves_as_little_as_can_be(
    sizes: tuple[dict[str, int], dict[str, int]],
    groups: tuple[tuple[Member, ...], tuple[Member, ...]],
    data: st.DataObject,
) -> None:
    """Whatever was there and whoever is: one owner each, even to within one, and not one move too many."""
    (before, after), (group_before, group_after) = sizes, groups
    old = rebased({}, cluster(before), members=group_before).owners()
    departed = sorted(set(group_before) - set(group_after))
    held = data.draw(st.sets(st.sampled_from(departed))) if departed else set()
    new = rebased(old, cluster(after), members=group_after, held=held)

    assert new.owners().keys() == instances(cluster(after))
    assert set(new.owners().values()) <= {*group_after, *held}
    assert spread(new) <= 1
    assert not any(old[instance] in held for instance in moved(old, new.owners()))
    for kind in (ConnectorId, TaskId):
        wanted = {instance for instance in new.owners() if isinstance(instance, kind)}
        kept = [owner for instance in wanted if (owner := old.get(instance)) in {*group_after, *held}]
        loads = [kept.count(each) for each in group_after]
        staying = {i for i in wanted if old.get(i) in group_after}
        assert len(staying & moved(old, new.owners())) == moves_needed(loads, len(wanted) - len(kept))


@settings(deadline=None)
@given(SIZES, GROUPS)
def test_one_worker_more_gets_its_floor_share_and_nothing_else_moves(
    sizes: dict[str, int], group: tuple[Member, ...]
) -> None:
    """A newcomer takes n/m rounded down of each kind, and nothing moves between the others."""
    old = rebased({}, cluster(sizes), members=group)
    newcomer = member("zz")
    new = rebased(old.owners(), cluster(sizes), members=(*group, newcomer))
    changed_hands = moved(old.owners(), new.owners())

    assert {new.owner(instance) for instance in changed_hands} <= {newcomer}
    assert len(changed_hands) == len(sizes) // len(new.members) + sum(sizes.values()) // len(new.members)


@settings(deadline=None)
@given(SIZES, GROUPS)
def test_one_worker_less_hands_out_only_its_own(sizes: dict[str, int], group: tuple[Member, ...]) -> None:
    """What the others have stays where it is."""
    gone, *staying = (member("zz"), *group)
    old = rebased({}, cluster(sizes), members=(*group, gone))
    new = rebased(old.owners(), cluster(sizes), members=tuple(staying))

    assert moved(old.owners(), new.owners()) == set(old.owned_by(gone))


@settings(deadline=None)
@given(SIZES, GROUPS, NAMES, st.integers(0, 9))
def test_a_new_connector_moves_nothing(sizes: dict[str, int], group: tuple[Member, ...], name: str, tasks: int) -> None:
    """Neither its creation nor its first tasks, nor more of them later."""
    assignment = rebased({}, cluster(sizes), members=group)
    before = assignment.owners()
    sizes = {**sizes, name: max(tasks, sizes.get(name, 0))}
    assignment = folded(assignment, name, cluster(sizes).connectors[name])

    assert moved(before, assignment.owners()) == set()
    assert assignment.owners().keys() == instances(cluster(sizes))
    assert spread(assignment) <= 1


@settings(deadline=None)
@given(SIZES, GROUPS, NAMES, st.none() | st.integers(0, 9))
def test_a_record_leaves_everything_even_and_moves_as_little_as_can_be(
    sizes: dict[str, int], group: tuple[Member, ...], name: str, tasks: int | None
) -> None:
    """Deleting a connector or some of its tasks moves only what evenness demands."""
    before = rebased({}, cluster(sizes), members=group)
    sizes = {other: count for other, count in sizes.items() if other != name}
    if tasks is not None:
        sizes[name] = tasks
    after = folded(before, name, cluster(sizes).connectors.get(name))

    assert after.owners().keys() == instances(cluster(sizes))
    assert spread(after) <= 1
    for kind in (ConnectorId, TaskId):
        old = {i: owner for i, owner in before.owners().items() if isinstance(i, kind) and i in after.owners()}
        loads = [list(old.values()).count(each) for each in group]
        new = sum(isinstance(instance, kind) for instance in after.owners()) - len(old)
        assert len(moved(old, after.owners())) == moves_needed(loads, new)


def test_a_stopped_connector_keeps_its_owner_and_loses_its_tasks() -> None:
    """Its empty list of tasks is all that the log says of it."""
    group = members("ab")
    running = rebased({}, cluster({"c": 3}), members=group)
    stopped = folded(running, "c", cluster({"c": 0}).connectors["c"])

    assert stopped.owners() == {ConnectorId("c"): member("a")}


def test_tasks_of_one_connector_are_spread() -> None:
    """Three tasks that are committed at once go to three workers."""
    before = rebased({}, cluster({"other": 3, "c": 0}), members=members("abc"))
    after = folded(before, "c", cluster({"c": 3}).connectors["c"])

    assert {after.owner(TaskId("c", number)) for number in range(3)} == set(members("abc"))


def test_held_work_stays_with_who_is_absent_and_burdens_nobody() -> None:
    """New work goes to the least loaded of those present, as if the absent one's did not exist."""
    group = members("abc")
    before = rebased({}, cluster({"c": 9}), members=group)
    held = rebased(before.owners(), cluster({"c": 9}), members=members("ab"), held=[member("c")])
    grown = folded(held, "d", cluster({"d": 4}).connectors["d"])

    assert moved(before.owners(), held.owners()) == set()
    assert Counter(grown.tasks.owners.values()) == {member("a"): 5, member("b"): 5, member("c"): 3}


def test_a_worker_that_comes_back_in_time_has_its_work_again() -> None:
    """Nothing at all moves between the base before it left and the one after it came back."""
    config, group = cluster({"c": 5, "d": 2}), members("abc")
    before = rebased({}, config, members=group).owners()
    away = rebased(before, config, members=members("ac"), held=[member("b")]).owners()
    back = rebased(away, config, members=group).owners()

    assert before == away == back
