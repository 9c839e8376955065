"""Rules of contracts, shown to Spark before any task is begun."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from service.config.definition import ConnectorDefinition, read_definition
from service.registry.errors import RegistryRetriable
from service.worker.connectors import RULES_SECONDS_MAX, rule_findings
from spark_batch.errors import ConversionRetriable
from spark_batch.plan import ConversionPlan, PlanFinding

SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}'
WORKER = {"key.converter": "string", "value.converter": "json"}


def defined(name: str, **rules: str) -> ConnectorDefinition:
    """A connector with rules."""
    properties = {"name": name, "connector.class": "FileStreamSource", "topic": name, "contract.schema": SCHEMA}
    named = {f"contract.rules.{rule}": expression for rule, expression in rules.items()}
    definition = read_definition(properties | named, worker=WORKER).definition
    assert definition is not None
    return definition


class Spark:
    """Takes no rule but ``a > 1``."""

    def __init__(self) -> None:
        """Nothing asked."""
        self.asked = 0

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """One finding for each other rule."""
        self.asked += 1
        rules = plan.contract.rules if plan.contract else ()
        return [
            PlanFinding(f"contract.rules.{rule.name}", rule.expression, "a > 1")
            for rule in rules
            if rule.expression != "a > 1"
        ]


class Inline:
    """A registry that is not asked."""

    async def contract_of(self, definition: ConnectorDefinition) -> str | None:
        """The text in the config."""
        return definition.contract_source.text if definition.contract_source else None

    async def with_ids(self, definition: ConnectorDefinition, plan: ConversionPlan) -> ConversionPlan:
        """Nothing is registered for a check."""
        raise NotImplementedError

    async def with_ids_of_rows(
        self, definition: ConnectorDefinition, plan: ConversionPlan, topic: str, tombstones: str | None
    ) -> ConversionPlan:
        """Nothing is registered for a check."""
        raise NotImplementedError

    async def admit(
        self, definition: ConnectorDefinition, plan: ConversionPlan, topic: str, *, has_values: bool
    ) -> None:
        """Nothing is registered for a check."""
        raise NotImplementedError


class Away(Inline):
    """A registry that does not answer."""

    async def contract_of(self, definition: ConnectorDefinition) -> str | None:
        """No answer."""
        raise RegistryRetriable(definition.name)


async def test_every_wrong_rule_of_every_connector_is_told() -> None:
    """With key and value; equal contracts are asked for once, and connectors without rules not at all."""
    spark = Spark()
    definitions = [
        defined("none"),
        defined("right", x="a > 1"),
        defined("wrong", x="a >", y="b > 1"),
        defined("same", x="a > 1"),
    ]
    found = await rule_findings(definitions, Inline(), spark.check)
    assert [[(finding.key, finding.value) for finding in each] for each in found] == [
        [],
        [],
        [("contract.rules.x", "a >"), ("contract.rules.y", "b > 1")],
        [],
    ]
    assert spark.asked == 2


async def test_sql_of_records_whose_types_come_with_them_is_asked_for() -> None:
    """Without a contract there is no rule, and yet a text that Spark may refuse."""
    plans: list[ConversionPlan] = []

    async def refusing(plan: ConversionPlan) -> Sequence[PlanFinding]:
        plans.append(plan)
        return [PlanFinding("transforms.p.sql", "SELECT a", "another text")]

    rows = {
        "name": "rows", "connector.class": "FileStreamSource", "topic": "rows",
        "transforms": "h,p",
        "transforms.h.type": "org.apache.kafka.connect.transforms.HoistField$Value", "transforms.h.field": "a",
        "transforms.p.type": "Sql", "transforms.p.sql": "SELECT a FROM record",
    }  # fmt: skip
    definition = read_definition(rows, worker=WORKER).definition
    assert definition is not None
    [[finding]] = await rule_findings([definition], Inline(), refusing)
    assert finding.key == "transforms.p.sql"
    assert [plan.contract for plan in plans] == [None]


async def test_what_cannot_be_asked_for_now_is_left_to_the_task() -> None:
    """A registry or a Spark that is away is no mistake of the config, and holds up nobody for ever."""
    wrong = [defined("wrong", x="a >")]

    async def lost(plan: ConversionPlan) -> Sequence[PlanFinding]:
        raise ConversionRetriable(f"Spark was lost: {plan.payload_format}")

    assert await rule_findings(wrong, Away(), Spark().check) == [()]
    assert await rule_findings(wrong, Inline(), lost) == [()]


@pytest.mark.looptime
async def test_a_spark_that_does_not_start_holds_up_the_tasks_for_so_long_only() -> None:
    """They wait for it themselves."""

    async def never(plan: ConversionPlan) -> Sequence[PlanFinding]:
        del plan
        await asyncio.Event().wait()
        return ()

    began = asyncio.get_running_loop().time()
    assert await rule_findings([defined("wrong", x="a >")], Inline(), never) == [()]
    assert asyncio.get_running_loop().time() - began == RULES_SECONDS_MAX
