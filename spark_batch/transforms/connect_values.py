"""Values as Connect has them, each with its schema, and their texts.

SimpleHeaderConverter writes what `Values.convertToString` makes of a value, JsonConverter its payload.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from decimal import Decimal as ExactNumber
from typing import Any

from spark_batch.avro_types import Primitive
from spark_batch.literals.floating import floating_text
from spark_batch.literals.reading import Number
from spark_batch.literals.writing import json_text
from spark_batch.transforms.connect_schema import Document
from spark_batch.transforms.java_dates import DAY_MS, java_date_text

DATE = "org.apache.kafka.connect.data.Date"


class TextOfJavaError(ValueError):
    """A date: its text is what Java's own class makes of it."""


@dataclass(frozen=True)
class Moment:
    """A date, a time of day or an instant: Java has one class for the three."""

    millis: int


@dataclass(frozen=True)
class ConnectValue:
    """A value with its schema."""

    schema: Document | None
    """As `JsonConverter` writes it; None for nothing."""
    value: Any
    """None, bool, int, float, Decimal, str, Moment, a tuple of values, or a tuple of pairs of them."""

    @property
    def text(self) -> str | None:
        """What SimpleHeaderConverter writes."""
        return None if self.value is None else _text(self, is_inside=False)

    @property
    def java_text(self) -> str | None:
        """What Java's `toString` says of the value; None where a date is in it, whose text is of Java's own."""
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


def _floating(given: ConnectValue) -> str:
    kind = Primitive.FLOAT if given.schema is not None and given.schema["type"] == "float" else Primitive.DOUBLE
    return floating_text(kind, Number(repr(given.value)))


def _text(given: ConnectValue, *, is_inside: bool) -> str:
    """As `Values.convertToString`; texts inside of lists and maps stand in quotes."""
    value = given.value
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"' if is_inside else value
    if isinstance(value, Moment):
        return java_date_text(value.millis)
    if isinstance(value, float):
        return _floating(given)
    if isinstance(value, tuple):
        if given.schema is not None and given.schema["type"] == "map":
            return f"{{{','.join(':'.join(_text(half, is_inside=True) for half in entry) for entry in value)}}}"
        return f"[{','.join(_text(item, is_inside=True) for item in value)}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _java_text(given: ConnectValue) -> str:
    """Raises TextOfJavaError for dates."""
    value = given.value
    if isinstance(value, Moment):
        raise TextOfJavaError
    if not isinstance(value, tuple):
        return _text(given, is_inside=False)
    if given.schema is not None and given.schema["type"] == "map":
        return f"{{{', '.join('='.join(map(_java_text, entry)) for entry in value)}}}"
    return f"[{', '.join(map(_java_text, value))}]"


def _payload(given: ConnectValue) -> str:
    value = given.value
    if isinstance(value, Moment):
        is_date = given.schema is not None and given.schema.get("name") == DATE
        return str(value.millis // DAY_MS if is_date else value.millis)
    if isinstance(value, ExactNumber):
        return f'"{base64.b64encode(_unscaled(value)).decode()}"'
    if isinstance(value, float):
        return _floating(given)
    if isinstance(value, tuple):
        return _payload_of_many(given)
    return json_text(value if isinstance(value, (bool, str)) or value is None else Number(value))


def _payload_of_many(given: ConnectValue) -> str:
    value = given.value
    if given.schema is None or given.schema["type"] == "array":
        return f"[{','.join(map(_payload, value))}]"
    if all(isinstance(key.value, str) for key, _ in value):
        return f"{{{','.join(f'{_payload(key)}:{_payload(item)}' for key, item in value)}}}"
    return f"[{','.join(f'[{_payload(key)},{_payload(item)}]' for key, item in value)}]"


def _unscaled(number: ExactNumber) -> bytes:
    """A decimal's digits as Connect carries them: two's complement, the highest byte first."""
    sign, digits, _ = number.as_tuple()
    whole = int(ExactNumber((sign, digits, 0)))
    # As many bits as a number of its sign needs, and one for the sign.
    return whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True)
