"""What a record's bytes say: Avro in Confluent's framing, JSON, text, or bytes.

Framing: a zero byte, the schema's id as four bytes big-endian, the Avro body (Confluent wire format).
"""

from __future__ import annotations

import base64
import io
import json
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import fastavro
from fastavro.types import Schema

_MAGIC = 0
_HEADER_BYTES = 5
SchemaById = Callable[[int], Awaitable[str]]


@dataclass(slots=True)
class Decoder:
    """Decodes keys, values and headers; asks for a schema once."""

    schema_by_id: SchemaById | None = None
    """From the registry; None: Avro stays bytes."""
    _schemas: dict[int, Schema] = field(default_factory=dict)

    async def decode(self, data: bytes | None) -> Any:
        """A JSON-like value; bytes that are no text become ``{"base64": …}``."""
        if data is None:
            return None
        if self.schema_by_id is not None and len(data) >= _HEADER_BYTES and data[0] == _MAGIC:
            return await self._avro(data)
        return plain(data)

    async def _avro(self, data: bytes) -> Any:
        (schema_id,) = struct.unpack(">I", data[1:_HEADER_BYTES])
        if schema_id not in self._schemas and self.schema_by_id is not None:
            self._schemas[schema_id] = fastavro.parse_schema(json.loads(await self.schema_by_id(schema_id)))
        return fastavro.schemaless_reader(io.BytesIO(data[_HEADER_BYTES:]), self._schemas[schema_id], None)


def plain(data: bytes) -> Any:
    """JSON, else text, else bytes."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
    try:
        return json.loads(text)
    except ValueError:
        return text


def as_json_text(value: object) -> str:
    """One line; dates, decimals and bytes of Avro become text."""
    return json.dumps(value, ensure_ascii=False, default=_text)


def _text(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
