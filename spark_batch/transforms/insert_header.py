"""`InsertHeader`: adds one header, the same for all records."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, cast

import pyarrow as pa

from spark_batch.avro_types import FLOAT_MAX, Primitive
from spark_batch.literals.floating import floating_text
from spark_batch.literals.reading import Number
from spark_batch.transforms.form import FormKey, KeysRefused, KeyValues
from spark_batch.transforms.halves import ArrowColumn, Faults, Origins
from spark_batch.transforms.records import Records, with_header

_NUMBER = re.compile(r"(?:[+-]?[0-9]+\.?[0-9]*|[+-]\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_LONG_MAX = (1 << 63) - 1
_DIGITS_MAX = 40
_STRUCTURE = frozenset('[]{}"\\,:')
"""Letters at which Connect's parser ends a word."""


class _LiteralError(ValueError):
    """A literal that cannot be carried out; the text says what was expected."""


def header_text(literal: str) -> str | None:
    """The text in which SimpleHeaderConverter writes a literal that Connect's `Values.parseString` has read.

    So `007` is the number 7, `null` no value. Raises _LiteralError for what may be a list, a map or a quoted text.
    """
    word = literal.strip()
    if word == "null" == literal:
        return None
    if not _NUMBER.fullmatch(word):
        is_begun = bool(word) and (word[0] in '[{"+-.,:' or word[0].isdigit())
        if (is_begun or "\\" in word) and _STRUCTURE & set(word) and not _is_time(word):
            raise _LiteralError("a text, a number, true, false or null; lists, maps and quotes are not carried out")
        return literal
    if len(word) > _DIGITS_MAX:
        raise _LiteralError(f"a number of at most {_DIGITS_MAX} letters")
    number = float(word)
    whole = _whole(word)
    if whole is not None:
        if not -_LONG_MAX - 1 <= whole <= _LONG_MAX:
            raise _LiteralError("a number of at most 64 bits")
        return str(whole)
    if not math.isfinite(number) or number == 0:
        raise _LiteralError("a number that a double can hold")
    kind = Primitive.FLOAT if abs(number) <= FLOAT_MAX else Primitive.DOUBLE
    return floating_text(kind, Number(word))


def _is_time(word: str) -> bool:
    """Dates and times are written as they were read."""
    return re.fullmatch(r"(?:\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d\.\d{3}Z", word) is not None


def _whole(word: str) -> int | None:
    """The number, where it has no fraction."""
    from decimal import Decimal  # noqa: PLC0415 - only literals that are numbers need it

    exact = Decimal(word)
    return int(exact) if exact == exact.to_integral_value() else None


@dataclass(frozen=True)
class InsertHeader:
    """Adds a header, behind those that a record has."""

    header: str
    literal: str

    NAME: ClassVar[str] = "InsertHeader"
    ABOUT: ClassVar[str] = "Adds one header, the same for all records."
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("header", "Name of the header.", is_required=True, is_important=True),
        FormKey(
            "value.literal",
            "Its value: a text, a number, ``true``, ``false`` or ``null``.",
            is_required=True,
            is_important=True,
        ),
    )

    @classmethod
    def configured(cls, values: KeyValues) -> InsertHeader:
        """Refuses literals that are lists or maps."""
        try:
            header_text(values["value.literal"])
        except _LiteralError as error:
            raise KeysRefused(("value.literal", str(error))) from error
        return cls(values["header"], values["value.literal"])

    def edited(self, headers: ArrowColumn) -> ArrowColumn:
        """A column of headers afterwards."""
        text = header_text(self.literal)
        value = pa.scalar(None if text is None else text.encode(), pa.binary())
        return with_header(headers, self.header, cast("ArrowColumn", pa.repeat(value, len(headers))))

    def names_after(self, names: frozenset[str]) -> frozenset[str]:
        """The names of a record's headers afterwards."""
        return names | {self.header}

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """The same records with one more header."""
        del origins
        return (replace(records, headers=self.edited(records.headers)),), {}
