"""The verdict on one parsed payload under a contract, and its canonical form when it is valid.

The canonical form (see `avro_defaults`) leaves nothing to interpret, so the columns of a second, small job can turn it
into output without checks of their own.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from dataclasses import dataclass
from decimal import Decimal as ExactNumber
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, NoReturn, cast

from spark_batch.avro_types import (
    FLOAT_BOUND,
    INTEGER_BITS,
    UUID,
    Array,
    AvroType,
    Decimal,
    Enum,
    Field,
    Fixed,
    JsonValue,
    Map,
    Primitive,
    Record,
    Slot,
    Temporal,
    Uuid,
)
from spark_batch.exact.coercing import taken_for
from spark_batch.exact.instants import InstantError, parse_instant
from spark_batch.literals.numbers import DIGITS_MAX, exact_number, is_zero
from spark_batch.literals.reading import Number, RejectedPayload
from spark_batch.outcome import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_batch.coercion import Coercion

_INTEGER = re.compile(r"-?[0-9]+")
_UUID = re.compile(UUID)


@dataclass(frozen=True)
class CanonicalRecord:
    """A valid payload: its canonical text, and the bits of the fields in which a text was taken for their value."""

    text: str
    coerced: int


def canonical_record(record: Record, value: JsonValue, *, is_unknown_refused: bool) -> CanonicalRecord:
    """The canonical form of a valid payload; raises RejectedPayload, naming the field, for any other."""
    judge = _Judge(is_unknown_refused=is_unknown_refused)
    return CanonicalRecord(judge.record(record, value, ""), judge.coerced)


class _Judge:
    """Walks type and value together."""

    def __init__(self, *, is_unknown_refused: bool) -> None:
        self._is_unknown_refused = is_unknown_refused
        self.coerced = 0

    def record(self, record: Record, value: JsonValue, path: str) -> str:
        if not isinstance(value, dict):
            _refuse(Reason.WRONG_TYPE, path, "an object")
        if self._is_unknown_refused:
            known = {field.json_name for field in record.fields}
            unknown = next((name for name in value if name not in known), None)
            if unknown is not None:
                _refuse(Reason.UNKNOWN_FIELD, _join(path, unknown), "no field of that name")
        texts = [f"{encode_basestring(f.name)}:{self._field(f, value, path)}" for f in record.fields]
        return f"{{{','.join(texts)}}}"

    def _field(self, field: Field, values: dict[str, JsonValue], path: str) -> str:
        own = _join(path, field.json_name)
        if field.json_name in values:
            return self.slot(field.slot, values[field.json_name], own)
        if field.default is not None:
            return field.default
        if field.slot.is_nullable:
            return "null"
        return _refuse(Reason.MISSING_FIELD, own, "a value")

    def slot(self, slot: Slot, value: JsonValue, path: str) -> str:
        if slot.coercion is not None:
            value = self._taken(slot, slot.coercion, value, path)
        if value is None:
            if slot.is_nullable:
                return "null"
            _refuse(Reason.NULL_NOT_ALLOWED, path, "a value other than null")
        return self._value(slot.type, value, path)

    def _taken(self, slot: Slot, coercion: Coercion, value: JsonValue, path: str) -> JsonValue:
        try:
            taken = taken_for(slot, value)
        except InstantError as error:
            return _refuse(error.reason, path, str(error).removeprefix("expected "))
        if taken is not value:
            self.coerced |= coercion.mask
        return taken

    def _value(self, kind: AvroType, value: JsonValue, path: str) -> str:
        if isinstance(kind, Record):
            return self.record(kind, value, path)
        if isinstance(kind, Array):
            if not isinstance(value, list):
                _refuse(Reason.WRONG_TYPE, path, "an array")
            return f"[{','.join(self.slot(kind.items, item, f'{path}[{at}]') for at, item in enumerate(value))}]"
        if isinstance(kind, Map):
            if not isinstance(value, dict):
                _refuse(Reason.WRONG_TYPE, path, "an object")
            entries = (
                f"{encode_basestring(key)}:{self.slot(kind.values, item, _join(path, key))}"
                for key, item in value.items()
            )
            return f"{{{','.join(entries)}}}"
        return _scalar(kind, value, path)


def _scalar(kind: AvroType, value: JsonValue, path: str) -> str:
    if isinstance(kind, Temporal):
        return _instant(kind, value, path)
    if isinstance(kind, Decimal):
        return _decimal(kind, value, path)
    if isinstance(kind, (Fixed, Enum, Uuid)) or kind in {Primitive.STRING, Primitive.BYTES}:
        return _text(kind, value, path)
    return _PRIMITIVES[cast("Primitive", kind)](value, path)


def _text(kind: AvroType, value: JsonValue, path: str) -> str:
    if not isinstance(value, str) or isinstance(value, Number):
        _refuse(Reason.WRONG_TYPE, path, "text")
    if isinstance(kind, Enum) and value not in kind.symbols:
        _refuse(Reason.UNKNOWN_SYMBOL, path, "a symbol of the enum")
    if isinstance(kind, Uuid) and not _UUID.fullmatch(value):
        _refuse(Reason.WRONG_TYPE, path, "a UUID")
    if isinstance(kind, Fixed) or kind is Primitive.BYTES:
        _refuse_bad_base64(value, path, size=getattr(kind, "size", None))
    return encode_basestring(value)


def _refuse_bad_base64(value: str, path: str, *, size: int | None) -> None:
    try:
        raw = base64.b64decode(value.encode(), validate=True)
    except (binascii.Error, ValueError):
        _refuse(Reason.WRONG_TYPE, path, "base64 text")
    if base64.b64encode(raw).decode() != value:
        _refuse(Reason.WRONG_TYPE, path, "base64 text")
    if size is not None and len(raw) != size:
        _refuse(Reason.OUT_OF_RANGE, path, f"base64 text of {size} bytes")


def _boolean(value: JsonValue, path: str) -> str:
    if not isinstance(value, bool):
        _refuse(Reason.WRONG_TYPE, path, "a boolean")
    return "true" if value else "false"


def _integer(kind: Primitive) -> Callable[[JsonValue, str], str]:
    half = 1 << (INTEGER_BITS[kind] - 1)

    def check(value: JsonValue, path: str) -> str:
        if not isinstance(value, Number) or not _INTEGER.fullmatch(value):
            _refuse(Reason.WRONG_TYPE, path, "an integer")
        if len(value) > DIGITS_MAX or not -half <= int(value) < half:
            _refuse(Reason.OUT_OF_RANGE, path, f"an integer of {INTEGER_BITS[kind]} bits")
        return str(int(value))

    return check


def _double(value: JsonValue, path: str) -> str:
    if not isinstance(value, Number):
        _refuse(Reason.WRONG_TYPE, path, "a number")
    nearest = float(value)
    if math.isinf(nearest):
        _refuse(Reason.OUT_OF_RANGE, path, "a number in the range of its type")
    return repr(nearest) if exact_number(value) is None else value


def _float(value: JsonValue, path: str) -> str:
    written = _double(value, path)
    if ExactNumber(written).copy_abs() >= FLOAT_BOUND:
        _refuse(Reason.OUT_OF_RANGE, path, "a number in the range of its type")
    return written


def _nothing(value: JsonValue, path: str) -> str:  # noqa: ARG001 - nulls never come here
    return _refuse(Reason.WRONG_TYPE, path, "null")


_PRIMITIVES: dict[Primitive, Callable[[JsonValue, str], str]] = {
    Primitive.NULL: _nothing,
    Primitive.BOOLEAN: _boolean,
    Primitive.INT: _integer(Primitive.INT),
    Primitive.LONG: _integer(Primitive.LONG),
    Primitive.FLOAT: _float,
    Primitive.DOUBLE: _double,
}


def _decimal(kind: Decimal, value: JsonValue, path: str) -> str:
    if not isinstance(value, Number):
        _refuse(Reason.WRONG_TYPE, path, "a number")
    number = ExactNumber(0) if is_zero(value) else exact_number(value)
    sign, digits, exponent = (0, (), "F") if number is None else number.as_tuple()
    if not isinstance(exponent, int):
        _refuse(Reason.OUT_OF_RANGE, path, "a number of a sensible length")
    unscaled = "".join(map(str, digits)).lstrip("0")
    stripped = unscaled.rstrip("0")
    exponent += len(unscaled) - len(stripped)
    if not stripped:
        return "0"
    if -exponent > kind.scale or len(stripped) + exponent > kind.precision - kind.scale:
        _refuse(Reason.OUT_OF_RANGE, path, f"at most {kind.precision} digits, {kind.scale} of them after the point")
    plain = f"{stripped}{'0' * exponent}" if exponent >= 0 else stripped.rjust(1 - exponent, "0")
    if exponent < 0:
        plain = f"{plain[:exponent]}.{plain[exponent:]}"
    return f"-{plain}" if sign else plain


def _instant(kind: Temporal, value: JsonValue, path: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str):
        _refuse(Reason.WRONG_TYPE, path, f"a {kind.value} as number or ISO 8601 text")
    try:
        return str(parse_instant(kind, value, is_number=isinstance(value, Number)))
    except InstantError as error:
        return _refuse(error.reason, path, str(error).removeprefix("expected "))


def _join(path: str, name: str) -> str:
    return f"{path}.{name[:100]}" if path else name[:100]


def _refuse(reason: Reason, path: str, expected: str) -> NoReturn:
    raise RejectedPayload(reason, f"{path or 'record'}: expected {expected}")
