"""The conformance set through Spark: alone, and where no one looks at it."""

from __future__ import annotations

import json

from spark_batch.outcome import Reason
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from tests.spark.engines import Engine, rows, table
from tests.spark.json_texts import UNDECIDED, texts
from tests.spark.oracle import NotValid, read_json

JSON = ConverterSpec(ConverterKind.JSON)
SCHEMA = {"type": "record", "name": "R", "fields": [{"name": "known", "type": "string"}]}


def test_set_is_large_and_without_repeats() -> None:
    """At least 250 texts, none twice."""
    found = [text for text, _ in texts()]
    assert len(set(found)) == len(found) >= 250


def test_oracle_passes_the_same_verdicts() -> None:
    """The set's verdicts are the oracle's, so that one cannot be bent to fit the conversion."""
    for text, verdict in texts():
        try:
            read_json(text)
        except NotValid:
            assert verdict is not None, text
        else:
            assert verdict is None, text


def test_payloads_without_contract(engine: Engine) -> None:
    """Without a contract a payload passes unchanged if and only if it is JSON."""
    found = rows(engine.convert(ConversionPlan(PayloadFormat.JSON), table([text for text, _ in texts()])))
    seen = [(row.get("value"), row.get("reason")) for row in found]
    assert seen == [(text if verdict is None else None, verdict) for text, verdict in texts()]


def test_fields_no_one_looks_at(engine: Engine) -> None:
    """Under a contract the whole payload must be JSON, unknown fields included."""
    deep = {text for text, _, _ in UNDECIDED if text.count(b"[") + text.count(b"{") >= 500}
    chosen = [(text, verdict) for text, verdict in texts() if text not in deep]
    payloads = [b'{"known":"x","extra":' + text + b"}" for text, _ in chosen]
    plan = ConversionPlan(PayloadFormat.JSON, Contract(json.dumps(SCHEMA)), value_converter=JSON)
    found = rows(engine.convert(plan, table(payloads)))
    wrong = [
        (text, verdict, row)
        for (text, verdict), row in zip(chosen, found, strict=True)
        if row.get("reason") != (Reason.MALFORMED_JSON if text == b"\xef\xbb\xbf{}" else verdict)
        or row.get("value") != (b'{"known":"x"}' if verdict is None else None)
    ]
    assert wrong == []
