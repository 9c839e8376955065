"""What a worker lends to its tasks."""

from __future__ import annotations

from pathlib import Path

from service.domain.ids import TaskId
from service.kafka.client import KafkaSettings
from service.stores.dedupe_store import DedupeStore
from service.worker.lending import DedupeStates


def test_the_folders_of_indexes_lie_side_by_side_whatever_connectors_are_called(tmp_path: Path) -> None:
    """A name may hold slashes and dots."""
    states = DedupeStates(DedupeStore(KafkaSettings(bootstrap="unused:1"), "dedupe"), tmp_path)
    names = ("../../evil", "/etc", "..", "a\udcff", "n" * 300)
    opened = [states.open_stored(TaskId(name, 0), records_max=1) for name in names]
    folders = {state.index.limits.spill_directory for state in opened}
    assert {folder.parent for folder in folders if folder} == {tmp_path}
    assert len(folders) == len(names)
    for folder in folders:
        assert folder
        folder.mkdir()
