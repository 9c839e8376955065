"""Every hole that `from_json` leaves open, one by one, with its verdict; see the record of them in the design."""

from __future__ import annotations

import json
from typing import Any

from spark_batch.outcome import Reason
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.plan_findings import plan_findings
from tests.spark.engines import Engine, table
from tests.spark.oracle import NotValid, judged, read_avro

AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=1)
W, R, N = Reason.WRONG_TYPE, Reason.OUT_OF_RANGE, Reason.NULL_NOT_ALLOWED
MALFORMED = Reason.MALFORMED_JSON
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-millis"}
DATE = {"type": "int", "logicalType": "date"}
TIME = {"type": "int", "logicalType": "time-millis"}
UUID = {"type": "string", "logicalType": "uuid"}
ID = "123e4567-e89b-12d3-a456-426614174000"
ENUM = {"type": "enum", "name": "E", "symbols": ["on", "off", "true"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "text only from text": (
        "string",
        {
            '"5"': "5",
            '"true"': "true",
            '"[1]"': "[1]",
            '"{}"': "{}",
            '"-1e5"': "-1e5",
            '""': "",
            '" 5"': " 5",
            '"\\u0035"': "5",
            '"5d"': "5d",
            '"NaN"': "NaN",
            '"2024-01-01"': "2024-01-01",
            '"null"': "null",
            "5": W,
            "-5": W,
            "1.5": W,
            "1e5": W,
            "0": W,
            "true": W,
            "false": W,
            "{}": W,
            "[]": W,
            '["5"]': W,
            '{"a":"5"}': W,
        },
    ),
    "whole numbers": (
        "long",
        {
            "0": 0,
            "-0": 0,
            "9223372036854775807": 2**63 - 1,
            "-9223372036854775808": -(2**63),
            "9007199254740993": 9007199254740993,
            "9223372036854775808": R,
            "-9223372036854775809": R,
            "1" * 400: R,
            "1.5": W,
            "1.0": W,
            "1e3": W,
            "true": W,
            "false": W,
            '"1"': W,
            '""': W,
            "[1]": W,
            "{}": W,
        },
    ),
    "32 bits": ("int", {"2147483647": 2**31 - 1, "2147483648": R, "-2147483648": -(2**31), "-2147483649": R, "1.0": W}),
    "booleans": ("boolean", {"true": True, "false": False, "0": W, "1": W, '"true"': W, '""': W, "[]": W}),
    "finite doubles": (
        "double",
        {
            "1": 1.0,
            "-0.0": -0.0,
            "1e99999999999999999999": R,
            "1e-99999999999999999999": 0.0,
            "0e99999999999999999999": 0.0,
            "-0": 0.0,
            "1e308": 1e308,
            "1.7976931348623157e308": 1.7976931348623157e308,
            "1e-400": 0.0,
            "0.1": 0.1,
            "1e400": R,
            "-1e400": R,
            '"1"': W,
            '"NaN"': W,
            '"Infinity"': W,
            '"+INF"': W,
            '"-Infinity"': W,
            "NaN": MALFORMED,
            "Infinity": MALFORMED,
            "-Infinity": MALFORMED,
            "true": W,
        },
    ),
    "finite floats": (
        "float",
        {
            "1.5": 1.5,
            "-0": 0.0,
            "-0.0": -0.0,
            "1e99999999999999999999": R,
            "1e-99999999999999999999": 0.0,
            "0e99999999999999999999": 0.0,
            "3.4028234663852886e38": 3.4028234663852886e38,
            "3.4028235e38": 3.4028234663852886e38,
            "3.4028235677973365e38": 3.4028234663852886e38,
            "3.4028235677973366e38": 3.4028234663852886e38,
            "3.4028235677973367e38": R,
            "3.5e38": R,
            "-1e39": R,
        },
    ),
    "exact decimals": (
        DECIMAL,
        {
            "12.34": "12.34",
            "12.3": "12.30",
            "12.3400": "12.34",
            "-0.01": "-0.01",
            "1e1": "10.00",
            "99.99": "99.99",
            "0e99999999999999999999": "0.00",
            "1e99999999999999999999": R,
            "1e-99999999999999999999": R,
            "0": "0.00",
            "-0": "0.00",
            "12.345": R,
            "0.001": R,
            "100": R,
            "1e400": R,
            "12.340000000000000000000000001": R,
            "12.3400000000000000000000000000000000000000000000000001": R,
            '"12.34"': W,
            "true": W,
        },
    ),
    "instants": (
        MILLIS,
        {
            "1602611311000": 1602611311000,
            "-1": -1,
            '"2024-01-01T00:00:00Z"': 1704067200000,
            '"2024-01-01T01:00:00+01:00"': 1704067200000,
            '"2024-01-01T00:00:00.123Z"': 1704067200123,
            '"2024-01-01T00:00:00.123000Z"': 1704067200123,
            '"2024-01-01T00:00:00.1234Z"': R,
            "253402300800000": R,
            '"2024-01-01T00:00:00"': W,
            '"2024-01-01"': W,
            '"2024"': W,
            '"12:34"': W,
            '"1602611311"': W,
            '"now"': W,
            '"2024-02-30T00:00:00Z"': R,
            '"2024-01-01T24:00:00Z"': W,
            "1602611311.5": W,
            "1602611311.0": W,
            "1e12": W,
            "9223372036854775807": R,
            '""': W,
            "true": W,
        },
    ),
    "micros are not cut": (
        MICROS,
        {
            '"2024-01-01T00:00:00.123456Z"': 1704067200123456,
            "1704067200123456": 1704067200123456,
            '"2024-01-01T00:00:00.1234567Z"': R,
        },
    ),
    "local instants": (LOCAL, {'"2024-01-01T00:00:00.5"': 1704067200500, '"2024-01-01T00:00:00Z"': W}),
    "dates": (
        DATE,
        {
            '"2024-01-01"': 19723,
            "19723": 19723,
            '"2024"': W,
            '"2024-01"': W,
            '"2024-01-01T00:00:00Z"': W,
            '"2024-02-30"': R,
            "2932897": R,
            '"0000-01-01"': R,
            '"12:34"': W,
        },
    ),
    "times": (TIME, {'"12:34:56.789"': 45296789, "45296789": 45296789, '"12:34"': W, "86400000": R, "-1": R}),
    "uuids": (UUID, {f'"{ID}"': ID, **dict.fromkeys((f'"{ID}\\n"', f'"{ID}\\r\\n"', f'"{ID}\\u2028"', '"x"', "5"), W)}),
    "enums": (
        ENUM,
        {'"on"': "on", '"true"': "true", '"ON"': Reason.UNKNOWN_SYMBOL, "true": W, '""': Reason.UNKNOWN_SYMBOL},
    ),
    "bytes are canonical base64": (
        "bytes",
        {
            '"AN4="': b"\x00\xde",
            '""': b"",
            '"AN4"': W,
            '"AN5="': W,
            '"A N4="': W,
            '"AN4=\\n"': W,
            "5": W,
            '"abcd"': b"i\xb7\x1d",
            "1234": W,
        },
    ),
    "fixed": (FIXED, {'"AN4="': b"\x00\xde", '"AA=="': R, '"x"': W}),
    "arrays": (
        {"type": "array", "items": "string"},
        {
            '["a","5","[x"]': ["a", "5", "[x"],
            "[]": [],
            '["a",5]': W,
            '["5",null]': N,
            '["a",true]': W,
            '"a"': W,
            "{}": W,
            '[["a"]]': W,
            '["5",[5]]': W,
        },
    ),
    "maps": (
        {"type": "map", "values": "long"},
        {
            '{"a":1,"A":2,"":3}': {"a": 1, "A": 2, "": 3},
            '{"a":null}': N,
            '{"a":1.5}': W,
            "[]": W,
            '{"a":1,"a":2}': Reason.DUPLICATE_KEY,
        },
    ),
    "maps of text": (
        {"type": "map", "values": "string"},
        {'{"a":"1","b":"x"}': {"a": "1", "b": "x"}, '{"a":1}': W, '{"a":null}': N},
    ),
    "nulls in arrays where allowed": (
        {"type": "array", "items": ["null", "long"]},
        {"[1,null]": [1, None], "[1,null,2.5]": W},
    ),
    "records in arrays": (
        {
            "type": "array",
            "items": {
                "type": "record",
                "name": "I",
                "fields": [{"name": "t", "type": "string"}, {"name": "d", "type": "int", "default": 4}],
            },
        },
        {
            '[{"t":"5"}]': [{"t": "5", "d": 4}],
            '[{"t":5}]': W,
            '[{"t":"a","d":null}]': N,
            '[{"t":"a"},{}]': Reason.MISSING_FIELD,
            "[null]": N,
        },
    ),
}


def _shown(kind: Any, value: Any) -> str:
    """The value in a form that tells -0.0 from 0.0 and 1 from 1.0; decimals by their unscaled bytes, maps in order."""
    if kind == DECIMAL:
        digits = int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value.replace(".", ""))
        return str(digits)
    return repr(dict(sorted(value.items())) if isinstance(value, dict) else value)


def test_every_hole_is_closed(engine: Engine) -> None:
    """A value passes exactly as it is written, or is rejected for the right reason; so says the oracle."""
    fields = [{"name": f"f{at}", "type": ["null", kind]} for at, (kind, _) in enumerate(CASES.values())]
    schema = {"type": "record", "name": "R", "fields": fields}
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema)), value_converter=AVRO)
    assert plan_findings(plan) == []
    cases = [
        (hole, kind, f"f{at}", text, wanted)
        for at, (hole, (kind, texts)) in enumerate(CASES.items())
        for text, wanted in texts.items()
    ]
    payloads = [f'{{"{name}":{text}}}'.encode() for _, _, name, text, _ in cases]
    outcome = engine.convert(plan, table(payloads)).to_pylist()
    plain = json.loads(json.dumps(schema).replace('"logicalType"', '"was"'))
    wrong = []
    for (hole, kind, name, text, wanted), payload, row in zip(cases, payloads, outcome, strict=True):
        seen: Any = row["reason"]
        if seen is None:
            seen = _shown(kind, read_avro(plain, row["value"][5:])[name])
        if seen != (wanted if isinstance(wanted, Reason) else _shown(kind, wanted)):
            wrong.append((hole, text, seen, wanted))
        if _is_valid(schema, payload) is isinstance(wanted, Reason):
            wrong.append((hole, text, "the oracle disagrees", wanted))
    assert wrong == []


def _is_valid(schema: dict[str, Any], payload: bytes) -> bool:
    try:
        judged(schema, payload)
    except NotValid:
        return False
    return True


def test_message_names_the_field_and_not_the_value(engine: Engine) -> None:
    """Messages go to headers and logs, where a payload's content has no business."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "secret", "type": "long"}]}
    schema = {"type": "record", "name": "R", "fields": [{"name": "deep", "type": {"type": "array", "items": inner}}]}
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema)), value_converter=AVRO)
    texts = [
        b'{"deep":[{"secret":1},{"secret":"hunter2"}]}',
        b'{"deep":hunter2}',
        b'{"deep":[{"secret":99999999999999999999}]}',
    ]
    found: list[Any] = engine.convert(plan, table(texts)).column("message").to_pylist()
    assert found[0] == "deep[1].secret: expected an integer"
    assert not any("hunter2" in message or "9999" in message for message in found)


WHOLE: dict[bytes, Reason | None] = {
    b'{"a":1}': None,
    b' \r\n\t{"a":1}\n': None,
    b'{"a":1,"x":{"y":[1,{"z":null}]}}': None,
    b'{"a":1}{"a":2}': MALFORMED,
    b'{"a":1} {"a":2}': MALFORMED,
    b'{"a":1},{"a":2}': MALFORMED,
    b'{"a":1}]': MALFORMED,
    b'{"a":1}],[{"a":1}': MALFORMED,
    b'{"a":1}x': MALFORMED,
    b'x{"a":1}': MALFORMED,
    b'{"a":1,"a":1}': Reason.DUPLICATE_KEY,
    b'{"a":1,"\\u0061":1}': Reason.DUPLICATE_KEY,
    b'{"a":1,"x":1,"x":2}': Reason.DUPLICATE_KEY,
    b'{"a":1,"x":{"y":1,"y":1}}': Reason.DUPLICATE_KEY,
    b'{"a":1,"x":"\xff"}': Reason.INVALID_UTF8,
    b'{"a":1,"x":"\xed\xa0\x80"}': Reason.INVALID_UTF8,
    b'{"a":1,"x":"\\ud800"}': Reason.LONE_SURROGATE,
    b'{"a":1,"x":"\\\\ud800"}': None,
    b'{"a":1,"x":"\\ud83d\\ude00"}': None,
    b'{"a":1,"x":NaN}': MALFORMED,
    b'{"a":1,"x":Infinity}': MALFORMED,
    b'{"a":1,"x":1e400}': None,
    b"{'a':1}": MALFORMED,
    b'{"a":1,"x":\'y\'}': MALFORMED,
    b'{"a":1,"x":01}': MALFORMED,
    b'{"a":1,"x":"\n"}': MALFORMED,
    b'{"a":1}//': MALFORMED,
    b"{a:1}": MALFORMED,
    b"": MALFORMED,
    b"  ": MALFORMED,
    b"null": W,
    b"5": W,
    b'"a"': W,
    b"[]": W,
    b'[{"a":1}]': W,
    b"true": W,
    b"{}": Reason.MISSING_FIELD,
    b'{"A":1}': Reason.MISSING_FIELD,
    b'{"a":null}': N,
    b"\xef\xbb\xbf" + b'{"a":1}': MALFORMED,
}


def test_whole_payload_is_one_json_object(engine: Engine) -> None:
    """Whatever stands before, after or between values, keys twice, bad escapes: rejected, read or not."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema)), value_converter=AVRO)
    outcome = engine.convert(plan, table(list(WHOLE))).to_pylist()
    assert {text: row["reason"] for text, row in zip(WHOLE, outcome, strict=True)} == WHOLE


def test_payload_over_the_limit_is_rejected(engine: Engine) -> None:
    """The limit is on the raw payload's bytes, and inclusive."""
    plan = ConversionPlan(PayloadFormat.JSON, record_bytes_max=10)
    outcome = engine.convert(plan, table([b'"12345678"', b'"123456789"', '"éééé"'.encode(), '"ééééé"'.encode()]))
    assert outcome.column("reason").to_pylist() == [None, Reason.TOO_LARGE, None, Reason.TOO_LARGE]


def test_a_megabyte_passes(engine: Engine) -> None:
    """One record of 1 MiB, nested 200 levels, is converted like any other."""
    deep = b"[" * 200 + b"]" * 200
    text = b'{"a":7,"deep":' + deep + b',"x":"'
    text += b"y" * ((1 << 20) - len(text) - 2) + b'"}'
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(schema)), value_converter=AVRO)
    outcome = engine.convert(plan, table([text, text + b" "])).to_pylist()
    assert outcome[0]["value"] == b"\x00\x00\x00\x00\x01\x0e"
    assert outcome[1]["reason"] == Reason.TOO_LARGE
