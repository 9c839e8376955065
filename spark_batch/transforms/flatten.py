"""`Flatten`: the fields of records in records become fields of the outermost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spark_batch.avro_types import Map, Record
from spark_batch.transforms.change import Taken
from spark_batch.transforms.fields import OfFields, Opened
from spark_batch.transforms.form import FormKey, KeyValues, Side
from spark_batch.transforms.shape import Misfit


@dataclass(frozen=True)
class Flatten(OfFields):
    """The fields of records in records become fields of the outermost."""

    delimiter: str = "."

    NAME: ClassVar[str] = "Flatten"
    ABOUT: ClassVar[str] = "Makes the fields of records in records fields of the outermost, under joined names."
    PURPOSE: ClassVar[str] = "flattening"
    NAMING_KEY: ClassVar[str] = "delimiter"
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("delimiter", "What stands between the parts of a name.", default="."),
    )

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> Flatten:
        """Any text will do."""
        del is_sink
        # Connect's class has no key that says otherwise: a null is read as its default.
        return cls(side, is_null_defaulted=True, delimiter=values["delimiter"] or "")

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """Every field that is no record; arrays stay whole. Raises Misfit for maps, as Connect does."""
        return tuple(self._inside(name, record, ()))

    def _inside(self, name: str, record: Record, path: tuple[str, ...]) -> Iterator[Taken]:
        for field in record.fields:
            own = (*path, field.name)
            if isinstance(field.slot.type, Map):
                raise Misfit(f"transforms.{name}.type", ".".join(own), "no map: Flatten takes records and arrays")
            if isinstance(field.slot.type, Record):
                yield from self._inside(name, field.slot.type, own)
            else:
                yield Taken(self.delimiter.join(own), own)

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """Objects in objects; the later of two fields of one name is the one that stays."""
        made: dict[str, Any] = {}
        self._add(fields, "", made, value_of)
        return made

    def _add(self, fields: Mapping[str, Any], prefix: str, made: dict[str, Any], value_of: Opened) -> None:
        for name, found in fields.items():
            own = f"{prefix}{self.delimiter}{name}" if prefix else name
            value = value_of(found)
            if isinstance(value, dict):
                self._add(value, own, made, lambda item: item)
            else:
                made[own] = found
