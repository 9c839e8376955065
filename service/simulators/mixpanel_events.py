"""The lines of a simulated day: good, late, doubled, malformed and wrong-typed ones, the same for the same seed."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial

import numpy as np

from service.simulators.mixpanel_settings import MixpanelSettings

BLOCK_MARK = b"BLOCK000"
"""Part of every ``$insert_id``; replaced when a day is repeated, so that no id comes twice."""

_EVENTS = ("Signed up", "Opened page", "Purchase", "$mp_web_page_view", "Invited friend", "Plan changed", "Überweisung")
_CITIES = ("Berlin", "Köln", "São Paulo", "東京", "Reykjavík", "Łódź", "San José", "Delhi")
_PLANS = ("free", "team", "business", "enterprise")
_NOTES = (
    "",
    ',"note":"first\\nsecond \\"quoted\\" \\u00e9"',
    ',"note":"line separator \u2028, paragraph separator \u2029, next line \u0085"',
    ',"note":"\U0001f680 rocket, e\u0301 combined"',
    ',"note":null',
)
_BIG_INTEGERS = (9007199254740993, -9007199254740993, 9223372036854775807, -9223372036854775808, 4611686018427387905)

_MALFORMED: dict[str, str] = {
    "truncated": '{{"event":"Purchase","properties":{{"time":{time},"distinct_id":"u","$insert_id":"{id}"',
    "two_values": '{{"event":"Purchase","properties":{{"time":{time},"$insert_id":"{id}",'
    '"mp_processing_time_ms":1}}}}{{"event":"second"}}',
    "no_json": "<html>upstream error {id}</html>",
    "invalid_utf8": '{{"event":"\udcff\udcfe","properties":{{"time":{time},"$insert_id":"{id}",'
    '"mp_processing_time_ms":1}}}}',
    "duplicate_key": '{{"event":"a","event":"b","properties":{{"time":{time},"$insert_id":"{id}",'
    '"mp_processing_time_ms":1}}}}',
    "not_a_number": '{{"event":"Purchase","properties":{{"time":{time},"$insert_id":"{id}",'
    '"mp_processing_time_ms":1,"amount":NaN}}}}',
}
_WRONG_TYPED: dict[str, str] = {
    "text_for_long": '{{"event":"Purchase","properties":{{"time":"yesterday","$insert_id":"{id}",'
    '"mp_processing_time_ms":1}}}}',
    "number_for_text": '{{"event":"Purchase","properties":{{"time":{time},"$insert_id":"{id}",'
    '"mp_processing_time_ms":1,"plan":7}}}}',
    "boolean_for_double": '{{"event":"Purchase","properties":{{"time":{time},"$insert_id":"{id}",'
    '"mp_processing_time_ms":1,"amount":true}}}}',
    "missing_time": '{{"event":"Purchase","properties":{{"$insert_id":"{id}","mp_processing_time_ms":1}}}}',
    "null_event": '{{"event":null,"properties":{{"time":{time},"$insert_id":"{id}","mp_processing_time_ms":1}}}}',
    "fraction_for_long": '{{"event":"Purchase","properties":{{"time":{time},"$insert_id":"{id}",'
    '"mp_processing_time_ms":1.5}}}}',
}


@dataclass(frozen=True, slots=True)
class DayBody:
    """The lines of one day, each with its line end."""

    base: bytes
    late: bytes
    lines: int
    """Lines of ``base``, of every sort."""
    good: int
    """Good events of ``base``, different by key."""
    late_good: int
    bad: tuple[tuple[str, int], ...]
    """Bad lines by kind, each line different."""


def render_day(settings: MixpanelSettings, day: date, *, is_time_in_ms: bool = False) -> DayBody:
    """Write one day. About a second for a million events."""
    rng = np.random.default_rng([settings.seed, day.toordinal()])
    salt = "".join(rng.choice(list("abcdefghijklmnop"), 12))
    clock = _Clock(day, is_time_in_ms=is_time_in_ms)
    good = _good_lines(settings.events_per_day, rng, partial(_insert_id, salt, "g"), clock)
    late = _good_lines(settings.late_of(day), rng, partial(_insert_id, salt, "l"), clock)
    doubles = [
        _ingested_again(good[index]) for index in rng.integers(0, max(len(good), 1), settings.duplicates_per_day)
    ]
    malformed, malformed_kinds = _bad_lines(
        _MALFORMED, settings.malformed_per_day, partial(_insert_id, salt, "m"), clock
    )
    wrong, wrong_kinds = _bad_lines(_WRONG_TYPED, settings.wrong_typed_per_day, partial(_insert_id, salt, "w"), clock)
    lines = [*good, *malformed, *wrong, *doubles]
    order = rng.permutation(len(lines)) if malformed or wrong or doubles else range(len(lines))
    return DayBody(
        base=_join([lines[index] for index in order]),
        late=_join(late),
        lines=len(lines),
        good=len(good),
        late_good=len(late),
        bad=(*malformed_kinds, *wrong_kinds),
    )


def block_of(body: bytes, number: int) -> bytes:
    """The same lines with other ids: block ``number`` of a repeated day (0 is the body itself)."""
    return body if number == 0 else body.replace(BLOCK_MARK, b"BLK%05x" % number)


@dataclass(frozen=True, slots=True)
class _Clock:
    """Event times of a day (UTC), in the unit asked for."""

    day: date
    is_time_in_ms: bool

    def times(self, seconds: Sequence[int]) -> list[int]:
        """Event times, ``seconds`` after midnight."""
        midnight = calendar.timegm(self.day.timetuple())
        return [(midnight + second) * (1000 if self.is_time_in_ms else 1) for second in seconds]

    def ingested_ms(self, seconds: Sequence[int]) -> list[int]:
        """Ingestion times: somewhat after the event."""
        midnight = calendar.timegm(self.day.timetuple())
        return [(midnight + second) * 1000 + 14_563 for second in seconds]


def _insert_id(salt: str, sort: str, serial: int) -> str:
    return f"{salt}{BLOCK_MARK.decode()}{sort}{serial:09x}"


def _good_lines(count: int, rng: np.random.Generator, ids: Callable[[int], str], clock: _Clock) -> list[str]:
    """``count`` events, all different by key. The second of midnight and the last one of the day are among them."""
    seconds = rng.integers(0, 86_400, count).tolist()
    seconds[:2] = [0, 86_399][: len(seconds)]
    users = rng.integers(0, 50_000, count).tolist()
    variety = rng.integers(0, 1 << 30, count).tolist()
    cents = rng.integers(0, 1_000_000, count).tolist()
    columns = zip(clock.times(seconds), clock.ingested_ms(seconds), users, variety, cents, strict=True)
    return [
        f'{{"event":"{_EVENTS[dice % 7]}","properties":{{"time":{time},{_distinct_id(user)}'
        f'"$insert_id":"{ids(serial)}","mp_processing_time_ms":{ingested},"$city":"{_CITIES[dice % 8]}",'
        f'"plan":"{_PLANS[dice % 4]}","amount":{cent / 100},"order_number":{_order_number(dice)},'
        f'"is_trial":{"true" if dice % 3 else "false"}{_NOTES[dice % 97] if dice % 97 < len(_NOTES) else ""}'
        f',"$os":"Linux","screen":{{"w":{dice % 4096},"tags":["a","b c"]}}}}}}'
        for serial, (time, ingested, user, dice, cent) in enumerate(columns)
    ]


def _distinct_id(user: int) -> str:
    """Every fiftieth user has none, and every fiftieth an empty one: both are legal."""
    sort = user % 50
    return "" if sort == 0 else '"distinct_id":"",' if sort == 1 else f'"distinct_id":"user-{user}",'


def _order_number(dice: int) -> int:
    """Mostly small; now and then one that a double cannot hold."""
    return _BIG_INTEGERS[dice % 5] if dice % 101 == 0 else dice


def _ingested_again(line: str) -> str:
    """The same event by key, sent a second time."""
    return line.replace('"mp_processing_time_ms":1', '"mp_processing_time_ms":2', 1)


def _bad_lines(
    forms: dict[str, str], count: int, ids: Callable[[int], str], clock: _Clock
) -> tuple[list[str], tuple[tuple[str, int], ...]]:
    kinds = list(forms)
    chosen = [kinds[serial % len(kinds)] for serial in range(count)]
    time = clock.times([43_200])[0]
    lines = [forms[kind].format(time=time, id=ids(serial)) for serial, kind in enumerate(chosen)]
    return lines, tuple((kind, chosen.count(kind)) for kind in kinds if kind in chosen)


def _join(lines: list[str]) -> bytes:
    """Lines as bytes; lone surrogates stand for bytes that are no UTF-8."""
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
