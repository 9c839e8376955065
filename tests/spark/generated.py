"""Hypothesis strategies: schemas of every supported type, payloads that fit them, and payloads bent out of shape."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "",
            "5",
            "-1",
            "1e5",
            "true",
            "false",
            "null",
            "[1]",
            "{}",
            "[",
            "{x",
            "007",
            "1.",
            "\x00",
            "\ud7ff",
            "é",
            "😀",
            '"',
            "\\",
            "a\\u",
            "\u2028",
            "0x1",
            "5d",
            "NaN",
            " 5",
        ]
    ),
)
_KEYS = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "$id",
            "f0",
            "été",
            "a.b",
            "x y",
            "Aa",
            "AA",
            'q"q',
            "q'q",
            "w?",
            "",
            "__headrace_value",
            "value",
            "key",
            "[0]",
        ]
    ),
    st.text(min_size=1, max_size=6),
)
_INTEGERS = st.one_of(
    st.integers(-10, 10),
    st.sampled_from(
        [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**30]
    ),
)
_NUMBERS = st.one_of(
    _INTEGERS.map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-1000, max_value=1000).map(str),
    st.sampled_from(
        [
            "-0",
            "0.0",
            "-0.0",
            "1e2",
            "1E+2",
            "1e400",
            "1e-400",
            "-1e400",
            "3.5e38",
            "3.4028235e38",
            "1.10",
            "12.345",
            "0.001",
            "100000000000000000000.5",
            "1.00000000000000000000000000000000000000000001",
            "123456789012345678901234567890123456789012345",
        ]
    ),
)
_INSTANT_TEXTS = st.sampled_from(
    [
        "2024-01-01",
        "2024-02-30",
        "0001-01-01",
        "0000-01-01",
        "2024",
        "2024-1-1",
        "12:34",
        "12:34:56",
        "12:34:56.789",
        "12:34:56.7891",
        "12:34:56.7890",
        "24:00:00",
        "2024-01-01T00:00:00Z",
        "2024-01-01T00:00:00",
        "2024-01-01 00:00:00Z",
        "2024-01-01T00:00:00.123Z",
        "2024-01-01T00:00:00.123456Z",
        "2024-01-01T00:00:00.1234567Z",
        "2024-01-01T23:59:60Z",
        "2024-01-01T00:00:00+14:30",
        "2024-01-01T00:00:00-23:59",
        "9999-12-31T23:59:59-01:00",
        "0001-01-01T00:00:00+01:00",
        "2024-01-01T00:00:00.5",
        "1969-12-31T23:59:59.999Z",
        "2024-01-01T00:00:00+0100",
        "1602611311",
    ]
)
_PRIMITIVES = ["boolean", "int", "long", "float", "double", "string", "bytes"]
_PROVABLE = ["boolean", "int", "long", "float", "double", "string"]
_LOGICAL = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "string", "logicalType": "uuid"},
    {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
    {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
    {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 4},
]
_DEFAULTS: dict[str, list[Any]] = {
    "boolean": [True],
    "int": [7, 0],
    "long": [2**53 + 1],
    "float": [1.5],
    "double": [0.1],
    "string": ["", 'ü\n"x'],
    "bytes": ["\u00ff\u0000"],
}


@st.composite
def schemas(  # noqa: C901 - five small strategies that share one counter of names
    draw: st.DrawFn, *, is_provable: bool = False
) -> dict[str, Any]:
    """A record schema with one to six fields, nested up to three levels; of types that Arrow reads, if asked for."""
    counter = [0]
    primitives = _PROVABLE if is_provable else _PRIMITIVES

    def name() -> str:
        counter[0] += 1
        return f"T{counter[0]}"

    def leaf() -> Any:
        choice = draw(st.integers(0, 11 if is_provable else 13))
        if choice < 8:
            return draw(st.sampled_from(primitives))
        if choice < 11:
            return draw(st.sampled_from(_LOGICAL))
        if choice == 11:
            return {"type": "enum", "name": name(), "symbols": ["A", "true", "_x"]}
        if choice == 12:
            return {"type": "fixed", "name": name(), "size": 3}
        return {"type": "fixed", "name": name(), "size": 4, "logicalType": "decimal", "precision": 8, "scale": 3}

    def slot(depth: int) -> Any:
        kind = any_type(depth)
        shape = draw(st.integers(0, 3))
        return kind if shape < 2 else ["null", kind] if shape == 2 else [kind, "null"]

    def any_type(depth: int) -> Any:
        shape = draw(st.integers(0, 9)) if depth < 3 else 0
        if shape < 6:
            return leaf()
        if shape == 6:
            return {"type": "array", "items": slot(depth + 1)}
        if shape == 7 and not is_provable:
            return {"type": "map", "values": slot(depth + 1)}
        return record(depth + 1)

    def field(index: int, depth: int, used: set[str]) -> dict[str, Any]:
        found: dict[str, Any] = {"name": f"f{index}", "type": slot(depth)}
        if draw(st.booleans()):
            json_name = draw(_KEYS)
            if json_name not in used:
                found["json.name"] = json_name
        used.add(found.get("json.name", found["name"]))
        first = found["type"][0] if isinstance(found["type"], list) else found["type"]
        if isinstance(first, str) and draw(st.booleans()):
            found["default"] = None if first == "null" else draw(st.sampled_from(_DEFAULTS[first]))
        return found

    def record(depth: int) -> dict[str, Any]:
        used = {f"f{index}" for index in range(6)}
        fields = [field(index, depth, used) for index in range(draw(st.integers(1, 6 if depth == 0 else 3)))]
        return {"type": "record", "name": name(), "fields": fields}

    return record(0)


def payloads(schema: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Payloads for the schema: mostly fitting, some with wrong values inside, some damaged as text."""
    fitting = st.integers(0, 3).flatmap(lambda odds: _text(schema, odds))
    damaged = st.tuples(fitting, st.integers(0, 200), _DAMAGE).map(lambda case: case[2](case[0], case[1]))
    return st.one_of(fitting, fitting, fitting, damaged.map(lambda text: text)).map(_encoded)


def fitting_payloads(schema: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Payloads for the schema, hardly one of them wrong."""
    return _text(schema, 0).map(_encoded)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_BITS = [
    "}",
    "{",
    "]",
    "[",
    ",",
    ":",
    '"',
    "\\",
    "\\ud800",
    "\\ud83d\\ude00",
    "\\\\ud800",
    "1",
    " ",
    "\t",
    "\ufeff",
    "\x01",
    "NaN",
    "//",
    "'",
    "null",
    "é",
    "\ud800",
]
_DAMAGE: st.SearchStrategy[Callable[[str, int], str]] = st.one_of(
    st.sampled_from(_BITS).map(
        lambda bit: lambda text, at: text[: at % (len(text) + 1)] + bit + text[at % (len(text) + 1) :]
    ),
    st.just(lambda text, at: text[: at % (len(text) + 1)]),
    st.just(lambda text, at: text[: at % (len(text) + 1)] + text[at % (len(text) + 1) + 1 :]),
    st.just(lambda text, _: text + text),
    st.just(lambda text, _: f" \n\t\r{text}\r\n"),
    st.just(lambda text, _: f"[{text}]"),
)
_ANY_JSON: st.SearchStrategy[str] = st.recursive(
    st.one_of(
        TEXTS.map(json.dumps), _NUMBERS, st.sampled_from(["null", "true", "false"]), _INSTANT_TEXTS.map(json.dumps)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{','.join(items)}]"),
        st.lists(st.tuples(_KEYS, inner), max_size=3).map(
            lambda pairs: "{" + ",".join(f"{json.dumps(key)}:{item}" for key, item in pairs) + "}",
        ),
    ),
    max_leaves=5,
)


def _text(schema: Any, odds: int) -> st.SearchStrategy[str]:
    """JSON text for the schema; with odds n, n of ten values are anything at all."""
    return st.integers(0, 9).flatmap(lambda die: _ANY_JSON if die < odds - 1 else _fitting(schema, odds))


def _fitting(schema: Any, odds: int) -> st.SearchStrategy[str]:
    if isinstance(schema, list):
        other = next(branch for branch in schema if branch != "null")
        return st.one_of(st.just("null"), _text(other, odds), _text(other, odds))
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return _record(schema, odds)
    if kind == "array":
        return st.lists(_text(schema["items"], odds), max_size=4).map(lambda items: f"[{', '.join(items)}]")
    if kind == "map":
        return st.dictionaries(_KEYS, _text(schema["values"], odds), max_size=3).map(
            lambda items: "{" + ",".join(f"{json.dumps(key)} : {item}" for key, item in items.items()) + "}",
        )
    return _plain(schema if isinstance(schema, dict) else {"type": schema}, kind)


def _record(schema: dict[str, Any], odds: int) -> st.SearchStrategy[str]:
    @st.composite
    def build(draw: st.DrawFn) -> str:
        pairs = [
            (field.get("json.name", field["name"]), draw(_text(field["type"], odds)))
            for field in schema["fields"]
            if draw(st.integers(0, 9)) > 0
        ]
        pairs += draw(st.one_of(st.just([]), st.just([]), st.lists(st.tuples(_KEYS, _ANY_JSON), max_size=2)))
        if odds and pairs and draw(st.integers(0, 15)) == 0:
            pairs.append(pairs[0])
        pairs = draw(st.permutations(pairs))
        ensure_ascii = draw(st.booleans())
        return "{" + ",".join(f"{json.dumps(key, ensure_ascii=ensure_ascii)}:{item}" for key, item in pairs) + "}"

    return build()


def _plain(schema: dict[str, Any], kind: str) -> st.SearchStrategy[str]:
    logical = schema.get("logicalType")
    if logical == "uuid":
        texts = st.tuples(st.uuids().map(str), st.sampled_from(["", "", "", "\n", "\r", "\u2028", " "])).map("".join)
        return st.one_of(texts.map(json.dumps), TEXTS.map(json.dumps))
    if logical == "decimal":
        return st.one_of(st.decimals(min_value=-10, max_value=10, places=2).map(str), _NUMBERS)
    if logical is not None:
        return st.one_of(_INTEGERS.map(str), st.integers(0, 10**12).map(str), _INSTANT_TEXTS.map(json.dumps))
    if kind == "enum":
        return st.sampled_from([*schema["symbols"], "B"]).map(json.dumps)
    if kind in {"bytes", "fixed"}:
        size = schema.get("size")
        raw = st.binary(max_size=6) if size is None else st.binary(min_size=size, max_size=size)
        return st.one_of(raw.map(lambda b: json.dumps(base64.b64encode(b).decode())), TEXTS.map(json.dumps))
    plain: dict[str, st.SearchStrategy[str]] = {
        "boolean": st.sampled_from(["true", "false"]),
        "int": st.integers(-(2**31), 2**31 - 1).map(str),
        "long": st.one_of(st.integers(-(2**63), 2**63 - 1).map(str), _INTEGERS.map(str)),
        "float": st.one_of(st.floats(width=32, allow_nan=False, allow_infinity=False).map(repr), _NUMBERS),
        "double": st.one_of(st.floats(allow_nan=False, allow_infinity=False).map(repr), _NUMBERS),
        "string": st.tuples(TEXTS, st.booleans()).map(lambda case: json.dumps(case[0], ensure_ascii=case[1])),
    }
    return plain[kind]
