r"""JSON text exactly as Jackson's default generator writes it, which is what Kafka Connect stores.

Facts from `com.fasterxml.jackson.core` (2.x): text stays UTF-8 (nothing outside ASCII is escaped, U+2028
included); quote and backslash are escaped; of the control characters \b \t \n \f \r have short forms,
the others are \u00XX with capital digits; doubles as `Double.toString` writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from service.domain.java_numbers import java_double

_ESCAPED = re.compile(r'[\x00-\x1f"\\]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def to_json(value: object) -> str:
    """Write text, numbers, booleans, null, and maps and lists of them, without blanks.

    Raises ValueError for a NaN or infinity, a lone surrogate, a map key that is not text, any other type.
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return _double(value) if isinstance(value, float) else str(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_text(key)}:{to_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return "[" + ",".join(to_json(item) for item in value) + "]"
    raise ValueError(f"an offset may hold text, numbers, booleans and null, not {type(value).__name__}")


def _text(text: object) -> str:
    if not isinstance(text, str):
        raise ValueError(f"names in offsets must be text, not {type(text).__name__}")  # noqa: TRY004 - callers catch one class for everything unwritable
    text.encode()  # a lone surrogate raises UnicodeEncodeError, a ValueError
    return '"' + _ESCAPED.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}", text) + '"'


def _double(number: float) -> str:
    if not math.isfinite(number):
        raise ValueError("an offset may not hold NaN or infinity")
    return java_double(number)
