"""Validation and what only others can tell of a config."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from fetchers.sdk import Severity
from service.validation.outside import SPARK_SECONDS_MAX, Outside
from service.validation.plugins import ConnectorPlugins
from service.validation.validator import Validation
from service.worker.connectors import PlanCheck, Schemas
from service.worker.foreign_calls import ForeignCalls
from spark_batch.errors import ConversionRetriable
from spark_batch.plan import ConversionPlan, PlanFinding
from tests.unit.worker.test_rules import Away, Inline

SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"string"}]}'
WORKER = {"key.converter": "string", "value.converter": "json"}
SOURCE = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "file": "f", "contract.schema": SCHEMA}
RULE = "contract.rules.short"


async def refusing(plan: ConversionPlan) -> Sequence[PlanFinding]:
    """Spark, which takes no rule."""
    rules = plan.contract.rules if plan.contract else ()
    return [PlanFinding(f"contract.rules.{rule.name}", rule.expression, "a pattern that is shorter") for rule in rules]


async def lost(plan: ConversionPlan) -> Sequence[PlanFinding]:
    """Spark, which has gone."""
    raise ConversionRetriable(f"Spark was lost: {plan.payload_format}")


async def silent(plan: ConversionPlan) -> Sequence[PlanFinding]:
    """Spark, which does not answer."""
    del plan
    await asyncio.Event().wait()
    return ()


def plugins(check: PlanCheck, *, schemas: Schemas | None = None, is_ready: bool = True) -> ConnectorPlugins:
    """Of a worker whose Spark answers so."""
    deep: Any = SimpleNamespace(spark=Outside(schemas or Inline(), check, lambda: is_ready))
    return ConnectorPlugins(Validation(WORKER), ForeignCalls(), deep=deep)


async def test_a_rule_that_spark_refuses_is_an_error_of_the_config() -> None:
    """For who validates and for who writes; it counts, and stands at its key."""
    asked = plugins(refusing)
    config = {**SOURCE, RULE: "rlike(a, 'x{1000}')"}
    validated = await asked.validate("FileStreamSource", config)
    [found] = [info.value for info in validated.infos.configs if info.value.errors]
    assert (found.name, validated.infos.error_count) == (RULE, 1)
    assert found.errors == (
        "Invalid value rlike(a, 'x{1000}') for configuration contract.rules.short: Expected a pattern that is shorter",
    )
    assert await asked.errors_of(config) == found.errors


async def test_spark_is_asked_of_what_is_right_by_itself_alone() -> None:
    """Configs with errors have no plan; without rules there is nothing to ask, nor of a sink."""
    asked = plugins(lost)
    for config in (
        SOURCE,
        {**SOURCE, RULE: "a = 'x'", "tasks.max": "0"},
        {"name": "c", "connector.class": "FileStreamSink", "topics": "t", "file": "f", RULE: "a = 'x'"},
    ):
        validated = await asked.validate(config["connector.class"], config)
        assert not [finding for finding in validated.warnings if "Spark" in finding.message]


SQL_SINK = {
    "name": "c",
    "connector.class": "FileStreamSink",
    "topics": "t",
    "file": "f",
    "value.converter": "json",
    "value.converter.schemas.enable": "true",
    "transforms": "p",
    "transforms.p.type": "Sql",
    "transforms.p.sql": "SELECT a FROM record",
}


async def test_sql_of_a_sink_that_spark_refuses_is_an_error_of_the_config() -> None:
    """Of the text alone: what the records are is not known before they come. A Spark that is away is noted."""
    asked: list[ConversionPlan] = []

    async def refusing_sql(plan: ConversionPlan) -> Sequence[PlanFinding]:
        asked.append(plan)
        return [PlanFinding("transforms.p.sql", "SELECT a FROM record", "another text")]

    validated = await plugins(refusing_sql).validate("FileStreamSink", SQL_SINK)
    [found] = [info.value for info in validated.infos.configs if info.value.errors]
    assert (found.name, validated.infos.error_count) == ("transforms.p.sql", 1)
    assert "another text" in found.errors[0]
    assert [(plan.contract, plan.is_of_rows) for plan in asked] == [(None, True)]
    [warning] = (await plugins(lost).validate("FileStreamSink", SQL_SINK)).warnings
    assert (warning.key, warning.severity) == ("transforms.p.sql", Severity.WARNING)


@pytest.mark.parametrize(
    ("check", "schemas", "is_ready", "reason"),
    [
        (silent, Inline(), False, "it has not started yet"),
        (lost, Inline(), True, "Spark was lost"),
        (refusing, Away(), True, "(c)"),
    ],
)
async def test_a_spark_that_cannot_be_asked_is_noted(
    check: PlanCheck, schemas: Schemas, *, is_ready: bool, reason: str
) -> None:
    """The config is taken as before, and its tasks will tell."""
    validated = await plugins(check, schemas=schemas, is_ready=is_ready).validate(
        "FileStreamSource", {**SOURCE, RULE: "a = 'x'"}
    )
    [warning] = validated.warnings
    assert (warning.key, warning.severity, validated.infos.error_count) == (RULE, Severity.WARNING, 0)
    assert reason in warning.message


@pytest.mark.looptime
async def test_a_spark_that_does_not_answer_holds_up_requests_for_so_long_only() -> None:
    """However many come at once: all of them wait for the same time, and one of them has a place for conversions."""
    asking = 0

    async def counted(plan: ConversionPlan) -> Sequence[PlanFinding]:
        nonlocal asking
        asking += 1
        assert asking == 1
        try:
            return await silent(plan)
        finally:
            asking -= 1

    definition = Validation(WORKER).validate({**SOURCE, RULE: "a = 'x'"}).definition
    assert definition is not None
    outside = Outside(Inline(), counted, lambda: True)
    began = asyncio.get_running_loop().time()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(outside.findings(definition)) for _ in range(20)]
    assert all("no answer within 10 s" in finding.message for each in asked for finding in each.result())
    assert asyncio.get_running_loop().time() - began == SPARK_SECONDS_MAX


async def test_what_is_registered_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contract in a registry is looked up before Spark is asked about its rules."""
    inline = Inline()

    async def looked_up(_: object) -> str:
        return SCHEMA

    monkeypatch.setattr(inline, "contract_of", looked_up)
    config = {**SOURCE, "contract.schema": "registry:r", RULE: "a = 'x'"}
    assert len(await plugins(refusing, schemas=inline).errors_of(config)) == 1
