"""Compiled plans are kept for one session, and not without end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from spark_batch.compiled import PLANS_MAX, CompiledPlans
from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat

SESSION: Any = SimpleNamespace(conf={})
"""Plans without rules ask nothing of it but its settings."""


def plan(number: int) -> ConversionPlan:
    """Bytes as they are: no columns to build, so no session is needed."""
    converter = ConverterSpec(ConverterKind.BYTES)
    return ConversionPlan(PayloadFormat.BYTES, value_converter=converter, record_bytes_max=number + 1)


def test_the_plan_that_was_not_used_for_longest_goes_first() -> None:
    """A plan in steady use is compiled once, however many others come and go."""
    plans = CompiledPlans()
    first = plans.of(SESSION, plan(0), generation=0)
    second = plans.of(SESSION, plan(1), generation=0)
    for number in range(2, PLANS_MAX + 1):
        plans.of(SESSION, plan(number), generation=0)
        assert plans.of(SESSION, plan(0), generation=0) is first
    assert plans.of(SESSION, plan(1), generation=0) is not second


def test_plans_of_a_lost_session_are_forgotten() -> None:
    """Its columns are of a JVM that is gone; who still has it in hand makes nobody else use them."""
    plans = CompiledPlans()
    old = plans.of(SESSION, plan(0), generation=0)
    new = plans.of(SESSION, plan(0), generation=1)
    assert new is not old
    plans.of(SESSION, plan(0), generation=0)
    assert plans.of(SESSION, plan(0), generation=1) is new
