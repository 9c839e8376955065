"""The columns a writer is given: the records of one topic, as Arrow arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

Header: TypeAlias = tuple[str, bytes | None]
Column: TypeAlias = "pa.Array[Any]"


@dataclass(frozen=True)
class TopicRecords:
    """Records for one topic, in the order in which they are to be written.

    All columns have one length. `values` and `keys` are binary; a null value is a tombstone, a null
    key lets the writer choose the partition. `timestamps_ms` is int64, null meaning now.
    `headers` has one sequence of (name, value) a record, or is None when no record has any.
    """

    topic: str
    values: Column
    keys: Column | None = None
    timestamps_ms: Column | None = None
    headers: Sequence[Sequence[Header]] | None = None
    partition: int | None = None
    """Where all of them go; None = by their keys, or where the writer likes."""

    def __post_init__(self) -> None:
        """Refuse columns of different lengths: they would pair records wrongly.

        Raises ValueError naming the column.
        """
        for name in ("keys", "timestamps_ms", "headers"):
            column = getattr(self, name)
            if column is not None and len(column) != len(self.values):
                raise ValueError(
                    f"{name} of topic '{self.topic}' has {len(column)} rows, values has {len(self.values)}"
                )

    def __len__(self) -> int:
        """How many records there are."""
        return len(self.values)
