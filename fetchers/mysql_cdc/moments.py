"""Days, times and moments: from the bytes of the log, and from the texts of a snapshot.

Forms and names are Debezium's (its manual, "Temporal types"), or Connect's with ``time.precision.mode=connect``. Days
that are none, such as 0000-00-00, are null; any other value that its form cannot hold is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from fetchers.mysql_cdc import values
from fetchers.mysql_cdc.rows import Numbers, width_of
from fetchers.mysql_cdc.table_map import DATE, TIME2, TIMESTAMP2, YEAR, Column
from fetchers.mysql_cdc.values import Made, by_octets, fixed, sound
from fetchers.sdk import rows as forms
from fetchers.toolkit.texts import TOLD_BYTES

pc: Any = pyarrow.compute  # the stubs know fewer arguments than Arrow takes
ZONED: Any = pa.string()
UNZONED: Any = pa.int64()
_DAY_MICROS = 86_400 * values.MICROS
_TIME = r"^(?P<sign>-?)(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d)(?:\.(?P<fraction>\d+))?$"


def temporal(column: Column, *, is_connects: bool) -> tuple[Any, ...]:
    """Form, Arrow type and both ways; ``is_connects``: as Connect's own types, which have milliseconds."""
    if column.type == YEAR:
        form = forms.named("io.debezium.time.Year", forms.INT32)
        read = fixed(1, lambda octets: np.where(octets[:, 0] > 0, octets[:, 0].astype(np.int32) + 1900, 0))
        return (
            form,
            pa.int32(),
            sound(lambda *where: read(*where).cast(pa.int32())),
            sound(lambda texts: texts.cast(pa.int32())),
        )
    if column.type == DATE:

        def days(octets: Numbers, is_valid: Numbers) -> Any:
            found, is_day = values.dates(octets)
            return values.nullable(found.astype(np.int32), is_valid & is_day, pa.int32())

        form = forms.DATE if is_connects else forms.named("io.debezium.time.Date", forms.INT32)
        return form, pa.int32(), sound(by_octets(3, days)), sound(lambda texts: _told_days(texts).cast(pa.int32()))
    return _time(column, is_connects=is_connects) if column.type == TIME2 else _moment(column, is_connects=is_connects)


def _time(column: Column, *, is_connects: bool) -> tuple[Any, ...]:
    def clock(octets: Numbers, is_valid: Numbers) -> Made:
        micros, is_wrong = values.times(octets, column.scale)
        return values.without(values.nullable(micros, is_valid, pa.int64()), is_wrong & is_valid, _no_time(octets))

    def told(texts: Any) -> Made:
        micros = _told_time(texts)
        return micros, _unread(texts, micros)

    read = by_octets(width_of(column) or 0, clock)
    if not is_connects:
        return forms.named("io.debezium.time.MicroTime", forms.INT64), pa.int64(), read, told

    def millis(found: Made) -> Made:
        micros, wrong = found
        bounds = pc.min_max(micros).as_py()
        if (bounds["min"] or 0) >= 0 and (bounds["max"] or 0) < _DAY_MICROS:
            return pc.divide(micros, 1000).cast(pa.int32()), wrong
        is_out = np.asarray(pc.fill_null(pc.or_(pc.less(micros, 0), pc.greater_equal(micros, _DAY_MICROS)), False))  # noqa: FBT003 - a value
        kept, out = values.without(
            micros,
            is_out,
            lambda row: (
                f"a time of {micros[row].as_py()} microseconds is none of a day, which Connect's Time cannot be: set "
                "time.precision.mode=adaptive_time_microseconds"
            ),
        )
        return pc.divide(kept, 1000).cast(pa.int32()), {**wrong, **out}

    return forms.TIME, pa.int32(), lambda *where: millis(read(*where)), lambda texts: millis(told(texts))


def _moment(column: Column, *, is_connects: bool) -> tuple[Any, ...]:
    """DATETIME and TIMESTAMP."""
    is_zoned = column.type == TIMESTAMP2
    divisor = 1000 if is_connects or column.scale <= 3 else 1  # noqa: PLR2004 - milliseconds

    def made(micros: Numbers, is_valid: Numbers) -> Any:
        if is_zoned:
            return values.iso_instants(micros, is_valid, column.scale)
        return values.nullable(micros // divisor, is_valid, pa.int64())

    def moment(octets: Numbers, is_valid: Numbers) -> Made:
        micros, is_moment, is_wrong = values.moments(column, octets)
        return values.without(made(micros, is_valid & is_moment), is_wrong & is_valid, _no_time(octets))

    def told(texts: Any) -> Made:
        days, rest = _told_days(texts), pc.utf8_slice_codeunits(texts, 11, 26)
        clock = _told_time(rest)
        micros = pc.add(pc.multiply(days, _DAY_MICROS), clock)
        return made(np.asarray(micros.fill_null(0)), np.asarray(micros.is_valid())), _unread(rest, clock)

    if is_zoned:
        form, arrow = forms.named("io.debezium.time.ZonedTimestamp", forms.STRING), ZONED
    else:
        name = "Timestamp" if divisor > 1 else "MicroTimestamp"
        form = forms.TIMESTAMP if is_connects else forms.named(f"io.debezium.time.{name}", forms.INT64)
        arrow = UNZONED
    return form, arrow, by_octets(width_of(column) or 0, moment), told


def _no_time(octets: Numbers) -> Callable[[int], str]:
    return lambda row: f"no time has the hours, minutes and seconds of the bytes {octets[row].tobytes().hex()}"


def _unread(texts: Any, micros: Any) -> dict[int, str]:
    """What is told of texts that are no time."""
    if micros.null_count == texts.null_count:
        return {}
    rows = np.flatnonzero(np.asarray(texts.is_valid()) & ~np.asarray(micros.is_valid())).tolist()
    return {row: f"no time is {texts[row].as_py()[:TOLD_BYTES]!r}" for row in rows}


def _told_days(texts: Any) -> Any:
    """Days since the epoch of texts that begin with YYYY-MM-DD; null for what is no day."""
    is_valid = np.asarray(texts.is_valid())
    filled = texts.fill_null("0000-00-00")
    parts = [pc.utf8_slice_codeunits(filled, begin, end).cast(pa.int64()) for begin, end in ((0, 4), (5, 7), (8, 10))]
    days, is_day = values._day_numbers(*map(np.asarray, parts))  # noqa: SLF001 - the same days as the log's
    return values.nullable(days, is_valid & is_day, pa.int64())


def _told_time(texts: Any) -> Any:
    """Microseconds of texts such as ``-838:59:59.5``; null for what is no time."""
    filled, is_time = texts.fill_null("0:00:00"), texts.is_valid()
    parts = pc.extract_regex(filled, _TIME)
    if parts.null_count:
        is_time = pc.and_(is_time, parts.is_valid())
        parts = pc.extract_regex(pc.if_else(parts.is_valid(), filled, "0:00:00"), _TIME)
    hours, minutes, seconds = (parts.field(at).cast(pa.int64()) for at in (1, 2, 3))
    fraction = pc.utf8_rpad(parts.field(4), 6, "0").cast(pa.int64())
    whole = pc.add(pc.multiply(hours, 3600), pc.add(pc.multiply(minutes, 60), seconds))
    micros = pc.add(pc.multiply(whole, values.MICROS), fraction)
    made = pc.if_else(pc.equal(parts.field(0), "-"), pc.negate(micros), micros)
    return pc.if_else(is_time, made, None)
