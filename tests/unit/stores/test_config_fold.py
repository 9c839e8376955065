"""The config log folds to the same state for everyone, before and after compaction."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from service.domain.cluster import ClusterConfig, ConnectorEntry
from service.domain.states import TargetState
from service.stores.config_fold import ConfigFold
from service.stores.config_records import (
    ConfigRecord,
    ConnectorConfig,
    Target,
    TaskCommit,
    TaskConfig,
    TaskCount,
    encode,
)

LIVES = st.lists(
    st.one_of(
        st.tuples(st.just("config"), st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.just("tasks"), st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.just("half"), st.sampled_from("ab"), st.integers(1, 3)),
        st.tuples(st.just("target"), st.sampled_from("ab"), st.integers(0, 2)),
        st.tuples(st.just("remove"), st.sampled_from("ab"), st.just(0)),
        st.tuples(st.just("fenced"), st.sampled_from("ab"), st.integers(0, 3)),
    ),
    max_size=30,
)
"""What befalls connectors; "half" is a leader that dies between task records and their commit."""


def history(life: Sequence[tuple[str, str, int]]) -> list[tuple[int, ConfigRecord]]:
    """The records that leaders write for it, with their offsets."""
    records: list[ConfigRecord] = []
    exists = set[str]()
    for number, (what, name, count) in enumerate(life):
        tasks = [TaskConfig(name, task, {"made": f"{number}"}) for task in range(count)]
        if what == "config":
            exists.add(name)
            records.append(ConnectorConfig(name, {"v": f"{count}"}))
        elif what == "target":
            records.append(Target(name, list(TargetState)[count]))
        elif what == "fenced":
            records.append(TaskCount(name, count))
        elif what == "remove":
            exists.discard(name)
            records += [ConnectorConfig(name, None), Target(name, None)]
        elif name in exists:
            records += tasks if what == "half" else [*tasks, TaskCommit(name, count)]
    return list(enumerate(records))


def folded(records: Sequence[tuple[int, ConfigRecord]], *, after: ConfigFold | None = None) -> ConfigFold:
    """All of them, one by one."""
    fold = after or ConfigFold()
    for offset, record in records:
        fold = fold.apply(record, offset=offset)
    return fold


def compacted(
    records: Sequence[tuple[int, ConfigRecord]], *, below: int, is_forgotten: bool
) -> list[tuple[int, ConfigRecord]]:
    """Below an offset only the last record of each key is left, tombstones perhaps not even that."""
    last = {encode(record)[0]: offset for offset, record in records if offset < below}
    return [
        (offset, record)
        for offset, record in records
        if offset >= below or (last[encode(record)[0]] == offset and not (is_forgotten and encode(record)[1] is None))
    ]


@given(LIVES, st.integers(0, 100))
def test_where_the_reading_pauses_does_not_matter(life: Sequence[tuple[str, str, int]], pause: int) -> None:
    """Read in two goes or in one, the state is the same."""
    records = history(life)
    assert folded(records[pause:], after=folded(records[:pause])) == folded(records)


@given(LIVES, st.integers(0, 100), st.booleans())
def test_compaction_loses_no_connector_and_invents_no_tasks(
    life: Sequence[tuple[str, str, int]],
    below: int,
    is_forgotten: bool,  # noqa: FBT001 - drawn by Hypothesis
) -> None:
    """Configs, target states and counts are the same; tasks are the same or absent, never a mixture."""
    records = history(life)
    whole = folded(records).config
    rest = folded(compacted(records, below=below, is_forgotten=is_forgotten)).config
    assert rest.connectors.keys() == whole.connectors.keys()
    assert rest.task_counts == whole.task_counts
    for name, entry in rest.connectors.items():
        was = whole.connectors[name]
        assert (entry.config, entry.target_state) == (was.config, was.target_state)
        assert entry.tasks is None or (entry.tasks, entry.task_generation) == (was.tasks, was.task_generation)
        assert not entry.is_current or was.is_current


def fold_of(*records: ConfigRecord) -> ClusterConfig:
    """Read from the beginning."""
    return folded(list(enumerate(records))).config


def test_task_configs_count_from_their_commit_on() -> None:
    """Before it the connector has the tasks it had."""
    made: list[ConfigRecord] = [ConnectorConfig("c", {"v": "1"}), TaskConfig("c", 0, {"t": "old"}), TaskCommit("c", 1)]
    newer: list[ConfigRecord] = [TaskConfig("c", 0, {"t": "new"}), TaskConfig("c", 1, {"t": "new"})]
    assert fold_of(*made, *newer).connectors["c"].tasks == ({"t": "old"},)
    assert fold_of(*made, *newer, TaskCommit("c", 2)).connectors["c"].tasks == ({"t": "new"}, {"t": "new"})
    assert fold_of(*made, TaskCommit("c", 0)).connectors["c"].tasks == ()


def test_a_commit_that_lacks_tasks_leaves_none() -> None:
    """After compaction a commit may name more tasks than are left: they have to be published again."""
    entry = fold_of(ConnectorConfig("c", {}), TaskConfig("c", 1, {}), TaskCommit("c", 2)).connectors["c"]
    assert (entry.tasks, entry.is_current, entry.task_ids) == (None, False, ())


def test_a_commit_of_an_unknown_connector_is_ignored() -> None:
    """Left-overs of a deleted connector do not come to life with its name."""
    left_over: list[ConfigRecord] = [TaskConfig("c", 0, {"t": "old"}), TaskCommit("c", 1)]
    config = fold_of(*left_over, ConnectorConfig("c", {}))
    assert config.connectors["c"] == ConnectorEntry("c", {})
    assert config.fencing_pending == frozenset()


def test_deleting_a_connector_forgets_its_waiting_tasks() -> None:
    """A new connector of the same name commits only its own."""
    life: list[ConfigRecord] = [ConnectorConfig("c", {}), TaskConfig("c", 0, {"t": "old"}), ConnectorConfig("c", None)]
    assert fold_of(*life, ConnectorConfig("c", {}), TaskCommit("c", 1)).connectors["c"].tasks is None


def test_an_initial_state_stands_before_its_connector() -> None:
    """So that no worker starts what was to be created paused."""
    config = fold_of(Target("c", TargetState.STOPPED), ConnectorConfig("c", {}))
    assert config.connectors["c"].target_state is TargetState.STOPPED
    assert fold_of(Target("c", TargetState.STOPPED)).connectors == {}


def test_fencing_is_pending_from_a_commit_to_its_count() -> None:
    """The count says how many tasks the next generation has to fence."""
    committed: list[ConfigRecord] = [ConnectorConfig("c", {}), TaskConfig("c", 0, {}), TaskCommit("c", 1)]
    assert fold_of(*committed).fencing_pending == {"c"}
    deleted: list[ConfigRecord] = [*committed, ConnectorConfig("c", None)]
    assert fold_of(*deleted).fencing_pending == frozenset(), "names of connectors that are gone are not kept"
    assert fold_of(*deleted, *committed).fencing_pending == {"c"}
    fenced = fold_of(*committed, TaskCount("c", 1))
    assert (fenced.fencing_pending, fenced.task_counts) == (frozenset(), {"c": 1})
