"""Values of a log as Arrow columns: one function for each type, each for a whole column of row images.

Formats: ``log_event`` and ``field`` of MySQL's source (``my_time_packed_from_binary``, ``bin2decimal``); the numbers
are checked against the servers' own texts in ``tests/faults/test_binlog.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.mysql_cdc.events import MalformedError
from fetchers.mysql_cdc.rows import DIGIT_BYTES, Images, Numbers
from fetchers.mysql_cdc.table_map import DATETIME2, SET, TIME2, TIMESTAMP2, Column

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
GROUP_DIGITS = 9
MICROS = 1_000_000
_DAY_MICROS = 86_400 * MICROS
_LIMBS = 8
"""Of 32 bits: 65 digits, the most of a DECIMAL, need 216 bits."""


def octets_of(images: Images, begins: Numbers, width: int) -> Numbers:
    """Bytes of values of one width: as many rows as values, ``width`` columns."""
    found: Numbers = images.octets[begins[:, None] + np.arange(width)]
    return found


def big_endian(octets: Numbers) -> Numbers:
    """Up to eight bytes each as a whole number, the most significant first."""
    made = np.zeros(len(octets), np.int64)
    for at in range(octets.shape[1]):
        made = made << 8 | octets[:, at]
    return made


def whole(octets: Numbers, *, is_unsigned: bool) -> Numbers:
    """Numbers of 1, 2, 3, 4 or 8 bytes, the least significant first; unsigned ones of 8 bytes are ``uint64``."""
    width = octets.shape[1]
    if width == 3:  # noqa: PLR2004 - MEDIUMINT, which no machine has
        made = big_endian(octets[:, ::-1])
        return made if is_unsigned else np.where(made >= 1 << 23, made - (1 << 24), made)
    kind = f"<{'u' if is_unsigned else 'i'}{width}"
    return np.ascontiguousarray(octets).view(kind)[:, 0]


def nullable(values: Numbers, is_valid: Numbers, kind: Any = None) -> Any:
    """An Arrow column."""
    return pa.array(values, kind, mask=None if is_valid.all() else ~is_valid)


def _day_numbers(year: Numbers, month: Numbers, day: Numbers) -> tuple[Numbers, Numbers]:
    """Days since 1970-01-01 by the Gregorian calendar, and which are days at all: 0000-00-00 and 2024-02-31 are not."""
    is_month = (month >= 1) & (month <= 12)  # noqa: PLR2004 - months
    months = ((year - 1970) * 12 + np.where(is_month, month, 1) - 1).astype("datetime64[M]")
    first = months.astype("datetime64[D]").astype(np.int64)
    last = (months + 1).astype("datetime64[D]").astype(np.int64)
    days = first + day - 1
    return days, is_month & (day >= 1) & (days < last)


def dates(octets: Numbers) -> tuple[Numbers, Numbers]:
    """DATE: days since the epoch, and which are days."""
    made = big_endian(octets[:, ::-1])
    return _day_numbers(made >> 9, made >> 5 & 15, made & 31)


def _fraction(octets: Numbers, digits: int) -> Numbers:
    """Microseconds of the bytes behind a time."""
    width = (digits + 1) // 2
    made: Numbers = big_endian(octets[:, octets.shape[1] - width :]) * 10 ** (6 - 2 * width)
    return made


def datetimes(octets: Numbers, digits: int) -> tuple[Numbers, Numbers]:
    """DATETIME: microseconds since the epoch as if it were UTC, and which have a day."""
    packed = big_endian(octets[:, :5]) - 0x8000000000
    months = packed >> 22
    days, is_day = _day_numbers(months // 13, months % 13, packed >> 17 & 31)
    seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
    return (days * 86_400 + seconds) * MICROS + _fraction(octets, digits), is_day & (packed >= 0)


def timestamps(octets: Numbers, digits: int) -> tuple[Numbers, Numbers]:
    """TIMESTAMP: microseconds since the epoch, UTC; 0 stands for 0000-00-00."""
    micros = big_endian(octets[:, :4]) * MICROS + _fraction(octets, digits)
    return micros, micros != 0


def times(octets: Numbers, digits: int) -> Numbers:
    """TIME: microseconds from −838:59:59 to 838:59:59.

    The value and its fraction are one number with an offset, so that a negative time with a fraction is stored as the
    next lower second and what is to be added to it.
    """
    width = (digits + 1) // 2
    packed = big_endian(octets) - (0x800000 << 8 * width)
    size = np.abs(packed)
    clock, fraction = size >> 8 * width, size & ((1 << 8 * width) - 1)
    seconds = (clock >> 12 & 1023) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
    made: Numbers = np.sign(packed) * (seconds * MICROS + fraction * 10 ** (6 - 2 * width))
    return made


def moments(column: Column, octets: Numbers) -> tuple[Numbers, Numbers]:
    """Of the three types with a fraction: microseconds, and which values there is a moment for."""
    if column.type == DATETIME2:
        return datetimes(octets, column.scale)
    if column.type == TIMESTAMP2:
        return timestamps(octets, column.scale)
    assert column.type == TIME2  # noqa: S101 - the caller knows the types
    return times(octets, column.scale), np.ones(len(octets), bool)


def decimals(octets: Numbers, is_valid: Numbers, *, precision: int, scale: int) -> Any:
    """DECIMAL, exact: groups of nine digits, of which the outer ones may be shorter; 32-bit limbs add them up."""
    is_negative = octets[:, 0] < 0x80  # noqa: PLR2004 - the sign's bit
    digits = octets ^ np.where(is_negative, 0xFF, 0).astype(np.uint8)[:, None]
    digits[:, 0] ^= 0x80
    limbs = [np.zeros(len(octets), np.uint64) for _ in range(_LIMBS if precision > 38 else 4)]  # noqa: PLR2004
    at = 0
    before, behind = divmod(precision - scale, GROUP_DIGITS), divmod(scale, GROUP_DIGITS)
    for count in (before[1], *[GROUP_DIGITS] * (before[0] + behind[0]), behind[1]):
        if not count:
            continue
        width = DIGIT_BYTES[count]
        group = big_endian(digits[:, at : at + width])
        if (group[is_valid] >= 10**count).any():
            raise MalformedError("a DECIMAL of the log has digits that are none")
        carry = group.astype(np.uint64)
        for place, limb in enumerate(limbs):
            total = limb * np.uint64(10**count) + carry
            limbs[place], carry = total & np.uint64(0xFFFFFFFF), total >> np.uint64(32)
        at += width
    made = np.stack(limbs, axis=1).astype("<u4")
    if is_negative.any():
        made = np.where(is_negative[:, None], _negated(made), made)
    kind: Any = pa.decimal256(precision, scale) if len(limbs) == _LIMBS else pa.decimal128(precision, scale)
    mask = None if is_valid.all() else pa.array(is_valid).buffers()[1]
    return pa.Array.from_buffers(kind, len(octets), [mask, pa.py_buffer(np.ascontiguousarray(made).tobytes())])


def _negated(limbs: Numbers) -> Numbers:
    """Two's complement."""
    made = (~limbs).astype(np.uint64)
    carry = np.ones(len(limbs), np.uint64)
    for at in range(limbs.shape[1]):
        total = made[:, at] + carry
        made[:, at], carry = total & np.uint64(0xFFFFFFFF), total >> np.uint64(32)
    return made.astype("<u4")


def slices(images: Images, begins: Numbers, lengths: Numbers, is_valid: Numbers) -> Any:
    """Values of any length, in the order in which they lie, as a binary column.

    They are every second piece of the rows' bytes, the others being what lies between them.
    """
    ends = np.maximum.accumulate(begins + lengths)
    offsets = np.zeros(2 * len(begins) + 1, np.int32)  # a segment is far smaller than 2 GiB
    offsets[0:-1:2] = np.where(is_valid, begins, ends)
    offsets[1::2] = ends
    offsets[-1] = offsets[-2] if len(begins) else 0
    buffers = [None, pa.py_buffer(offsets.data), pa.py_buffer(images.data)]
    pieces: Any = pa.Array.from_buffers(pa.binary(), 2 * len(begins), buffers)
    return pieces.take(pa.array(np.arange(0, 2 * len(begins), 2), mask=None if is_valid.all() else ~is_valid))


def fixed_bytes(octets: Numbers, is_valid: Numbers) -> Any:
    """Values of one width as a binary column."""
    count, width = octets.shape
    buffer = pa.py_buffer(np.ascontiguousarray(octets).tobytes())
    mask = None if is_valid.all() else pa.array(is_valid).buffers()[1]
    return pa.Array.from_buffers(pa.binary(width), count, [mask, buffer]).cast(pa.binary())


def choices(column: Column, names: list[str], octets: Numbers, is_valid: Numbers) -> Any:
    """ENUM by its number, SET by its bits; what is none of an ENUM's values is the empty text, as in the server."""
    numbers = big_endian(octets[:, ::-1])
    found, places = np.unique(np.where(is_valid, numbers, 0), return_inverse=True)
    texts = []
    for number in (int(one) & (1 << 64) - 1 for one in found):
        if column.type == SET:
            if number >> len(names):
                raise MalformedError(f"column {column.name} holds a value that its SET has not")
            texts.append(",".join(name for at, name in enumerate(names) if number >> at & 1))
        elif number > len(names):
            raise MalformedError(f"column {column.name} holds a value that its ENUM has not")
        else:
            texts.append(names[number - 1] if number else "")
    taken = pa.array(places, pa.int64(), mask=None if is_valid.all() else ~is_valid)
    return pa.array(texts, pa.string()).take(taken)


def padded(values: Any, length: int) -> Any:
    """BINARY(n) with the zeros at its end, which the log leaves out."""
    return pc.binary_join_element_wise(values, _zeros(values, length), b"") if length else values


def _zeros(values: Any, length: int) -> Any:
    missing = pc.fill_null(pc.subtract(length, pc.binary_length(values)), 0)
    zeros = pa.array([bytes(count) for count in range(length + 1)], pa.binary())
    return zeros.take(pc.max_element_wise(missing, 0))


def iso_instants(micros: Numbers, is_valid: Numbers, digits: int) -> Any:
    """``2024-01-31T23:59:59.5Z`` with as many digits of a second as the column has."""
    moments_us = nullable(micros, is_valid, pa.int64()).cast(pa.timestamp("us"))
    text = pc.utf8_replace_slice(moments_us.cast(pa.string()), 10, 11, "T")
    text = pc.utf8_slice_codeunits(text, 0, 19 + (digits + 1 if digits else 0))
    return pc.binary_join_element_wise(text, "Z", "")
