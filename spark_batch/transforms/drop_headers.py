"""`DropHeaders`: takes headers of some names away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from spark_batch.transforms.form import FormKey, KeyKind, KeyValues
from spark_batch.transforms.halves import ArrowColumn, Faults, Origins
from spark_batch.transforms.records import Records, without_headers


@dataclass(frozen=True)
class DropHeaders:
    """Takes all headers of these names away."""

    names: tuple[str, ...]

    NAME: ClassVar[str] = "DropHeaders"
    ABOUT: ClassVar[str] = "Takes headers of some names away."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("headers", "Names of the headers.", KeyKind.NAMES, is_required=True, is_important=True),
    )

    @classmethod
    def configured(cls, values: KeyValues) -> DropHeaders:
        """Made of the values of its keys."""
        return cls(tuple(dict.fromkeys(values["headers"])))

    def edited(self, headers: ArrowColumn) -> ArrowColumn:
        """A column of headers afterwards."""
        return without_headers(headers, self.names)

    def names_after(self, names: frozenset[str]) -> frozenset[str]:
        """The names of a record's headers afterwards."""
        return names.difference(self.names)

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """The same records with fewer headers."""
        del origins
        return (replace(records, headers=self.edited(records.headers)),), {}
