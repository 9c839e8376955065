"""Decimals in envelopes of JSON, of any number of digits: what a transformation makes of them has every digit."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.config.transformations import read_transformations
from service.sinks.converters import EnvelopeReader
from spark_batch.avro_types import Decimal as DecimalType
from spark_batch.transforms.change import canonical_of_connect, connect_text
from tests.unit.sinks.fake_library import polled
from tests.unit.sinks.test_sink_transformations import decode, enveloped, rows_of

CAST = "org.apache.kafka.connect.transforms.Cast$Value"
NUMBERS = st.integers(-(10**75), 10**75)


def base64_of(unscaled: int) -> str:
    """As Connect writes a decimal into JSON: the whole number of its digits, in two's complement."""
    size = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


@given(number=NUMBERS, scale=st.integers(-3, 80))
@example(number=12345678901234567890123456789, scale=10)
@example(number=10**40 + 1, scale=2)
async def test_cast_to_text_keeps_every_digit(number: int, scale: int) -> None:
    """The text is that of Java's ``BigDecimal.toString``, which Python's decimals write too."""
    name = "org.apache.kafka.connect.data.Decimal"
    kind = {"type": "bytes", "name": name, "version": 1, "parameters": {"scale": str(scale)}}
    chain = read_transformations({"transforms": "c", "transforms.c.type": CAST, "transforms.c.spec": "string"})
    decoded = await decode(polled([enveloped(kind, base64_of(number))]), list(chain.steps), EnvelopeReader())
    assert decoded.refusals == []
    digits: Any = tuple(map(int, str(abs(number))))
    assert rows_of(decoded) == [f'"{Decimal((int(number < 0), digits, -scale))}"']


@given(number=NUMBERS, scale=st.integers(0, 80))
@example(number=12345678901234567890123456789, scale=10)
@example(number=10**40 + 1, scale=2)
def test_a_decimal_that_nothing_is_done_to_is_what_it_was(number: int, scale: int) -> None:
    """Of more digits than the schema of a sink's texts can tell, too."""
    kind, text = DecimalType(38, scale), f'"{base64_of(number)}"'.encode()
    assert connect_text(kind, canonical_of_connect(kind, text)) == text


@pytest.mark.parametrize(("text", "is_taken"), [("340282356779733661637539395458142568447", True), ("3.5e38", False)])
async def test_a_text_is_a_float_if_its_nearest_one_is_finite(text: str, *, is_taken: bool) -> None:
    """Also the last whole number below the bound, which is one at 28 digits no more."""
    chain = read_transformations({"transforms": "c", "transforms.c.type": CAST, "transforms.c.spec": "float32"})
    decoded = await decode(polled([enveloped({"type": "string"}, text)]), list(chain.steps), EnvelopeReader())
    assert rows_of(decoded) == (["3.4028235E38"] if is_taken else [])
    assert [refusal.row for refusal in decoded.refusals] == ([] if is_taken else [0])
