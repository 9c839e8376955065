"""Numbers of floating point as Java has them: the nearest one to a literal, and its text.

Written as Java 19 and later write them (the shortest digits that mean the number, JDK-4511638); an older Java may write
further digits of the same number.
"""

from __future__ import annotations

import math
import struct
from decimal import Decimal as ExactNumber
from typing import TYPE_CHECKING

import numpy as np

from spark_batch.avro_types import AvroType, Primitive

if TYPE_CHECKING:
    from spark_batch.literals.reading import Number

_FLOAT_MAX = float(np.finfo(np.float32).max)
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
"""Between these Java writes floating point without an exponent."""


def floating(kind: AvroType, literal: Number) -> float:
    """The nearest number of the type; of whole numbers there is no negative zero."""
    number = 0.0 if literal == "-0" else float(literal)
    return number if kind is Primitive.DOUBLE else _single(number, literal)


def _single(number: float, literal: str) -> float:
    """The single that is nearest to the literal, and not only to the double that is nearest to it."""
    if not math.isfinite(number):
        return number
    if abs(number) >= _FLOAT_MAX:
        return math.copysign(_FLOAT_MAX, number)
    nearest = np.float32(number)
    if float(nearest) == number:
        return number
    other = np.nextafter(nearest, np.float32(math.copysign(math.inf, number - float(nearest))))
    rest = ExactNumber(literal).compare(ExactNumber(number))
    if rest and (float(nearest) + float(other)) / 2 == number:
        nearest = max(nearest, other) if rest > 0 else min(nearest, other)
    return float(nearest)


def floating_text(kind: AvroType, literal: Number) -> str:
    """As `Double.toString` and `Float.toString` write it."""
    number = floating(kind, literal)
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"
    digits, exponent = _shortest(number, is_single=kind is Primitive.FLOAT)
    sign = "-" if struct.pack(">d", number)[0] & 0x80 else ""
    if not number:
        return f"{sign}0.0"
    if _PLAIN_FROM <= abs(number) < _PLAIN_BELOW:
        whole = digits[: exponent + 1].ljust(exponent + 1, "0") if exponent >= 0 else "0"
        fraction = digits[exponent + 1 :] if exponent >= 0 else digits.rjust(len(digits) - exponent - 1, "0")
        return f"{sign}{whole}.{fraction or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _shortest(number: float, *, is_single: bool) -> tuple[str, int]:
    """Digits, and the power of ten of the first; of one digit, Java takes the nearest of two where that is nearer."""
    shown = str(np.format_float_scientific(np.float32(number) if is_single else number, trim="-"))
    mantissa, _, exponent = shown.lstrip("-").partition("e")
    if "." not in mantissa and number:
        two, _, its_exponent = f"{abs(number):.1e}".partition("e")
        is_same = float(np.float32(f"{two}e{its_exponent}")) == abs(number) if is_single else None
        if is_same or (is_same is None and float(f"{two}e{its_exponent}") == abs(number)):
            mantissa, exponent = two.removesuffix(".0"), its_exponent
    return mantissa.replace(".", ""), int(exponent)
