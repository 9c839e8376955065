"""The schema of a column as Connect sees it: one model for what JsonConverter and AvroConverter bring.

Names of logical types and of kinds are those of Kafka Connect's ``Schema``
(https://kafka.apache.org/41/javadoc/org/apache/kafka/connect/data/Schema.html); what Avro types become is what
Confluent's AvroData makes of them.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any

from service.sinks.batch import Form, ValueType

_DECIMAL_BYTES_MAX = 4096
"""More digits than any decimal has; a text of megabytes would take minutes."""
_SCALE = re.compile(r"-?\d{1,9}")
_DATA = "org.apache.kafka.connect.data"
DECIMAL, DATE, TIME, TIMESTAMP = (f"{_DATA}.{name}" for name in ("Decimal", "Date", "Time", "Timestamp"))


KEPT_DEFAULT = "headrace.default"
"""In Connect's schemas: see ``Schema.kept_default``."""


class Kind(StrEnum):
    """``Schema.Type`` of Connect."""

    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FLOAT32 = "FLOAT32"
    FLOAT64 = "FLOAT64"
    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    BYTES = "BYTES"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"


class SchemaUnreadable(ValueError):
    """A text that is no schema, or one that Connect has no word for."""


_SINGLE_MAX = 3.4028235677973362e38
"""The greatest double that is rounded to the greatest number of single precision."""
MISFITS = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What comes of reading a value that is not of its schema."""


class Misfit(ValueError):
    """A value is not of its schema; ``path`` leads to it, such as ``order.items[2].price``.

    Keys of maps are content, which no message shows: ``prices{}`` is any value of a map.
    """

    def __init__(self, path: str, what: str) -> None:
        """``what``: the rest of the sentence that begins with the field."""
        super().__init__(path, what)
        self.path, self.what = path, what

    def __str__(self) -> str:
        """As dead letters tell it."""
        return f"field '{self.path}' is {self.what}" if self.path else f"the payload is {self.what}"

    @classmethod
    def at(cls, step: str, error: Exception, value: Any, word: str) -> Misfit:
        """What came of reading a value, seen from the value that it is in; for those who build no paths beforehand.

        ``step``: the field's name, ``[2]``, or ``{}``. ``word``: of the value's schema, as ``Schema.word``.
        """
        if isinstance(error, cls):
            dot = "" if not step or error.path.startswith(("[", "{")) or not error.path else "."
            return cls(f"{step}{dot}{error.path}", error.what)
        return cls(step, NOT_OPTIONAL if value is None else f"not of its schema, {word}")


NOT_OPTIONAL = "null or missing, and its schema says that it is not optional"


@dataclass(frozen=True, slots=True)
class Schema:
    """What values are. Fields are parsed once for all records that share the schema."""

    kind: Kind
    is_optional: bool = False
    name: str | None = None
    """Of a logical type (``DATE``, ``DECIMAL`` …), or of a struct."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    default: Any = None
    """As it stands in the schema's JSON; None where there is none."""
    kept_default: Any = None
    """A default that is to stand for no null: ``replace.null.with.default`` of JsonConverter is false. Only a sink with
    such a key of its own puts it there."""
    fields: Mapping[str, Schema] = field(default_factory=dict)
    """Of a STRUCT, in order."""
    keys: Schema | None = None
    """Of a MAP."""
    values: Schema | None = None
    """Of a MAP or an ARRAY."""
    symbols: tuple[str, ...] = field(default=(), compare=False)
    """Of an enum of Avro: the texts that its values may be. To Connect it is a STRING."""

    @property
    def word(self) -> str:
        """How messages call it."""
        return self.name or self.kind


@lru_cache(maxsize=1024)
def schema_of(kind: ValueType) -> Schema | None:
    """The schema of a column; None where its records brought none. Raises SchemaUnreadable."""
    if kind.form is Form.TEXT:
        return Schema(Kind.STRING, is_optional=True)
    if kind.form is Form.BYTES:
        return Schema(Kind.BYTES, is_optional=True)
    if kind.schema is None:
        return None
    try:
        document = json.loads(kind.schema)
        return _of_connect(document) if kind.form is Form.JSON else _Avro().schema(document, is_optional=False)
    except SchemaUnreadable:
        raise
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        message = f"the schema cannot be read ({type(error).__name__})"
        raise SchemaUnreadable(message) from error


CONNECT_KINDS = {
    "float": Kind.FLOAT32,
    "double": Kind.FLOAT64,
    **{kind.lower(): kind for kind in Kind if kind not in {Kind.FLOAT32, Kind.FLOAT64}},
}
"""By the names that JsonConverter gives them."""


def _of_connect(document: Mapping[str, Any]) -> Schema:
    """As JsonConverter writes it in its envelope."""
    kind = CONNECT_KINDS[document["type"]]
    values = document.get("items") if kind is Kind.ARRAY else document.get("values")
    keys = document.get("keys")
    if (kind in {Kind.ARRAY, Kind.MAP} and values is None) or (kind is Kind.MAP and keys is None):
        message = f"the schema of {'an array' if kind is Kind.ARRAY else 'a map'} did not specify what it holds"
        raise SchemaUnreadable(message)
    parameters = dict(document.get("parameters") or {})
    if kind is Kind.BYTES and document.get("name") == DECIMAL and not _SCALE.fullmatch(str(parameters.get("scale", 0))):
        message = "the scale of a Decimal is no number"
        raise SchemaUnreadable(message)
    return Schema(
        kind,
        is_optional=bool(document.get("optional")),
        name=document.get("name"),
        parameters=parameters,
        default=document.get("default"),
        kept_default=document.get(KEPT_DEFAULT),
        fields={each["field"]: _of_connect(each) for each in document.get("fields") or ()},
        keys=None if keys is None else _of_connect(keys),
        values=None if values is None else _of_connect(values),
    )


_AVRO_KINDS = {
    "boolean": Kind.BOOLEAN,
    "int": Kind.INT32,
    "long": Kind.INT64,
    "float": Kind.FLOAT32,
    "double": Kind.FLOAT64,
    "string": Kind.STRING,
    "enum": Kind.STRING,
    "bytes": Kind.BYTES,
    "fixed": Kind.BYTES,
    "array": Kind.ARRAY,
    "map": Kind.MAP,
    "record": Kind.STRUCT,
}
_AVRO_LOGICAL = {
    ("int", "date"): DATE,
    ("int", "time-millis"): TIME,
    ("long", "timestamp-millis"): TIMESTAMP,
    ("bytes", "decimal"): DECIMAL,
    ("fixed", "decimal"): DECIMAL,
}
"""Other logical types, such as microseconds, are their number or text in Connect."""
_NARROW = {"int8": Kind.INT8, "int16": Kind.INT16}


class _Avro:
    """Reads one Avro schema; a named type may be referred to after its definition."""

    def __init__(self) -> None:
        self._named: dict[str, Mapping[str, Any]] = {}

    def schema(self, document: Any, *, is_optional: bool, namespace: str = "") -> Schema:
        if isinstance(document, list):
            branches = [branch for branch in document if branch != "null"]
            if len(branches) != 1:
                message = "a union of several types"
                raise SchemaUnreadable(message)
            is_optional = is_optional or len(branches) < len(document)
            return self.schema(branches[0], is_optional=is_optional, namespace=namespace)
        if isinstance(document, str):
            if document not in _AVRO_KINDS:
                known = self._named.get(document) or self._named[f"{namespace}.{document}"]
                return self.schema(known, is_optional=is_optional, namespace=namespace)
            document = {"type": document}
        if not isinstance(document["type"], str) or document["type"] not in _AVRO_KINDS:
            return self.schema(document["type"], is_optional=is_optional, namespace=namespace)
        return self._typed(document, is_optional=is_optional, namespace=namespace)

    def _typed(self, document: Mapping[str, Any], *, is_optional: bool, namespace: str) -> Schema:
        text = str(document["type"])
        namespace = str(document.get("namespace", namespace))
        name: str | None = None
        if text in {"record", "enum", "fixed"}:
            name = str(document["name"])
            name = name if "." in name or not namespace else f"{namespace}.{name}"
            self._named[name] = document
        logical = _AVRO_LOGICAL.get((text, str(document.get("logicalType"))))
        parameters = {"scale": str(document.get("scale", 0))} if logical == DECIMAL else {}
        items = document.get("items", document.get("values"))
        return Schema(
            _NARROW.get(str(document.get("connect.type")), _AVRO_KINDS[text]),
            is_optional=is_optional,
            name=logical or document.get("connect.name") or (name if text == "record" else None),
            parameters=parameters,
            fields={each["name"]: self._field(each, namespace=namespace) for each in document.get("fields") or ()},
            keys=Schema(Kind.STRING) if text == "map" else None,
            values=None if items is None else self.schema(items, is_optional=False, namespace=namespace),
            symbols=tuple(document["symbols"]) if text == "enum" else (),
        )

    def _field(self, document: Mapping[str, Any], *, namespace: str) -> Schema:
        found = self.schema(document["type"], is_optional=False, namespace=namespace)
        return found if document.get("default") is None else replace(found, default=document["default"])


def floating(value: Any, *, is_single: bool) -> float:
    """A number of floating point as JsonConverter writes it, where NaN and the infinities are texts.

    Raises TypeError for what is none, and OverflowError for a number that its type would make infinite.
    """
    if isinstance(value, bool | str):
        if value not in {"NaN", "Infinity", "-Infinity"}:
            raise TypeError(type(value).__name__)
        return float(value)
    number = float(value)
    if abs(number) > (_SINGLE_MAX if is_single else sys.float_info.max):
        raise OverflowError(value)
    return number


def unscaled(text: str, scale: int) -> Decimal:
    """A decimal as JsonConverter writes it: base64 of its digits as a whole number.

    The number is in two's complement, the highest byte first. Raises ValueError, and TypeError for what is no text.
    """
    raw = base64.b64decode(text, validate=True)
    if len(raw) > _DECIMAL_BYTES_MAX:
        raise ValueError(len(raw))
    sign, digits, _ = Decimal(int.from_bytes(raw, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -scale))
