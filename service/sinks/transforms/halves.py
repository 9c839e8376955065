"""The half of records (keys or values) that a transformation works on: a column of one type, and what may go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from service.sinks.batch import ValueType
from service.sinks.readings import Column
from service.sinks.reasons import RefusalReason
from spark_batch.transforms.kinds import ExtractField, FieldName, HoistField, InsertField

Mask: TypeAlias = "npt.NDArray[np.bool_]"
INSERTION, EXTRACTION, NESTED = "field insertion", "field extraction", "nested field access"
"""Connect's words for what was being done."""


class Fault(NamedTuple):
    """Why a record cannot be transformed, as Connect says it."""

    reason: RefusalReason
    message: str
    """Never the record's content."""
    exception: str = "org.apache.kafka.connect.errors.DataException"


class Unfit(Exception):
    """What is wrong with a schema is wrong with all of its records, if for another reason where they are null."""

    def __init__(self, fault: Fault, of_nulls: Fault | None = None) -> None:
        super().__init__(fault.message)
        self.fault = fault
        self.of_nulls = fault if of_nulls is None else of_nulls


Faults: TypeAlias = Mapping[int, Fault]
"""By row of the half; the values of these rows mean nothing any more."""


@dataclass(frozen=True, slots=True)
class Origins:
    """What ``InsertField`` adds: where the records of a half come from."""

    topic: str
    """As the routers before have made it."""
    partitions: Column
    offsets: Column
    timestamps: Column
    """Milliseconds since the epoch, or null."""


class Half(Protocol):
    """Keys or values of some records; the same whichever form they have."""

    @property
    def column(self) -> Column:
        """The values; null where there is none."""

    @property
    def kind(self) -> ValueType | None:
        """Their form and schema; None where there are only nulls, and no schema with them."""

    def taken(self, rows: Mask) -> Half:
        """These rows alone."""

    def hoisted(self, hoist: HoistField) -> Half:
        """Each value, null as well, in a record of one field. Raises Unfit."""

    def inserted(self, insert: InsertField, origins: Origins) -> tuple[Half, Faults]:
        """With fields added, of values that are not null. Raises Unfit."""

    def extracted(self, extract: ExtractField) -> tuple[Half, Faults]:
        """One field of each; null stays null. Raises Unfit."""


def additions(insert: InsertField, origins: Origins) -> list[tuple[FieldName, Column]]:
    """The fields that are added, in Connect's order, with a column for each."""
    count = len(origins.offsets)
    columns = (
        (insert.topic, _repeated(origins.topic, count)),
        (insert.partition, origins.partitions),
        (insert.offset, origins.offsets),
        (insert.timestamp, origins.timestamps),
        (insert.static, _repeated(insert.static_value, count)),
    )
    return [(field, column) for field, column in columns if field is not None]


def _repeated(text: str, count: int) -> Column:
    column: Any = pa.repeat(pa.scalar(text, pa.string()), count)
    return column  # type: ignore[no-any-return]


def missing_faults(added: list[tuple[FieldName, Column]]) -> dict[int, Fault]:
    """Rows that lack what a required field of a schema needs: the oldest records have no timestamp."""
    return {
        int(row): Fault(RefusalReason.MISSING_TIMESTAMP, f'Invalid value: null used for required field: "{field.name}"')
        for field, column in added
        if not field.is_optional and column.null_count
        for row in np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
    }


def only_structs(purpose: str, found: str) -> Fault:
    """What has a schema has no fields in it."""
    return Fault(RefusalReason.WRONG_TYPE, f"Only Struct objects supported for [{purpose}], found: {found}")


def only_maps(purpose: str, found: str) -> Fault:
    """What has no schema is no object."""
    return Fault(
        RefusalReason.WRONG_TYPE, f"Only Map objects supported in absence of schema for [{purpose}], found: {found}"
    )


def no_struct_to_look_in(found: str, *, is_nested: bool) -> Unfit:
    """A field is asked for where the schema has none; of a value that is there its class is told."""
    lookup = Fault(RefusalReason.WRONG_TYPE, "Cannot look up fields on non-struct type")
    return Unfit(lookup if is_nested else only_structs(EXTRACTION, found), lookup)


def unknown_field(path: tuple[str, ...]) -> Fault:
    """The schema has no such field."""
    exception = "java.lang.IllegalArgumentException"
    return Fault(RefusalReason.MISSING_FIELD, f"Unknown field: {'.'.join(path)[:200]}", exception)


def duplicate_field(name: str) -> Fault:
    """The schema has a field of that name already."""
    exception = "org.apache.kafka.connect.errors.SchemaBuilderException"
    return Fault(
        RefusalReason.DUPLICATE_FIELD, f"Cannot create field because of field name duplication {name}", exception
    )
