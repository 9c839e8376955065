"""MySQL's binary JSON as the server's own text of it: ``{"a": 1, "b": [true, null]}``.

Format: "JSON binary format" in ``sql-common/json_binary.h`` of MySQL's source. MariaDB has no such format: its JSON is
text already. Doubles have the fewest digits that mean the same number.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from decimal import Decimal

import numpy as np

from fetchers.mysql_cdc.events import MalformedError
from fetchers.mysql_cdc.rows import DIGIT_BYTES
from fetchers.mysql_cdc.values import GROUP_DIGITS, decimals

DEPTH_MAX = 100
"""MySQL's own limit of nesting."""
FIXED_DIGITS = 15
"""Places on either side of the point up to which a double is written without an exponent (``DBL_DIG``)."""
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_NUMBERS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_DOUBLE, _STRING, _OPAQUE = 11, 12, 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_INLINE = {_LITERAL, 5, 6}
_INLINE_LARGE = {_LITERAL, 5, 6, 7, 8}
_DECIMAL, _DATE, _TIME, _MOMENTS = 246, 10, 11, (7, 12)


def json_text(value: bytes) -> str:
    """The text; raises ``MalformedError``."""
    if not value:
        return "null"  # what the server makes of a row of before the column was there
    try:
        return _text(value[0], value, 1, 0)
    except (struct.error, IndexError, UnicodeDecodeError, RecursionError):
        raise MalformedError("a JSON value is damaged") from None


def _text(kind: int, data: bytes, at: int, depth: int) -> str:  # noqa: PLR0911 - one line a type
    if depth > DEPTH_MAX:
        raise MalformedError("a JSON value is nested deeper than 100 levels")
    if kind in (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY):
        return _nested(kind, data, at, depth)
    if kind == _LITERAL:
        return _LITERALS[data[at]] if data[at] in _LITERALS else _refused(kind)
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == _DOUBLE:
        (number,) = struct.unpack_from("<d", data, at)
        return _double(number) if math.isfinite(number) else _refused(kind)
    if kind == _STRING:
        length, at = _length(data, at)
        return _quoted(_cut(data, at, length).decode())
    if kind == _OPAQUE:
        length, begin = _length(data, at + 1)
        return _opaque(data[at], _cut(data, begin, length))
    return _refused(kind)


def _refused(kind: int) -> str:
    raise MalformedError(f"a JSON value has an unknown type ({kind})")


def _cut(data: bytes, at: int, length: int) -> bytes:
    found = data[at : at + length]
    if len(found) < length:
        raise MalformedError("a JSON value is damaged")
    return found


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first."""
    length = 0
    for place in range(5):
        length |= (data[at + place] & 0x7F) << (7 * place)
        if data[at + place] < 0x80:  # noqa: PLR2004
            return length, at + place + 1
    raise MalformedError("a JSON value is damaged")


def _nested(kind: int, data: bytes, at: int, depth: int) -> str:
    is_large, is_object = kind in (_LARGE_OBJECT, _LARGE_ARRAY), kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    size, form = (4, "<I") if is_large else (2, "<H")
    count, length = struct.unpack_from(form, data, at)[0], struct.unpack_from(form, data, at + size)[0]
    own = _cut(data, at, length)  # offsets are from the beginning of what is nested
    entry = 2 * size
    keys = []
    if is_object:
        for number in range(count):
            begin = struct.unpack_from(form, own, entry + number * (size + 2))[0]
            width = struct.unpack_from("<H", own, entry + number * (size + 2) + size)[0]
            keys.append(_quoted(_cut(own, begin, width).decode()))
        entry += count * (size + 2)
    parts = []
    for number in range(count):
        place = entry + number * (1 + size)
        inner = own[place]
        if inner in (_INLINE_LARGE if is_large else _INLINE):
            text = _text(inner, own, place + 1, depth + 1)
        else:
            text = _text(inner, own, struct.unpack_from(form, own, place + 1)[0], depth + 1)
        parts.append(f"{keys[number]}: {text}" if is_object else text)
    return f"{{{', '.join(parts)}}}" if is_object else f"[{', '.join(parts)}]"


def _opaque(kind: int, data: bytes) -> str:
    if kind == _DECIMAL:
        return _decimal(data)
    if kind in (_DATE, _TIME, *_MOMENTS):
        (packed,) = struct.unpack("<q", data)
        sign, size = "-" if packed < 0 else "", abs(packed)
        clock, micros = size >> 24, size & 0xFFFFFF
        if kind == _TIME:
            return f'"{sign}{clock >> 12 & 1023:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"'
        months = clock >> 22
        day = f"{months // 13:04d}-{months % 13:02d}-{clock >> 17 & 31:02d}"
        if kind == _DATE:
            return f'"{day}"'
        return f'"{day} {clock >> 12 & 31:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"'
    return f'"base64:type{kind}:{base64.b64encode(data).decode()}"'


def _double(number: float) -> str:
    """As ``my_gcvt`` of MySQL's ``dtoa.cc``: without an exponent while the point is near the digits."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    point = len(digits) + int(exponent)
    if not number or -FIXED_DIGITS < point <= FIXED_DIGITS:
        text = f"{Decimal(repr(number)).normalize():f}"
        return text if "." in text else f"{text}.0"
    first, rest = str(digits[0]), "".join(map(str, digits[1:]))
    return f"{'-' * sign}{first}{'.' * bool(rest)}{rest}e{point - 1}"


def _decimal(data: bytes) -> str:
    precision, scale = data[0], data[1]
    groups = [divmod(digits, GROUP_DIGITS) for digits in (precision - scale, scale)]
    width = sum(4 * whole + DIGIT_BYTES[rest] for whole, rest in groups if whole >= 0)
    if not 0 < precision <= 65 or scale > precision or width != len(data) - 2:  # noqa: PLR2004 - MySQL's most digits
        raise MalformedError("a DECIMAL in a JSON value is damaged")
    octets = np.frombuffer(data[2:], np.uint8).reshape(1, -1)
    made, wrong = decimals(octets, np.ones(1, bool), precision=precision, scale=scale)
    if wrong:
        raise MalformedError(f"a DECIMAL in a JSON value is damaged: {wrong[0]}")
    return f"{made[0].as_py():f}"
