"""Texts of headers as `Values.parseString` reads them, beside the class itself: handwritten and generated ones."""

from __future__ import annotations

import json
import random
import re

import pytest

from spark_batch.transforms.value_parsing import parsed_value
from tests.differential.java_transforms import JavaTransforms, needs_compiler
from tests.differential.test_records_in_java import LITERALS

pytestmark = [pytest.mark.integration, pytest.mark.slow, needs_compiler, pytest.mark.timeout(600)]

STRUCTURED = [
    "[1,2]", "[1, 40000]", "[1,1.5]", "[1.1,1e300]", '["a","b"]', '["a, b" , ":"]', '[" "]', '["a\\"b"]', '["a\\\\"]',
    "[]", "[null]", "[null,1]", "[1,null]", "[true,false]", '[1,"a"]', "[[1],[2]]", "[[1],[40000]]", "[[],[1]]",
    "[1", "[1,]",
    "[,1]", "[1 2]", "[a]", "[-1,+1]", "[99999999999999999999]", "[99999999999999999999,1]", "{}", '{"a":1}',
    '{"a":null}',
    '{"a":1,"b":null}', '{"a":1 "b":2}', "{1:2}", "{1:2,40000:3}", "{1:1.5,2:3}", '{"a":{"b":[1.5,2]}}', "{a:1}",
    '{"a"}',
    "{null:1}", '{"a":1,"a":2}', '{"a":1,"a":"b"}', "{true:1,1:2}", "{[1]:2}", '{"a":1', '{"a":1,}', '{,"a":1}',
    '{"a":}',
    '"quoted"', '"2024-02-29"', '["2024-02-29"]', '["12:34:56.789Z"]', "[12:34:56.789Z]", "[2024-02-29]",
    "[2024-02-29,5]", "[5,2024-02-29]", "[2024-02-29,40000]", "[12:34:56.789Z,5]", "[12:34:56.789Z,-5]",
    "[2024-02-29,1.5]",
    "[2024-02-29T12:34:56.789Z]", "{2024-02-29:1}", "1,2", "1:2", "a\\b", "a\\:b", "12\\:34\\:56.789Z",
    "12:34:56.789Z,x",
]  # fmt: skip
NUMBERS = [
    "99999999999999999999", "-99999999999999999999", "1.5e300", "1e19", "1e18", "9e18", "1e400", "-1e-400", "1e-50",
    "1e-45",
    "1e99999999999999999999", "-1E-99999999999999999999", "[1,1e99999999999999999999]",
    "0e5", "0.0", "-0", "-0.0", "100e-2", "3.4028235e38", "3.4028236e38", "3.5e38", "1.7976931348623157e308", "1e309",
    "9223372036854775808", "-9223372036854775808", "1e2147483648", "1e99999999999", "0.001", "12345678.9", "٣", "1٣",
    "16777217.5", "128", "32768", "2147483648", "-129", "1.00000000000000000000", "1234567.5",
]  # fmt: skip
ODD = [
    " true ", " null ", "  ", "\ttrue", "true}", "null,", "true false", "1970-01-01", "1969-12-31", "2024-13-45",
    "24-02-29",
    "2024-2-9..", "25:61:61.000Z", "12:34:56.7Z..", "2024-02-30T24:00:00.000Z", "1582-10-10", "0001-01-01",
    "2024-02-29X",
    "é😀", '["é😀"]', "\x00", "\x1f 1", "\xa01", "1\xa0", "\u20281", "[\xa01]", "\\", "[\\]", '"\\', "1\\", "[1\\,2]",
    '["\\',
    "2024-2-1😀",
]  # fmt: skip
WORDS = [
    "[", "]", "{", "}", ":", ",", '"', "\\", " ", "1", "-7", "300", "1.5", "null", "true", "x", '"a"', '"b c"',
    "2024-02-29",
    "12:34:56.789Z", "[1,2]", '{"k":1}', "1e300", "70000", "5000000000",
]  # fmt: skip


def generated(count: int) -> list[str]:
    """Lists and maps that are whole, and heaps of their parts."""
    chance = random.Random(7)

    def value(depth: int) -> str:
        if depth < 3 and chance.random() < 0.4:
            items = [value(depth + 1) for _ in range(chance.randrange(4))]
            blank = chance.choice(["", " "])
            if chance.random() < 0.5:
                return f"[{f',{blank}'.join(items)}]"
            return f"{{{','.join(f'{value(3)}{blank}:{item}' for item in items)}}}"
        return chance.choice(WORDS[9:])

    heaps = ["".join(chance.choices(WORDS, k=chance.randrange(1, 12))) for _ in range(count)]
    # An older Java writes further digits of long numbers of floating point (`spark_batch.literals.floating`).
    return [text for text in [*(value(0) for _ in range(count)), *heaps] if not re.search(r"\d{6}\.|\d{6}e", text)]


@pytest.mark.parametrize(
    "texts",
    [LITERALS, STRUCTURED, NUMBERS, ODD, generated(4_000)],
    ids=["plain", "structured", "numbers", "odd", "any"],
)
def test_texts_are_read_as_java_reads_them(java_transforms: JavaTransforms, texts: list[str]) -> None:
    """The same text again, the same schema, and the same value, wherever JsonConverter writes one at all."""
    found, expected = {}, {}
    for text, (own, of_json) in zip(
        texts, java_transforms.headers_read([text.encode() for text in texts]), strict=True
    ):
        ours = parsed_value(text)
        told = ours.text
        found[text] = [None if told is None else told.encode()]
        expected[text] = [own]
        if of_json != b"":
            found[text].append(json.loads(ours.envelope) if ours.schema else None)
            expected[text].append(None if of_json is None else json.loads(of_json))
    assert {text: (ours, expected[text]) for text, ours in found.items() if ours != expected[text]} == {}
