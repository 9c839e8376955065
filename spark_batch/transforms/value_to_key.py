"""`ValueToKey`: the key is made of fields of the value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spark_batch.avro_types import Record
from spark_batch.transforms.change import Taken
from spark_batch.transforms.connect_schema import Document
from spark_batch.transforms.fields import NULL_KEY, OfFields, Opened
from spark_batch.transforms.form import FormKey, KeyKind, KeyValues, Side
from spark_batch.transforms.halves import Faults, JsonHalf, Origins
from spark_batch.transforms.records import Records
from spark_batch.transforms.shape import Misfit


@dataclass(frozen=True)
class ValueToKey(OfFields):
    """A record of some of the value's fields takes the key's place."""

    fields: tuple[str, ...] = ()

    NAME: ClassVar[str] = "ValueToKey"
    ABOUT: ClassVar[str] = "Makes the key of fields of the value."
    PURPOSE: ClassVar[str] = "copying fields from value to key"
    NAMING_KEY: ClassVar[str] = "fields"
    refuses_nulls: ClassVar[bool] = True
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("fields", "Names of the fields.", KeyKind.NAMES, is_required=True, is_important=True),
        NULL_KEY,
    )

    @classmethod
    def configured(cls, values: KeyValues) -> ValueToKey:
        """Each field once."""
        return cls(Side.KEY, values["replace.null.with.default"], tuple(dict.fromkeys(values["fields"])))

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """The fields in the order of the config; all must be there."""
        for field in self.fields:
            if record.field(field) is None:
                raise Misfit(f"transforms.{name}.fields", field, "a field of the value")
        return tuple(Taken(field, (field,)) for field in self.fields)

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """A field that is not there is null, as in Connect."""
        del value_of
        return {name: fields.get(name) for name in self.fields}

    def renamed(self, record: Record, document: Document) -> tuple[str, Document]:
        """A struct without a name, as Confluent's converter writes it."""
        del record, document
        return "", {"type": "record", "name": "ConnectDefault", "namespace": "io.confluent.connect.avro"}

    def renamed_document(self, document: Document) -> Document:
        """Nothing but the fields goes with them."""
        del document
        return {}

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """The same values with other keys. Raises Unfit."""
        value = records.halves[Side.VALUE]
        key, faults = self.of_texts(value, origins) if isinstance(value, JsonHalf) else self.of_columns(value, origins)
        return (records.with_half(Side.KEY, key),), faults
