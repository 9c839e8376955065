"""What a record's bytes say: Avro in Confluent's framing, JSON, text, or bytes.

Framing: a zero byte, the schema's id as four bytes big-endian, the Avro body (Confluent wire format). Nothing is shown
as something that it is not quite: what one form cannot hold as it is written takes the next, so that a dead letter
shows why it is one.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException
from fastavro.types import Schema

from service.registry.errors import SchemaNotFound
from spark_batch.literals.reading import RejectedPayload, parse

_MAGIC = 0
_HEADER_BYTES = 5
_ID_MAX = 2**31 - 1
_SCHEMAS_MAX = 1_000
SchemaById = Callable[[int], Awaitable[str]]
_BAD_BODY = (ArithmeticError, EOFError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What fastavro raises for bytes that its schema did not write."""


@dataclass(slots=True)
class Decoder:
    """Decodes keys, values and headers; asks for a schema once."""

    schema_by_id: SchemaById | None = None
    """From the registry; None: Avro stays bytes."""
    has_missed_schemas: bool = False
    """Whether there was what looks like Avro, and no registry to ask."""
    _schemas: dict[int, Schema | None] = field(default_factory=dict)
    """None: the registry has none, or none that can be read by."""

    async def decode(self, data: bytes | None) -> Any:
        """A JSON-like value; bytes that are no text become ``{"base64": …}``.

        Raises RegistryRetriable and RegistryFatal; a schema that is not there is no failure, since other
        serializers write a zero byte first too.
        """
        if data is None:
            return None
        if len(data) < _HEADER_BYTES or data[0] != _MAGIC:
            return plain(data)
        if self.schema_by_id is None:
            self.has_missed_schemas = True
            return plain(data)
        return framed(data, await self._schema(int.from_bytes(data[1:_HEADER_BYTES], "big"), self.schema_by_id))

    async def _schema(self, schema_id: int, schema_by_id: SchemaById) -> Schema | None:
        if schema_id > _ID_MAX:
            return None
        if schema_id not in self._schemas:
            if len(self._schemas) >= _SCHEMAS_MAX:
                self._schemas.clear()
            try:
                self._schemas[schema_id] = parsed(await schema_by_id(schema_id))
            except SchemaNotFound:
                self._schemas[schema_id] = None
        return self._schemas[schema_id]


def framed(data: bytes, schema: Schema | None) -> Any:
    """Avro in Confluent's framing by its schema, as ``parsed`` gave it; as ``plain`` where it is not that."""
    try:
        return plain(data) if schema is None else _avro(schema, data[_HEADER_BYTES:])
    except _BAD_BODY:
        return plain(data)


def plain(data: bytes) -> Any:
    """JSON where that is strict and keeps every value, else text, else bytes as ``{"base64": …}``."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return as_base64(data)
    try:
        # By the conversion's own rules: no key twice, no NaN, no lone surrogate, no nesting without end.
        parse(data)
        return json.loads(text, parse_float=_kept_float)
    except (RejectedPayload, ValueError, ArithmeticError, RecursionError):
        return text


def as_base64(data: bytes) -> dict[str, str]:
    """The form of bytes that are no text."""
    return {"base64": base64.b64encode(data).decode()}


def as_json_text(value: object, *, is_ascii: bool = False) -> str:
    """One line of valid JSON; dates, decimals and bytes of Avro become text, and so do NaN and the infinities."""
    try:
        return json.dumps(value, ensure_ascii=is_ascii, allow_nan=False, default=_text)
    except ValueError:
        return json.dumps(_finite(value), ensure_ascii=is_ascii, allow_nan=False, default=_text)


def parsed(schema: str) -> Schema | None:
    """A schema to decode by; None where it is none."""
    try:
        return fastavro.parse_schema(json.loads(schema))
    except (SchemaParseException, *_BAD_BODY):
        return None


def _avro(schema: Schema, body: bytes) -> Any:
    """Raises one of `_BAD_BODY` where the body is not what the schema says, or nests too deep for a line."""
    stream = io.BytesIO(body)
    value = fastavro.schemaless_reader(stream, schema, None)
    if stream.read(1):
        message = "bytes are left"
        raise ValueError(message)
    as_json_text(value)
    return value


def _kept_float(digits: str) -> float:
    """Raises ValueError, or ArithmeticError, where reading the number would change it."""
    number = float(digits)
    if not math.isfinite(number) or Decimal(repr(number)) != Decimal(digits):
        message = "a float cannot hold these digits"
        raise ValueError(message)
    return number


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        # As Protobuf's JSON has them.
        return "NaN" if math.isnan(value) else f"{'-' * (value < 0)}Infinity"
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value


def _text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
