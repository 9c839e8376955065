"""Values of a log as Arrow columns: one function for each type, each for a whole column of row images.

Formats: ``log_event`` and ``field`` of MySQL's source (``my_time_packed_from_binary``, ``bin2decimal``); the numbers
are checked against the servers' own texts in ``tests/faults/test_binlog.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.mysql_cdc.rows import DIGIT_BYTES, Images, Numbers
from fetchers.mysql_cdc.table_map import DATETIME2, SET, Column

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
Made: TypeAlias = tuple[Any, Mapping[int, str]]
"""A column, and what is the matter with values that it cannot hold, by row; they are null in it."""
NOTHING: Mapping[int, str] = MappingProxyType({})
GROUP_DIGITS = 9
MICROS = 1_000_000
_DAY_HOURS = 24
_TIME_HOURS = 1024
"""Of which a TIME can have fewer: ten bits are for them, and the one above is always 0."""
_LIMBS = 8
"""Of 32 bits: 65 digits, the most of a DECIMAL, need 216 bits."""


def sound(make: Callable[..., Any]) -> Callable[..., Made]:
    """A reader of columns that hold whatever the server does."""
    return lambda *where: (make(*where), NOTHING)


def without(column: Any, is_wrong: Numbers, told: Callable[[int], str]) -> Made:
    """A column with nulls where values are wrong; ``told``: what is the matter with the value of a row."""
    if not is_wrong.any():
        return column, NOTHING
    rows = np.flatnonzero(is_wrong).tolist()
    return pc.if_else(pa.array(is_wrong), pa.scalar(None, column.type), column), {row: told(row) for row in rows}


def by_octets(width: int, read: Callable[[Numbers, Numbers], Any]) -> Callable[..., Any]:
    """A reader of values of one width; ``read`` gets their bytes, and which are not null."""

    def whole_column(images: Images, begins: Numbers, _: Numbers, is_valid: Numbers) -> Any:
        return read(octets_of(images, begins, width), is_valid)

    return whole_column


def fixed(width: int, read: Callable[[Numbers], Numbers]) -> Callable[..., Any]:
    """A reader of values of one width that makes numbers."""
    return by_octets(width, lambda octets, is_valid: nullable(read(octets), is_valid))


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


def datetimes(octets: Numbers, digits: int) -> tuple[Numbers, Numbers, Numbers]:
    """DATETIME: microseconds since the epoch as if it were UTC, which have a day, and which are no time of one."""
    packed = big_endian(octets[:, :5]) - 0x8000000000
    months = packed >> 22
    days, is_day = _day_numbers(months // 13, months % 13, packed >> 17 & 31)
    hours, fraction = packed >> 12 & 31, _fraction(octets, digits)
    seconds, is_wrong = _clock(hours, packed, fraction)
    is_wrong |= (hours >= _DAY_HOURS) | (packed < 0)
    return (days * 86_400 + seconds) * MICROS + fraction, is_day, is_wrong


def _clock(hours: Numbers, packed: Numbers, fraction: Numbers) -> tuple[Numbers, Numbers]:
    """Seconds of hours, and of minutes and seconds of six bits each; and which have more of them than there are."""
    minutes, seconds = packed >> 6 & 63, packed & 63
    is_wrong = (minutes >= 60) | (seconds >= 60) | (fraction >= MICROS)  # noqa: PLR2004 - of an hour, of a minute
    return hours * 3600 + minutes * 60 + seconds, is_wrong


def timestamps(octets: Numbers, digits: int) -> tuple[Numbers, Numbers, Numbers]:
    """TIMESTAMP: microseconds since the epoch, UTC; 0 stands for 0000-00-00; which have a fraction that is none."""
    fraction = _fraction(octets, digits)
    micros = big_endian(octets[:, :4]) * MICROS + fraction
    return micros, micros != 0, fraction >= MICROS


def times(octets: Numbers, digits: int) -> tuple[Numbers, Numbers]:
    """TIME: microseconds from −838:59:59 to 838:59:59, and which are none.

    The value and its fraction are one number with an offset, so that a negative time with a fraction is stored as the
    next lower second and what is to be added to it.
    """
    width = (digits + 1) // 2
    packed = big_endian(octets) - (0x800000 << 8 * width)
    size = np.abs(packed)
    clock, fraction = size >> 8 * width, (size & ((1 << 8 * width) - 1)) * 10 ** (6 - 2 * width)
    hours = clock >> 12
    seconds, is_wrong = _clock(hours, clock, fraction)
    is_wrong |= hours >= _TIME_HOURS
    made: Numbers = np.sign(packed) * (seconds * MICROS + fraction)
    return made, is_wrong


def moments(column: Column, octets: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """DATETIME and TIMESTAMP: microseconds, which values there is a moment for, and which are wrong."""
    return (datetimes if column.type == DATETIME2 else timestamps)(octets, column.scale)


def decimals(octets: Numbers, is_valid: Numbers, *, precision: int, scale: int) -> Made:
    """DECIMAL, exact: groups of nine digits, of which the outer ones may be shorter; 32-bit limbs add them up."""
    is_wrong = np.zeros(len(octets), bool)
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
        is_wrong |= group >= 10**count
        carry = group.astype(np.uint64)
        for place, limb in enumerate(limbs):
            total = limb * np.uint64(10**count) + carry
            limbs[place], carry = total & np.uint64(0xFFFFFFFF), total >> np.uint64(32)
        at += width
    made = np.stack(limbs, axis=1).astype("<u4")
    if is_negative.any():
        made = np.where(is_negative[:, None], _negated(made), made)
    kind: Any = pa.decimal256(precision, scale) if len(limbs) == _LIMBS else pa.decimal128(precision, scale)
    is_wrong &= is_valid
    rows = np.flatnonzero(is_wrong).tolist()
    is_there = is_valid & ~is_wrong
    mask = None if is_there.all() else pa.array(is_there).buffers()[1]
    column = pa.Array.from_buffers(kind, len(octets), [mask, pa.py_buffer(np.ascontiguousarray(made).tobytes())])
    return column, {row: f"no DECIMAL has the digits of the bytes {octets[row].tobytes().hex()}" for row in rows}


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


def choices(column: Column, names: list[str], octets: Numbers, is_valid: Numbers) -> Made:
    """ENUM by its number, SET by its bits; the number 0 of an ENUM is the empty text, as in the server."""
    numbers = big_endian(octets[:, ::-1])
    found, places = np.unique(np.where(is_valid, numbers, 0), return_inverse=True)
    texts: list[str | None] = []
    wrong = {}
    for at, number in enumerate(int(one) & (1 << 64) - 1 for one in found):
        is_set = column.type == SET
        if number >> len(names) if is_set else number > len(names):
            texts.append(None)
            wrong[at] = f"number {number} is no value of {'a SET' if is_set else 'an ENUM'} of {len(names)}"
        elif is_set:
            texts.append(",".join(name for bit, name in enumerate(names) if number >> bit & 1))
        else:
            texts.append(names[number - 1] if number else "")
    taken = pa.array(places, pa.int64(), mask=None if is_valid.all() else ~is_valid)
    made = pa.array(texts, pa.string()).take(taken)
    rows = np.flatnonzero(np.isin(places, list(wrong))).tolist() if wrong else ()
    return made, {row: wrong[int(places[row])] for row in rows}


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
