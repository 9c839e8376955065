"""`Filter`: drops records; with a predicate only those that it is true for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spark_batch.transforms.form import FormKey, KeyValues
from spark_batch.transforms.halves import Faults, Origins
from spark_batch.transforms.records import Records


@dataclass(frozen=True)
class Filter:
    """Drops what it is applied to: such a record is neither delivered nor a dead letter, and its offset is done."""

    NAME: ClassVar[str] = "Filter"
    ABOUT: ClassVar[str] = "Drops records: those that its predicate is true for, or all without one."
    KEYS: ClassVar[tuple[FormKey, ...]] = ()

    @classmethod
    def configured(cls, values: KeyValues) -> Filter:
        """The same for every config, since it has no keys."""
        del values
        return cls()

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """Nothing is left."""
        del records, origins
        return (), {}
