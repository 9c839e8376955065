"""The rules of contracts, shown to Spark before any task is begun: nothing else can tell whether they are right."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fetchers.sdk import Finding
from service.config.definition import ConnectorDefinition, as_findings
from service.registry.errors import RegistryFailure
from service.worker.connectors import PlanCheck, Schemas
from spark_batch.errors import ConversionError
from spark_batch.plan import Contract
from spark_batch.plan import Finding as PlanFinding

SPARK_SECONDS_MAX = 120.0
"""For Spark to start and to look at all rules. After it tasks are begun all the same: each asks for its own rules."""


async def rule_findings(
    definitions: Sequence[ConnectorDefinition], schemas: Schemas, check_plan: PlanCheck
) -> Sequence[tuple[Finding, ...]]:
    """What Spark finds wrong with the rules of each connector.

    Nothing of those that cannot be asked for now, for want of the registry or of Spark: their tasks will tell.
    """
    asked: dict[Contract, Sequence[PlanFinding]] = {}
    try:
        async with asyncio.timeout(SPARK_SECONDS_MAX):
            return [await _findings(definition, schemas, check_plan, asked) for definition in definitions]
    except (TimeoutError, ConversionError):
        return [()] * len(definitions)


async def _findings(
    definition: ConnectorDefinition,
    schemas: Schemas,
    check_plan: PlanCheck,
    asked: dict[Contract, Sequence[PlanFinding]],
) -> tuple[Finding, ...]:
    if not definition.has_rules:
        return ()
    try:
        plan = definition.plan(await schemas.contract_of(definition))
    except RegistryFailure:
        return ()
    if plan.contract is None:
        return ()
    if plan.contract not in asked:
        asked[plan.contract] = await check_plan(plan)
    return as_findings(asked[plan.contract], definition.properties)
