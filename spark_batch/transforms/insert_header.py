"""`InsertHeader`: adds one header, the same for all records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import pyarrow as pa

from spark_batch.avro_types import Primitive
from spark_batch.literals.reading import Number
from spark_batch.number_forms import NUMBER_FORMS
from spark_batch.transforms.connect_values import ConnectValue
from spark_batch.transforms.form import FormKey, HeaderForm, KeysRefused, KeyValues
from spark_batch.transforms.halves import ArrowColumn, Faults, Origins
from spark_batch.transforms.records import Records, with_header
from spark_batch.transforms.value_parsing import NotFollowedError, parsed_value


@dataclass(frozen=True)
class InsertHeader:
    """Adds a header, behind those that a record has."""

    header: str
    literal: str
    form: HeaderForm | None = None
    """How a source's headers are written; None: as SimpleHeaderConverter writes them."""

    NAME: ClassVar[str] = "InsertHeader"
    ABOUT: ClassVar[str] = "Adds one header, the same for all records."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("header", "Name of the header.", is_required=True, is_important=True),
        FormKey(
            "value.literal",
            "Its value, read as Connect reads headers: a text, a number, ``true``, ``null``, a date, a list, a map.",
            is_required=True,
            is_important=True,
        ),
    )

    @classmethod
    def configured(cls, values: KeyValues) -> InsertHeader:
        """Refuses lists in lists beyond reason."""
        try:
            parsed_value(values["value.literal"])
        except NotFollowedError as error:
            raise KeysRefused(("value.literal", f"a literal that is not {error}")) from error
        return cls(values["header"], values["value.literal"])

    def refusal(self, form: HeaderForm) -> str | None:
        """What a header converter expects that does not write the literal; None where it does."""
        if form.kind == "bytes":
            return "no header of a literal, which is no bytes, beside ByteArrayConverter"
        number = NUMBER_FORMS.get(form.kind)
        if number is not None and self.value.schema is not None and self.value.schema["type"] != number.connect_type:
            return f"a literal that Connect reads as {number.connect_type}, as the header converter writes"
        if form.kind == "string" and self.value.java_text is None and self.value.value is not None:
            return "no date or time beside StringConverter, which writes Java's text of it"
        return None

    @property
    def value(self) -> ConnectValue:
        """What Connect reads in the literal."""
        return parsed_value(self.literal)

    def edited(self, headers: ArrowColumn) -> ArrowColumn:
        """A column of headers afterwards."""
        value = pa.scalar(self._bytes(), pa.binary())
        values, made = (
            cast("ArrowColumn", pa.repeat(each, len(headers)))
            for each in (value, pa.scalar(self.value.envelope, pa.string()))
        )
        return with_header(headers, self.header, values, made)

    def _bytes(self) -> bytes | None:
        """As the header converter writes it."""
        number = None if self.form is None else NUMBER_FORMS.get(self.form.kind)
        if number is not None and self.value.value is not None:
            return number.written(
                Number(self.value.payload) if number.type is not Primitive.BOOLEAN else self.value.value
            )
        text = self._text()
        return None if text is None else text.encode()

    def _text(self) -> str | None:
        if self.form is None or self.value.value is None:
            return self.value.text
        if self.form.kind == "string":
            return self.value.java_text
        return self.value.envelope if self.form.is_schema_enveloped else self.value.payload

    def names_after(self, names: frozenset[str]) -> frozenset[str]:
        """The names of a record's headers afterwards."""
        return names | {self.header}

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """The same records with one more header."""
        del origins
        return (replace(records, headers=self.edited(records.headers)),), {}
