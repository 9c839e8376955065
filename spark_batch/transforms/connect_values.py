"""Values as Connect has them, each with its schema, and their texts.

SimpleHeaderConverter writes what `Values.convertToString` makes of a value, JsonConverter its payload.
"""

from __future__ import annotations

import base64
import json
import math
from dataclasses import dataclass
from decimal import Context
from decimal import Decimal as ExactNumber
from typing import Any, TypeVar

from spark_batch.avro_types import JsonValue, Primitive
from spark_batch.literals.floating import floating, floating_text
from spark_batch.literals.numbers import unscaled_bytes
from spark_batch.literals.reading import Number
from spark_batch.literals.writing import json_text
from spark_batch.outcome import Reason
from spark_batch.transforms.change import opened
from spark_batch.transforms.connect_schema import DECIMAL, TIMESTAMP, Document
from spark_batch.transforms.form import Inapplicable
from spark_batch.transforms.java_dates import DAY_MS, java_date_text

DATE = "org.apache.kafka.connect.data.Date"
TIME = "org.apache.kafka.connect.data.Time"
_NAME: Document = {"type": "string", "optional": False}
_LOOSE_MAP: Document = {"type": "map"}
"""Of what no schema describes nothing else is told."""
_FLOATING = {"float": Primitive.FLOAT, "double": Primitive.DOUBLE}
_EXACT = Context(prec=10_000)
"""No decimal has more digits; a schema that asks for more is refused with its record."""
T = TypeVar("T")


class TextOfJavaError(ValueError):
    """A date, or bytes: their text is what Java's own class makes of them."""


@dataclass(frozen=True)
class Moment:
    """A date, a time of day or an instant: Java has one class for the three."""

    millis: int


@dataclass(frozen=True)
class ConnectValue:
    """A value with its schema."""

    schema: Document | None
    """As `JsonConverter` writes it; None for nothing, and where there is none."""
    value: Any
    """None, bool, int, float, Decimal, str, bytes, Moment, a tuple of values, or of pairs: of a map, or of a struct."""

    @property
    def text(self) -> str | None:
        """What SimpleHeaderConverter writes."""
        return None if self.value is None else _text(self, is_inside=False)

    @property
    def inner_text(self) -> str:
        """The same as a part of a list, a map or a struct, where texts stand in quotes."""
        return _text(self, is_inside=True)

    @property
    def java_text(self) -> str | None:
        """What Java's `toString` says of the value; None where that is of Java's own (dates, bytes)."""
        try:
            return None if self.value is None else _java_text(self)
        except TextOfJavaError:
            return None

    @property
    def payload(self) -> str:
        """What JsonConverter writes of the value."""
        return _payload(self)

    @property
    def envelope(self) -> str:
        """The same with its schema."""
        return f'{{"schema":{json.dumps(self.schema, separators=(",", ":"))},"payload":{self.payload}}}'


def connect_value(schema: Document | None, value: JsonValue) -> ConnectValue:
    """What JsonConverter reads in JSON whose numbers are `Number`; a canonical value of the schema says the same.

    A null is the default, if its schema has one, as it is for Java's `Struct.get`. Without a schema numbers are int64
    or double, objects are maps. Raises Inapplicable for what the schema does not describe.
    """
    try:
        return _loose(value) if schema is None else _described(schema, value)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Inapplicable(Reason.WRONG_TYPE, "expected a value that its schema describes") from error


def _described(schema: Document, value: JsonValue) -> ConnectValue:
    kind = schema["type"]
    if value is None and schema.get("default") is not None:
        value = opened(json.dumps(schema["default"]).encode())
    if value is None:
        return ConnectValue(schema, None)
    if kind == "struct":
        found = [
            (ConnectValue(_NAME, field["field"]), _described(field, value.get(field["field"])))
            for field in schema["fields"]
        ]
        return ConnectValue(schema, tuple(found))
    if kind == "array":
        return ConnectValue(schema, tuple([_described(schema["items"], item) for item in _checked(list, value)]))
    if kind == "map":
        # Keys that are no texts come as pairs.
        entries = value.items() if isinstance(value, dict) else _checked(list, value)
        own = [(_described(schema["keys"], key), _described(schema["values"], item)) for key, item in entries]
        return ConnectValue(schema, tuple(own))
    return ConnectValue(schema, _scalar(schema, value))


def _scalar(  # noqa: PLR0911 - one line a type
    schema: Document, value: JsonValue
) -> Any:
    kind, name = schema["type"], schema.get("name")
    if kind == "boolean":
        return _checked(bool, value)
    if kind == "string":
        return _checked(str, value)
    if name == DECIMAL:
        scale = int((schema.get("parameters") or {}).get("scale", 0))
        if isinstance(value, Number):
            return ExactNumber(value).quantize(ExactNumber(1).scaleb(-scale), context=_EXACT)
        return ExactNumber(int.from_bytes(base64.b64decode(value), "big", signed=True)).scaleb(-scale, context=_EXACT)
    if kind == "bytes":
        return base64.b64decode(_checked(str, value))
    number = _checked(Number, value)
    if kind in _FLOATING:
        return floating(_FLOATING[kind], number)
    # Of a number with a fraction Java takes the whole part.
    whole = int(number) if number.lstrip("-").isdecimal() else int(float(number))
    if name in {DATE, TIME, TIMESTAMP}:
        return Moment(whole * DAY_MS if name == DATE else whole)
    return whole


def _loose(value: JsonValue) -> ConnectValue:
    if isinstance(value, dict):
        return ConnectValue(
            _LOOSE_MAP, tuple([(ConnectValue(_NAME, name), _loose(item)) for name, item in value.items()])
        )
    if isinstance(value, list):
        return ConnectValue(None, tuple([_loose(item) for item in value]))
    if isinstance(value, Number):
        is_whole = not any(sign in value for sign in ".eE")
        return ConnectValue(None, int(value) if is_whole else floating(Primitive.DOUBLE, value))
    return ConnectValue(None, value)


def _checked(kind: type[T], value: JsonValue) -> T:
    """Raises TypeError; a number that was read is a text to Python alone."""
    if not isinstance(value, kind) or (kind is str and isinstance(value, Number)):
        raise TypeError(kind)
    return value


def _floating(given: ConnectValue) -> str:
    kind = Primitive.FLOAT if given.schema is not None and given.schema["type"] == "float" else Primitive.DOUBLE
    return floating_text(kind, Number(repr(given.value)))


def _is_keyed(given: ConnectValue) -> bool:
    """Whether a tuple is one of pairs."""
    return given.schema is not None and given.schema["type"] in {"map", "struct"}


def _text(given: ConnectValue, *, is_inside: bool) -> str:  # noqa: PLR0911 - one line a type
    """As `Values.convertToString`; texts inside of lists, maps and structs stand in quotes."""
    value = given.value
    if isinstance(value, str):
        return quoted(value) if is_inside else value
    if isinstance(value, bytes):
        return f'"{_base64(value)}"' if is_inside else _base64(value)
    if isinstance(value, Moment):
        return java_date_text(value.millis)
    if isinstance(value, float):
        return _floating(given)
    if isinstance(value, tuple) and _is_keyed(given):
        entries = [f"{_text(key, is_inside=True)}:{_text(item, is_inside=True)}" for key, item in value]
        return f"{{{','.join(entries)}}}"
    if isinstance(value, tuple):
        return f"[{','.join([_text(item, is_inside=True) for item in value])}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def quoted(text: str) -> str:
    """A text inside of a list, a map or a struct, as `Values.convertToString` writes it."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _java_text(given: ConnectValue) -> str:
    """Raises TextOfJavaError for dates and bytes."""
    value = given.value
    if isinstance(value, (Moment, bytes)):
        raise TextOfJavaError
    if not isinstance(value, tuple):
        return _text(given, is_inside=False)
    if not _is_keyed(given):
        return f"[{', '.join([_java_text(item) for item in value])}]"
    if given.schema is not None and given.schema["type"] == "struct":
        shown = [f"{name.value}={_java_text(item)}" for name, item in value if item.value is not None]
        return f"Struct{{{','.join(shown)}}}"
    return f"{{{', '.join([f'{_java_text(key)}={_java_text(item)}' for key, item in value])}}}"


def _payload(given: ConnectValue, *, is_described: bool = True) -> str:
    """`is_described`: within a list of no common schema Java knows none of what is in it either."""
    value = given.value
    if isinstance(value, Moment):
        is_date = given.schema is not None and given.schema.get("name") == DATE
        return str(value.millis // DAY_MS if is_date else value.millis)
    if isinstance(value, ExactNumber):
        return f'"{_base64(unscaled_bytes(value))}"'
    if isinstance(value, bytes):
        return f'"{_base64(value)}"'
    if isinstance(value, float):
        # JSON has no number that is none, or infinite.
        return _floating(given) if math.isfinite(value) else f'"{_floating(given)}"'
    if isinstance(value, tuple):
        return _payload_of_many(given, given.schema or {}, is_described=is_described)
    return json_text(value if isinstance(value, (bool, str)) or value is None else Number(value))


def _payload_of_many(given: ConnectValue, schema: Document, *, is_described: bool) -> str:
    value = given.value
    if not _is_keyed(given):
        is_described = is_described and schema.get("items") is not None
        return f"[{','.join([_payload(item, is_described=is_described) for item in value])}]"
    keys = (schema.get("keys") if is_described else None) or _NAME
    is_described = is_described and (schema["type"] == "struct" or schema.get("values") is not None)
    entries = [(_payload(key), _payload(item, is_described=is_described)) for key, item in value]
    if keys["type"] == "string" and all(isinstance(key.value, str) for key, _ in value):
        return f"{{{','.join([f'{key}:{item}' for key, item in entries])}}}"
    return f"[{','.join([f'[{key},{item}]' for key, item in entries])}]"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
