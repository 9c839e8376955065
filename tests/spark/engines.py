"""Where conversion tests run: a Spark JVM launched by PySpark, or a Spark Connect server in a process of its own.

Both answer the same question, `convert(plan, payloads)`. An engine heals itself, since crash tests kill JVMs.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from service.embedded.jars import archive_options
from spark_batch.compiled import CompiledPlan, compile_plan
from spark_batch.convert import convert_table
from spark_batch.convert_exactly import convert_exactly, is_judged_exactly
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import ConversionPlan, PlanFinding
from spark_batch.plan_selections import selection_findings
from spark_batch.proof import ProofHabit
from spark_batch.rules.columns import rule_findings
from spark_batch.session import SparkSettings, is_jvm_alive, kill_jvm, start_session
from tests.spark_server import CONNECT_FLAG, avro_jar


def local_settings() -> SparkSettings:
    """As a worker launches Spark."""
    return SparkSettings(avro_jar=avro_jar(), java_options=archive_options("spark"))


def table(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int | None] | None = None,
) -> pa.Table:
    """A micro-batch of these payloads."""
    columns = {
        "key": pa.array(keys if keys is not None else [None] * len(values), pa.binary()),
        "value": pa.array(values, pa.binary()),
        "timestamp": pa.array(timestamps if timestamps is not None else [None] * len(values), pa.int64()),
    }
    return pa.table(columns, schema=INPUT_SCHEMA)


class Engine(Protocol):
    """Runs conversions for tests."""

    def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch."""
        ...

    def check(self, plan: ConversionPlan) -> list[PlanFinding]:
        """What Spark finds in the plan's rules."""
        ...

    def stop(self) -> None:
        """End every process that belongs to it."""
        ...


class LocalEngine:
    """Spark in a JVM that PySpark launches."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._compiled: dict[ConversionPlan, CompiledPlan] = {}

    def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch."""
        self._ready()
        return self.convert_by(self._columns(plan), batch)

    def compiled(self, plan: ConversionPlan) -> CompiledPlan:
        """The plan as if nothing were learned of its payloads yet, for a test that takes paths away from it."""
        self._ready()
        compiled = self._columns(plan)
        typed = None if compiled.typed is None else replace(compiled.typed, habit=ProofHabit())
        return replace(compiled, typed=typed)

    def convert_by(self, compiled: CompiledPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch by such a plan."""
        return convert_table(self._ready(), compiled, batch)

    @property
    def session(self) -> SparkSession:
        """The session that the next conversion takes place in."""
        return self._ready()

    def check(self, plan: ConversionPlan) -> list[PlanFinding]:
        """What Spark finds in the plan's rules."""
        return [*rule_findings(self._ready(), plan), *selection_findings(self._ready(), plan)]

    def stop(self) -> None:
        """Kill the JVM: nothing in it is worth a slow end."""
        kill_jvm(self._session)
        self._session = None

    def _columns(self, plan: ConversionPlan) -> CompiledPlan:
        if plan not in self._compiled:
            self._compiled[plan] = compile_plan(self._ready(), plan)
        return self._compiled[plan]

    def _ready(self) -> SparkSession:
        if self._session is None or not is_jvm_alive():
            kill_jvm(self._session)
            self._compiled.clear()
            self._session = _start_persistently()
        return self._session


def _start_persistently() -> SparkSession:
    """A JVM that ends while it starts is started again, as a worker does it."""
    try:
        return start_session(local_settings())
    except PySparkRuntimeError as error:
        print(f"Spark did not start: {error}", file=sys.stderr)  # noqa: T201 - the tests are its log
    # PySpark leaves the pipe to such a JVM to the garbage collector.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    return start_session(local_settings())


class ConnectEngine:
    """A session on a Spark Connect server, of which others make use as well."""

    def __init__(self, url: str) -> None:
        os.environ[CONNECT_FLAG] = "1"
        try:
            self._session = start_session(SparkSettings(remote=url))
        finally:
            del os.environ[CONNECT_FLAG]
        self._compiled: dict[ConversionPlan, CompiledPlan] = {}

    def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch."""
        os.environ[CONNECT_FLAG] = "1"
        try:
            if plan not in self._compiled:
                self._compiled[plan] = compile_plan(self._session, plan)
            return convert_table(self._session, self._compiled[plan], batch)
        finally:
            del os.environ[CONNECT_FLAG]

    def check(self, plan: ConversionPlan) -> list[PlanFinding]:
        """What Spark finds in the plan's rules."""
        os.environ[CONNECT_FLAG] = "1"
        try:
            return [*rule_findings(self._session, plan), *selection_findings(self._session, plan)]
        finally:
            del os.environ[CONNECT_FLAG]

    def stop(self) -> None:
        """Close the client's channel."""
        os.environ[CONNECT_FLAG] = "1"
        try:
            self._session.stop()
        finally:
            os.environ.pop(CONNECT_FLAG, None)


class ExactEngine:
    """The exact path alone, as previews judge; Spark for contracts with rules, as there."""

    def __init__(self, spark: Engine) -> None:
        self._spark = spark

    def convert(self, plan: ConversionPlan, batch: pa.Table) -> pa.Table:
        """The outcome of the batch."""
        return convert_exactly(plan, batch) if is_judged_exactly(plan) else self._spark.convert(plan, batch)

    def check(self, plan: ConversionPlan) -> list[PlanFinding]:
        """What Spark finds in the plan's rules."""
        return self._spark.check(plan)

    def stop(self) -> None:
        """There is nothing to end."""


def take_rules_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that need a rule which is slow, as none from a config can be: nothing is judged."""

    def unjudged(_: SparkSession, plan: ConversionPlan) -> tuple[Column, ...]:
        return tuple(F.expr(rule.expression) for rule in (plan.contract.rules if plan.contract else ()))

    monkeypatch.setattr("spark_batch.compiled.rule_columns", unjudged)


def rows(outcome: pa.Table) -> list[dict[str, Any]]:
    """The outcome's rows, nulls left out."""
    return [{name: value for name, value in row.items() if value is not None} for row in outcome.to_pylist()]
