"""The exact path's reader against the conformance set, without Spark."""

from __future__ import annotations

import pytest

from spark_batch.literals.reading import RejectedPayload, parse
from spark_batch.outcome import Reason
from tests.spark.json_texts import texts


@pytest.mark.parametrize(("text", "verdict"), texts(), ids=lambda part: repr(part)[:40])
def test_verdict_and_reason(text: bytes, verdict: Reason | None) -> None:
    """Every text gets the verdict of the set, for the reason of the set."""
    seen: Reason | None = None
    try:
        parse(text)
    except RejectedPayload as refusal:
        seen = refusal.rejection.reason
    assert seen is verdict
