"""A contract from a sample: an Avro schema that every sampled record meets, with what was not certain said in `doc`.

Called by `headrace contract infer`. What is written is put to the test before it is handed out: it is parsed as a
contract is, and each record of the sample is judged by it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from service.preview.seen import BOOLEAN, DIGITS_MAX, KEYS_MAX, LEVELS_MAX, NUMBER, Form, Numbers, Seen, Texts
from spark_batch.exact.verdicts import exact_verdict
from spark_batch.literals.reading import RejectedPayload, parse
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat

MAP_KEYS_MIN = 20
"""An object of fewer different keys is a record."""
MAP_PRESENCE_MAX = 0.5
"""Where an object has on average more of all the keys than this, it is a record."""
ENUM_REPEATS_MIN = 10
"""Texts that are symbols of an enum stand there so often on average."""
DECIMAL_PRECISION, DECIMAL_SPARE = 18, 6
"""Digits of a decimal where the sample needs no more, and how many more than it needs, where that leaves too few."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EPOCHS = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000}
_YEARS = (631_152_000, 4_102_444_800)
"""1990 to 2100, as seconds since 1970."""


class InferenceRefusedError(ValueError):
    """No schema can be had of the sample; the message says why, and what to try."""


@dataclass(frozen=True)
class Inference:
    """A schema, as a document, and what a person should know of it."""

    document: dict[str, Any]
    records: int
    """Records that it was made of: all payloads of the sample that are JSON objects."""
    notes: tuple[str, ...]
    """One for each thing that was not certain: the place, and what was chosen."""
    skipped: tuple[str, ...]
    """Why payloads were left out that no contract takes, one line for each reason."""


def inferred(payloads: Iterable[bytes], *, name: str, is_typeless: bool = False) -> Inference:
    """The schema of a sample, `name` its record's; raises InferenceRefusedError.

    `is_typeless`: all fields are texts because the format has no types, so that a text of digits is a number.
    """
    seen, taken, skipped = Seen(), [], dict[str, list[int]]()
    for number, payload in enumerate(payloads, start=1):
        try:
            value = parse(payload)
        except RejectedPayload as refusal:
            skipped.setdefault(str(refusal.rejection.reason), []).append(number)
            continue
        if not isinstance(value, dict):
            skipped.setdefault("no object", []).append(number)
            continue
        seen.add(value)
        taken.append(payload)
    reasons = tuple(
        f"{len(numbers):,} of the sample left out as {reason}, first number {numbers[0]:,}"
        for reason, numbers in skipped.items()
    )
    if not taken:
        raise InferenceRefusedError(_nothing_taken(reasons))
    writer = _Writer(is_typeless=is_typeless)
    try:
        document = writer.record(seen, _legal(name) or "Record", "")
    except _NoTypeError as error:
        message = f"no field of the sample has one type in all records: {error}; try a smaller sample, or one source"
        raise InferenceRefusedError(message) from None
    _demand_every_record(document, taken)
    return Inference(document, len(taken), tuple(writer.notes), reasons)


def _nothing_taken(reasons: Sequence[str]) -> str:
    if not reasons:
        return "the sample is empty: try again when the source has records, or with another file or topic"
    return (
        f"the sample has no JSON object ({'; '.join(reasons)}): a contract is for JSON objects, a line each in a file, "
        "or all in one array"
    )


def _demand_every_record(document: dict[str, Any], payloads: list[bytes]) -> None:
    """The last word is that of the conversion's own judge."""
    contract = Contract(json.dumps(document))
    findings = contract.parsed.findings
    if findings:
        message = f"the sample leads to a schema that is none: {findings[0].path}: expected {findings[0].expected}"
        raise InferenceRefusedError(message)
    plan = ConversionPlan(PayloadFormat.JSON, contract)
    for payload in payloads:
        rejection = exact_verdict(plan, payload).rejection
        if rejection is not None:
            message = f"no schema was found that takes every record: {rejection.message}; try a smaller sample"
            raise InferenceRefusedError(message)


class _NoTypeError(Exception):
    """The values at a place have no type in common that a contract can say; the message says what stands there."""


@dataclass
class _Chosen:
    """A type, and what its field says besides."""

    type: Any
    is_nullable: bool = False
    coerce: set[str] = field(default_factory=set)
    pattern: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def slot(self) -> Any:
        return ["null", self.type] if self.is_nullable else self.type


@dataclass(frozen=True)
class _Place:
    """A field: its key in the payload, its name by Avro's rules, and the keys that lead to it."""

    key: str
    name: str
    path: str


class _Writer:
    """Walks what was seen; keeps the names of types, which are used once each."""

    def __init__(self, *, is_typeless: bool) -> None:
        self._is_typeless = is_typeless
        self._names: set[str] = set()
        self.notes: list[str] = []

    def record(self, seen: Seen, name: str, path: str) -> dict[str, Any]:
        """Raises _NoTypeError where no field has a type."""
        if seen.has_more_keys:
            message = f"more than {KEYS_MAX:,} different keys"
            raise _NoTypeError(message)
        own, fields, left_out = self._type_name(name), [], []
        for key, legal in _legal_names(seen.fields):
            inside = seen.fields[key]
            try:
                fields.append(self._field(inside, _Place(key, legal, f"{path}.{key}".lstrip(".")), seen.objects))
            except _NoTypeError as error:
                left_out.append(f"{key}: {error}")
        if not fields:
            raise _NoTypeError("; ".join(left_out[:3]) or "objects without keys")
        document: dict[str, Any] = {"type": "record", "name": own, "fields": fields}
        if left_out:
            self.notes += [f"{path}.{each}: left out".lstrip(".") for each in left_out]
            document["doc"] = f"Left out, since no type of a contract holds for all records: {'; '.join(left_out)}"
        return document

    def _field(self, seen: Seen, place: _Place, objects: int) -> dict[str, Any]:
        chosen = self._chosen(seen, place.key, place.path)
        chosen.is_nullable = chosen.is_nullable or seen.values + seen.nulls < objects
        document: dict[str, Any] = {"name": place.name, "type": chosen.slot}
        if chosen.is_nullable:
            document["default"] = None
        if place.name != place.key:
            document["json.name"] = place.key
        if chosen.coerce:
            document["json.coerce"] = sorted(chosen.coerce)
        if chosen.pattern is not None:
            document["json.pattern"] = chosen.pattern
        if chosen.notes:
            document["doc"] = "; ".join(chosen.notes)
            self.notes.append(f"{place.path}: {document['doc']}")
        return document

    def _chosen(self, seen: Seen, key: str, path: str) -> _Chosen:
        chosen = self._type(seen, key, path)
        chosen.is_nullable = chosen.is_nullable or seen.nulls > 0
        return chosen

    def _type(self, seen: Seen, key: str, path: str) -> _Chosen:  # noqa: PLR0911 - one a kind of value
        kinds = {
            "booleans": seen.booleans,
            "numbers": seen.numbers.count,
            "texts": seen.texts.count,
            "arrays": seen.arrays,
            "objects": seen.objects,
            f"values in more than {LEVELS_MAX} levels": seen.deep,
        }
        there = [kind for kind, count in kinds.items() if count]
        match there:
            case []:
                return _Chosen(
                    "string", is_nullable=True, notes=["nothing but null in the sample: the type is a guess"]
                )
            case ["booleans"]:
                return _Chosen("boolean")
            case ["numbers"]:
                return _of_numbers(seen.numbers)
            case ["texts"]:
                return self._of_texts(seen.texts, key)
            case ["arrays"]:
                return self._of_arrays(seen, key, path)
            case ["objects"]:
                return self._of_objects(seen, key, path)
            case ["numbers" | "booleans" as other, "texts"]:
                return _of_texts_among(seen, other)
        raise _NoTypeError(" and ".join(there))

    def _of_arrays(self, seen: Seen, key: str, path: str) -> _Chosen:
        assert seen.items is not None  # noqa: S101 - told to the type checker
        if not seen.items.values + seen.items.nulls:
            items = ["null", "string"]
            return _Chosen({"type": "array", "items": items}, notes=["only empty arrays: the items' type is a guess"])
        chosen = self._chosen(seen.items, f"{key}_item", f"{path}[]")
        chosen.type, chosen.is_nullable = {"type": "array", "items": chosen.slot}, False
        return chosen

    def _of_objects(self, seen: Seen, key: str, path: str) -> _Chosen:
        if not seen.fields:
            values = ["null", "string"]
            return _Chosen({"type": "map", "values": values}, notes=["only empty objects: the values' type is a guess"])
        if _is_map(seen):
            names = set(self._names)
            try:
                return self._of_map(seen, key, path)
            except _NoTypeError:
                self._names = names
                if seen.has_more_keys:
                    raise
        return _Chosen(self.record(seen, key, path))

    def _of_map(self, seen: Seen, key: str, path: str) -> _Chosen:
        values = Seen()
        for inside in seen.fields.values():
            values.merge(inside)
        chosen = self._chosen(values, f"{key}_value", f"{path}{{}}")
        chosen.type, chosen.is_nullable = {"type": "map", "values": chosen.slot}, False
        chosen.notes.append("a map, since the keys differ from record to record")
        return chosen

    def _of_texts(self, texts: Texts, key: str) -> _Chosen:
        forms = texts.forms
        chosen = self._of_forms(texts)
        if chosen is None and not self._is_typeless and forms[:1] in {(NUMBER,), (BOOLEAN,)}:
            word = "numbers" if forms[0] is NUMBER else "booleans"
            return _Chosen("string", notes=[f"all are {word} as text; json.coerce can make {word} of them"])
        if chosen is None:
            return self._of_symbols(texts, key)
        if texts.empty and not self._is_typeless:
            note = "all are dates, times or the like, but for empty texts; json.coerce can make null of those"
            return _Chosen("string", notes=[note])
        return _with_empty(chosen, texts)

    def _of_forms(self, texts: Texts) -> _Chosen | None:
        """By a form that all of them have, but the empty ones; None where the texts are just texts."""
        if not texts.forms:
            return None
        first = texts.forms[0]
        if first is NUMBER or first is BOOLEAN:
            return _of_coerced(first, texts) if self._is_typeless else None
        if first.logical == "uuid":
            return _Chosen({"type": "string", "logicalType": "uuid"})
        others = [form for form in texts.forms if form.pattern and form.logical == first.logical and form != first]
        if first.pattern is not None and any(_is_other_day(first, form) for form in others):
            note = "dates, of which the sample does not tell day from month; json.pattern can"
            return _Chosen("string", notes=[note])
        base = "int" if first.logical in {"date", "time-millis"} else "long"
        kind = {"type": base, "logicalType": first.logical}
        return _Chosen(kind, pattern=None if first.pattern is None else first.pattern.pattern)

    def _of_symbols(self, texts: Texts, key: str) -> _Chosen:
        symbols = texts.symbols
        is_few = symbols is not None and len(symbols) * ENUM_REPEATS_MIN <= texts.count
        if symbols is None or not is_few or not all(map(_NAME.fullmatch, symbols)) or len(symbols) == 1:
            return _Chosen("string")
        kind = {"type": "enum", "name": self._type_name(_legal(key) or "Symbol"), "symbols": sorted(symbols)}
        return _Chosen(kind, notes=["an enum, since there are few texts; a record with another one is rejected"])

    def _type_name(self, name: str) -> str:
        """A name in camel case that no other type has."""
        wanted = "".join(part[:1].upper() + part[1:] for part in (_legal(name) or "Record").split("_")) or "Record"
        wanted = wanted if _NAME.fullmatch(wanted) else f"T{wanted}"
        found, number = wanted, 2
        while found in self._names:
            found, number = f"{wanted}{number}", number + 1
        self._names.add(found)
        return found


def _is_map(seen: Seen) -> bool:
    if seen.has_more_keys:
        return True
    present = sum(inside.values + inside.nulls for inside in seen.fields.values())
    is_sparse = present <= MAP_PRESENCE_MAX * seen.objects * len(seen.fields)
    return len(seen.fields) >= MAP_KEYS_MIN and is_sparse


def _of_numbers(numbers: Numbers) -> _Chosen:
    """Raises _NoTypeError where no type holds them all."""
    if numbers.is_long:
        unit = _epoch_unit(numbers)
        note = f"these may be {unit} since 1970: then a timestamp would say more" if unit else None
        return _Chosen("long", notes=[note] if note else [])
    scale = max(numbers.scales)
    needed = numbers.whole_digits + scale
    is_money = numbers.is_padded and len(numbers.scales) == 1
    if numbers.is_decimal and needed <= DIGITS_MAX and (is_money or not numbers.is_exact_double):
        precision = min(DIGITS_MAX, max(DECIMAL_PRECISION, needed + DECIMAL_SPARE))
        kind = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        return _Chosen(kind, notes=["a decimal: a number of more digits is rejected"])
    if not numbers.is_finite:
        message = "numbers that neither a double nor a decimal can hold"
        raise _NoTypeError(message)
    notes = [] if numbers.is_exact_double else ["a double, though it cannot hold all the digits of some numbers"]
    return _Chosen("double", notes=notes)


def _epoch_unit(numbers: Numbers) -> str | None:
    """The unit in which all of the numbers would be times from 1990 to 2100."""
    for unit, factor in _EPOCHS.items():
        if _YEARS[0] * factor <= numbers.low and numbers.high <= _YEARS[1] * factor:
            return unit
    return None


def _of_texts_among(seen: Seen, other: str) -> _Chosen:
    """Texts beside numbers or booleans: where they say such values, or nothing."""
    texts = seen.texts
    form = NUMBER if other == "numbers" else BOOLEAN
    if texts.count > texts.empty and form not in texts.forms:
        message = f"{other} and texts"
        raise _NoTypeError(message)
    numbers = Numbers()
    numbers.merge(seen.numbers)
    numbers.merge(texts.numbers)
    chosen = _Chosen("boolean") if form is BOOLEAN else _of_numbers(numbers)
    if texts.count > texts.empty:
        chosen.coerce.add(other)
        chosen.notes.append(f"some are {other} as text")
    return _with_empty(chosen, texts)


def _of_coerced(form: Form, texts: Texts) -> _Chosen | None:
    try:
        chosen = _Chosen("boolean") if form is BOOLEAN else _of_numbers(texts.numbers)
    except _NoTypeError:
        return None
    chosen.coerce.add("numbers" if form is NUMBER else "booleans")
    return chosen


def _with_empty(chosen: _Chosen, texts: Texts) -> _Chosen:
    if texts.empty:
        chosen.is_nullable = True
        chosen.coerce.add("empty")
        chosen.notes.append("empty texts are null")
    return chosen


def _is_other_day(form: Form, other: Form) -> bool:
    """Whether the two read day and month the other way round."""
    orders = [
        "".join(letter for letter in (each.pattern.pattern if each.pattern else "") if letter in "dM")
        for each in (form, other)
    ]
    return orders[0] != orders[1]


def _legal(name: str) -> str:
    """The name by Avro's rules, accents left out; empty where nothing is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    found = re.sub(r"[^A-Za-z0-9_]+", "_", plain)
    found = found.strip("_") if not _NAME.fullmatch(name) else found
    return f"_{found}" if found[:1].isdigit() else found


def _legal_names(keys: Iterable[str]) -> list[tuple[str, str]]:
    """For each key a name that no other has; legal keys keep theirs."""
    every = list(keys)
    used = {key for key in every if _NAME.fullmatch(key)}
    found = []
    for key in every:
        legal = key
        if not _NAME.fullmatch(key):
            wanted, number = _legal(key) or "field", 2
            legal = wanted
            while legal in used:
                legal, number = f"{wanted}_{number}", number + 1
            used.add(legal)
        found.append((key, legal))
    return found
