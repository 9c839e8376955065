"""Numbers as Java prints them, for what clients and files of Kafka Connect have always seen.

Source: the pages of ``Double.toString``, ``Float.toString`` and ``BigDecimal.toString`` in the API of Java 17.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np

_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7


def java_double(number: float) -> str:
    """As ``Double.toString`` writes it: ``1.0``, ``1.0E10``, ``NaN``."""
    return _printed(number, repr(number))


def java_float(number: float) -> str:
    """As ``Float.toString`` writes the nearest number of 32 bits: ``0.1``."""
    single = np.float32(number)
    return _printed(float(single), str(single))


def _printed(number: float, shortest: str) -> str:
    """``shortest``: the fewest digits that are read back as the same number."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).normalize().as_tuple()
    text, power = "".join(map(str, digits)), len(digits) - 1 + int(exponent)
    if number == 0 or _PLAIN_FROM <= abs(number) < _PLAIN_BELOW:
        plain = f"{Decimal(shortest):f}"
        return plain if "." in plain else f"{plain}.0"
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{power}"
