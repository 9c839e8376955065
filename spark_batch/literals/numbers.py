"""Numbers as they are written, compared exactly where that is affordable.

JSON sets no limit to a literal. Python's decimals do (and raise beyond it), so literals of absurd length or exponent
have no exact number here, and each caller says what that means for it.
"""

from __future__ import annotations

import decimal
import re

DIGITS_MAX = 400
"""Longer literals have no exact number: no supported type reaches so far."""
EXPONENT_MAX = 100_000
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)$")


def exact_number(literal: str) -> decimal.Decimal | None:
    """The number, or None where the literal is absurdly long or its exponent absurdly large."""
    if len(literal) > DIGITS_MAX:
        return None
    exponent = _EXPONENT.search(literal)
    if exponent is not None and abs(int(exponent.group(1))) > EXPONENT_MAX:
        return None
    return decimal.Decimal(literal)


def unscaled_bytes(number: decimal.Decimal) -> bytes:
    """A decimal's digits as Avro and Connect carry them: two's complement, highest byte first, as short as it goes."""
    sign, digits, _ = number.as_tuple()
    whole = int(decimal.Decimal((sign, digits, 0)))
    # As many bits as a number of its sign needs, and one for the sign.
    return whole.to_bytes((whole if whole >= 0 else ~whole).bit_length() // 8 + 1, "big", signed=True)


def is_zero(literal: str) -> bool:
    """Whether every digit before the exponent is a zero."""
    return not _EXPONENT.sub("", literal).strip("-.0")


def plain_digits(literal: str, *, digits_max: int) -> str | None:
    """The digits of a whole number of at most that many digits (however it is written), or None."""
    number = exact_number(literal)
    if number is None or number.adjusted() >= digits_max or number != number.to_integral_value():
        return None
    return str(int(number))
