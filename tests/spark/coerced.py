"""Contracts that take texts for values, and payloads full of texts that are, or nearly are, such values."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import strategies as st

from spark_batch.coercion import Coerce
from tests.spark.generated import fitting_payloads, schemas
from tests.spark.oracle import Literal, NotValid, read_json

ODD_TEXTS = [
    *["21", " 21", "21 ", "21abc", "0x15", "٢١", "1e400", "-1e400", "1.5", "+5", "007", "-007", ".5", "5.", "1_000"],
    *[
        "-0",
        "-0.0",
        "0",
        "0.0",
        "1e2",
        "1E+2",
        "1e-400",
        "NaN",
        "Infinity",
        "-",
        "--1",
        "1,5",
        "1" * 30,
        "21\n",
        "\uff12",
    ],
    *["9223372036854775807", "9223372036854775808", "-2147483649", "3.4028235e38", "3.5e38", "0.1", "12.340", "1.50"],
    *["true", "TRUE", "True", "tRuE", " true", "yes", "1", "false", "FALSE", "\uff54rue", "a", "A", "_X", "_x", "tru"],
    *[
        "",
        " ",
        "null",
        "\u212a",
        "2024-01-01",
        "20240101",
        "20240230",
        "1/2/2024",
        "12/31/1999",
        "13/1/2024",
        "0/1/2024",
    ],
    *["2024-02-30", "01/02/2024", "21.11.2026 9:05", "21.11.2026 09:05", "21.11.2026 24:00", "2024-01-01T00:00:00Z"],
    *["2024-01-01 10:20:30.123", "2024-01-01 10:20:30.120", "2024-01-01 10:20:30.12", "2024-01-01 10:20:30,123"],
    *["20240101T102030+0130", "20240101T102030Z", "20240101T102030+01:30", "00010101T000000+0100", "00000101T000000Z"],
    *["10:20", "10:20:30", "10h20", "9h05", "09h05", "24h00", "2024-01-01T10:20:30.5+01:00", "1602611311000"],
]
PATTERNS: dict[str, list[tuple[str, str | None]]] = {
    "date": [("yyyyMMdd", None), ("M/d/yyyy", None), ("dd.MM.uuuu", None)],
    "time": [("H'h'mm", None), ("HH:mm", None), ("HH:mm:ss", None)],
    "local": [("d.M.yyyy H:mm", None), ("yyyy-MM-dd HH:mm:ss.SSS", None), ("yyyyMMdd'T'HHmm", None)],
    "timestamp": [("yyyyMMdd'T'HHmmssXX", None), ("yyyy-MM-dd HH:mm:ss.SSS", "+01:00"), ("d.M.yyyy H:mm", "Z")],
}
WORDS = [[], [*Coerce], ["numbers"], ["empty"], ["numbers", "empty"], ["booleans", "enums"], ["instants", "empty"]]


@st.composite
def coercing_cases(
    draw: st.DrawFn, *, records: int, is_provable: bool = False
) -> tuple[dict[str, Any], frozenset[Coerce], list[bytes]]:
    """A schema with attributes of coercion, what is coerced of all fields, and payloads."""
    schema = draw(schemas(is_provable=is_provable))
    rng = draw(st.randoms(use_true_random=False))
    _attribute(schema, rng)
    coerce = frozenset(map(Coerce, rng.choice([*WORDS, [*Coerce], [*Coerce]])))
    fitting = draw(st.lists(fitting_payloads(schema), min_size=records, max_size=records))
    is_all_text = rng.random() < 0.5
    return schema, coerce, [_bent(payload, rng, odds=1.0 if is_all_text else 0.3) for payload in fitting]


def _attribute(schema: Any, rng: random.Random) -> None:
    """Some fields say themselves what they take."""
    if isinstance(schema, list):
        for branch in schema:
            _attribute(branch, rng)
    if not isinstance(schema, dict):
        return
    for key in ("items", "values"):
        _attribute(schema.get(key), rng)
    for field in schema.get("fields", ()):
        if rng.random() < 0.3:
            field["json.coerce"] = rng.choice([True, False, *WORDS])
        logical = next((branch.get("logicalType") for branch in _branches(field["type"])), None)
        patterns = PATTERNS.get(str(logical).split("-", maxsplit=1)[0])
        if patterns and rng.random() < 0.5:
            pattern, zone = rng.choice(patterns)
            field["json.pattern"] = pattern
            if zone is not None:
                field["json.zone"] = zone
        _attribute(field["type"], rng)


def _branches(kind: Any) -> list[dict[str, Any]]:
    return [branch for branch in (kind if isinstance(kind, list) else [kind]) if isinstance(branch, dict)]


def _bent(payload: bytes, rng: random.Random, *, odds: float) -> bytes:
    """The payload with numbers, booleans and nulls as texts, and with odd texts in places."""
    try:
        return _written(read_json(payload), rng, odds).encode()
    except NotValid:
        return payload


def _written(value: Any, rng: random.Random, odds: float) -> str:  # noqa: PLR0911 - one line a kind
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_written(item, rng, odds)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(_written(item, rng, odds) for item in value)}]"
    is_quoted = rng.random() < odds
    if rng.random() < 0.15:
        return json.dumps(rng.choice(ODD_TEXTS))
    if value is None:
        return '""' if is_quoted else "null"
    if isinstance(value, bool):
        text = str(value)
        return json.dumps(rng.choice([text, text.lower(), text.upper()])) if is_quoted else text.lower()
    if isinstance(value, Literal):
        return f'"{value.text}"' if is_quoted else value.text
    return json.dumps(rng.choice([value, value, value.upper(), value.lower()]))
