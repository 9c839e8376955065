"""One table that a task writes to: rows gathered, data files written, and commits that carry the source offsets.

The table says for each partition of a topic up to where its records are in it, in a property that is changed by the
very commit that adds the rows. A commit is made only where the table still says what the rows follow on; so of two
tasks that have the same records one commits them, and a commit whose answer was lost is found and not made again.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pydantic
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError, RESTError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AddSnapshotUpdate, AssertTableUUID, SetSnapshotRefUpdate, TableUpdate
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from fetchers.sdk import Clock
from service.sinks.contract import Fatal, Partition, StartAnew
from service.sinks.iceberg.catalog import Lake, latest_ms, told
from service.sinks.iceberg.config import IcebergSinkConfig, TableKeys
from service.sinks.iceberg.evolution import changes
from service.sinks.iceberg.files import written

COMMIT_TRIES_MAX = 30
"""Other tasks and engines commit to the table too; each of them may be first some times."""
FITTED_MAX = 1_024
_WAIT_SECONDS_MAX = 2.0
_UNKNOWN = (CommitStateUnknownException, RESTError, RequestException, SQLAlchemyError, OSError)
"""After these nobody knows whether the commit was made."""
_KEPT_OF_BRANCHES = ("max_ref_age_ms", "max_snapshot_age_ms", "min_snapshots_to_keep")


def offsets_key(connector: str, topic: str, branch: str = "main") -> str:
    """The property of a table that says how far a topic's records are in it, as JSON by partition.

    Each of these names may have dots, and no two places have one property: dots of all but the last are escaped.
    """
    place = "offsets" if branch == "main" else f"branch-offsets.{_undotted(branch)}"
    return f"headrace.{place}.{_undotted(connector)}.{topic}"


def _undotted(name: str) -> str:
    return name.replace("%", "%25").replace(".", "%2E")


@dataclass(slots=True)
class IcebergTable:
    """Everything blocks; raises Fatal and StartAnew."""

    lake: Lake
    config: IcebergSinkConfig
    keys: TableKeys
    connector: str
    clock: Clock
    note_progress: Callable[[], None]
    """Called after each data file, and each try of a commit."""
    table: Table
    files: list[DataFile] = field(default_factory=list)
    held_bytes: int = 0
    _held: list[Any] = field(default_factory=list)
    _known: dict[Partition, int | None] = field(default_factory=dict)
    """What the table said of partitions when this task began to write their records."""
    _ends: dict[Partition, int] = field(default_factory=dict)
    """What it shall say after the next commit."""
    _fitted: set[Any] = field(default_factory=set)
    """Types of records that the table's schema has been looked at for; JSON without a schema may have a new one in each
    batch."""

    def __post_init__(self) -> None:
        """Look at the table as it was loaded."""
        self._use(self.table)

    @property
    def arrow_schema(self) -> Any:
        """Of the rows that are taken."""
        return schema_to_pyarrow(self.table.schema())

    @property
    def is_pending(self) -> bool:
        """Whether rows wait for their commit."""
        return bool(self._held or self.files)

    @property
    def partitions(self) -> frozenset[Partition]:
        """Those whose rows wait."""
        return frozenset(self._ends)

    def next_offset(self, partition: Partition) -> int:
        """The offset before which the partition's records are in the table, or wait to be."""
        if partition not in self._known:
            self._known[partition] = self.offset_in_table(partition)
        return max(self._known[partition] or 0, self._ends.get(partition, 0))

    def offset_in_table(self, partition: Partition) -> int | None:
        """What the table says, as it was read last."""
        return offset_in(self.table, self._key(partition[0]), partition[1])

    def forget(self, partition: Partition) -> None:
        """It was another task's, or is to be: what the table says of it is to be read anew."""
        self._known.pop(partition, None)

    def refresh(self) -> None:
        """Read the table anew; nothing waits for a commit."""
        self._use(self._loaded())
        self._known = {}

    def take(self, rows: Any, partition: Partition, end: int) -> None:
        """Gather rows of a partition, which are its records up to ``end``."""
        self._held.append(rows)
        self.held_bytes += rows.nbytes
        self._ends[partition] = end

    def fit(self, records: Any) -> None:
        """Evolve the table for records of an Arrow type, where the config wants it."""
        if records in self._fitted or not self.config.iceberg_tables_evolve_schema_enabled:
            return
        is_folded = self.config.iceberg_tables_schema_case_insensitive
        for attempt in range(COMMIT_TRIES_MAX):
            wanted = changes(self.table.schema(), records, is_case_insensitive=is_folded)
            if not wanted:
                if len(self._fitted) >= FITTED_MAX:
                    self._fitted.clear()
                self._fitted.add(records)
                return
            self.write()
            try:
                with told(self.config):
                    update = self.table.update_schema()
                    for change in wanted:
                        change.apply(update)
                    update.commit()
            except CommitFailedException:
                _wait(attempt)
            except ValueError as error:
                raise Fatal(f"table {self.keys.name} cannot take the schema of its records: {error}") from error
            self._use(self._loaded())
        raise StartAnew(f"table {self.keys.name} is changed by others all the time")

    def write(self) -> None:
        """Write what is held as data files; they are not the table's before they are committed."""
        if not self._held:
            return
        rows = self._held[0] if len(self._held) == 1 else pa.concat_tables(self._held)
        with told(self.config):
            for file in written(self.table, rows):
                self.files.append(file)
                self.note_progress()
        self._held, self.held_bytes = [], 0

    def drop(self) -> None:
        """Give up what waits. Files that were written are nobody's; Iceberg's ``remove_orphan_files`` removes them."""
        self._held, self.files, self.held_bytes, self._ends = [], [], 0, {}

    def commit(self) -> None:
        """Add the rows and move the offsets, in one step; raises StartAnew where others have moved them."""
        self.write()
        if not self.files:
            return
        for attempt in range(COMMIT_TRIES_MAX):
            found = {partition: self.offset_in_table(partition) for partition in self._ends}
            if found == self._ends:
                break
            self._check(found)
            self._try_once(attempt)
            self.note_progress()
        else:
            raise StartAnew(f"table {self.keys.name}: {COMMIT_TRIES_MAX} commits in a row have failed")
        self._known.update(self._ends)
        self.files, self._ends = [], {}

    def _check(self, found: Mapping[Partition, int | None]) -> None:
        for (topic, number), offset in found.items():
            if offset != self._known[topic, number]:
                raise StartAnew(
                    f"another task has written records of partition {number} of {topic} to {self.keys.name}"
                )
        if any(file.spec_id != self.table.metadata.default_spec_id for file in self.files):
            # PyIceberg would write their partitions down as those of the new spec.
            raise StartAnew(f"table {self.keys.name} is partitioned in another way since its files were written")

    def _try_once(self, attempt: int) -> None:
        """Commit; whether it was made says the table, read anew."""
        with told(self.config):
            change = self._transaction()
        is_refused, catalog = False, self.table.catalog
        try:
            made = catalog.commit_table(
                self.table,
                (*change._requirements, AssertTableUUID(uuid=self.table.metadata.table_uuid)),  # noqa: SLF001 - as below
                self._in_order(change._updates),  # noqa: SLF001 - PyIceberg's own commit repeats what it takes for failed
            )
            with suppress(Fatal):  # where files may not be touched, they stay
                catalog._delete_old_metadata(self.table.io, self.table.metadata, made.metadata)  # noqa: SLF001
        except CommitFailedException:
            is_refused = True
            _wait(attempt)
        except (NoSuchTableError, pydantic.ValidationError):
            _wait(attempt)  # a gateway's word, perhaps: who asks for the table hears more
        except _UNKNOWN as error:
            _raise_if_fatal(error, self.config)
            _wait(attempt)
        self._use(self._loaded())
        if is_refused and {p: self.offset_in_table(p) for p in self._ends} != self._ends:
            for producer in change._snapshot_producers:  # noqa: SLF001
                producer._clean_all_uncommitted()  # noqa: SLF001 - its manifests; the data files are tried again

    def _transaction(self) -> Transaction:
        """Offsets and rows as one change, which demands that nobody has committed to the branch since."""
        change = self.table.transaction()
        properties = self._properties()
        change.set_properties(properties)
        summary = {"headrace.connector": self.connector, **properties}
        update = change.update_snapshot(snapshot_properties=summary, branch=self.keys.branch)
        is_merged = self.table.metadata.properties.get("commit.manifest-merge.enabled", "true").lower() == "true"
        appended = update.merge_append() if is_merged else update.fast_append()
        for file in self.files:
            appended.append_data_file(file)
        appended.commit()
        return change

    def _in_order(self, updates: tuple[TableUpdate, ...]) -> tuple[TableUpdate, ...]:
        """The snapshot gets a time behind that of the last one, also where the clock was set back since.

        And the branch keeps what is said of how long its snapshots are kept, which PyIceberg leaves out.
        """
        at_ms = max(int(self.clock.now().timestamp() * 1000), latest_ms(self.table.metadata) + 1)
        made: list[TableUpdate] = []
        for each in updates:
            if isinstance(each, AddSnapshotUpdate):
                timed = each.snapshot.model_copy(update={"timestamp_ms": at_ms})
                made.append(each.model_copy(update={"snapshot": timed}))
            elif isinstance(each, SetSnapshotRefUpdate) and each.ref_name in self.table.metadata.refs:
                there = self.table.metadata.refs[each.ref_name]
                made.append(each.model_copy(update={name: getattr(there, name) for name in _KEPT_OF_BRANCHES}))
            else:
                made.append(each)
        return tuple(made)

    def _properties(self) -> dict[str, str]:
        made: dict[str, dict[str, int]] = {}
        for (topic, number), end in self._ends.items():
            key = self._key(topic)
            if key not in made:
                made[key] = _read(key, self.table.metadata.properties.get(key, "{}"))
            made[key][str(number)] = end
        return {key: json.dumps(offsets, sort_keys=True) for key, offsets in made.items()}

    def _key(self, topic: str) -> str:
        return offsets_key(self.connector, topic, self.keys.branch)

    def _loaded(self) -> Table:
        found = self.lake.load(self.keys)
        if found is None:
            raise StartAnew(f"table {self.keys.name} is not there any more")
        if self.is_pending and found.metadata.table_uuid != self.table.metadata.table_uuid:
            raise StartAnew(f"table {self.keys.name} is another one since its files were written")
        return found

    def _use(self, table: Table) -> None:
        """``write-props`` go before the table's own properties, in this copy of them alone."""
        known, found = self.table.metadata, table.metadata
        if (known.table_uuid, known.current_schema_id) != (found.table_uuid, found.current_schema_id):
            self._fitted.clear()
        self.table = table
        table.metadata.properties.update(self.config.iceberg_tables_write_props)


def _raise_if_fatal(error: Exception, config: IcebergSinkConfig) -> None:
    """Raise what a person is to do something about; of all else the table tells the outcome."""
    with suppress(StartAnew), told(config):
        raise error


def _wait(attempt: int) -> None:
    """Longer each time, and never two tasks equally long; this is the sink's own thread."""
    time.sleep(random.uniform(0, min(_WAIT_SECONDS_MAX, 0.05 * 2**attempt)))  # noqa: TID251


def offset_in(table: Table, key: str, number: int) -> int | None:
    """What a table says of a partition in the property of its topic; None where it says nothing."""
    text = table.metadata.properties.get(key)
    return None if text is None else _read(key, text).get(str(number))


def _read(key: str, text: str) -> dict[str, int]:
    try:
        found = json.loads(text)
        return {str(int(number)): int(offset) for number, offset in found.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise Fatal(f"property {key} of the table is no JSON of offsets: correct it") from error
