"""What a config that is right by itself is held against: Spark, which alone reads the rules of a contract to the end.

Nothing that is asked here holds up anybody for long: whoever does not answer in time leaves a note, and what it would
have found is found when the connector's tasks start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fetchers.sdk import Finding, Severity
from service.config.definition import RULES_PREFIX, ConnectorDefinition, as_findings
from service.config.kinds import Definition
from service.registry.errors import RegistryFailure
from service.sinks.definition import SinkDefinition
from service.worker.connectors import PlanCheck, Schemas
from spark_batch.errors import ConversionError
from spark_batch.plan import ConversionPlan

SPARK_SECONDS_MAX = 10.0
"""For the registry to give the contract and for Spark to look at its rules, other requests' before them included."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Those that a worker can ask about a config."""

    schemas: Schemas
    check_plan: PlanCheck
    is_spark_ready: Callable[[], bool]
    """Whether Spark would answer now; a request does not wait for its start."""
    seconds_max: float = SPARK_SECONDS_MAX
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Requests take one of the places for conversions, however many of them there are."""

    async def findings(self, definition: Definition) -> Sequence[Finding]:
        """What only Spark can tell: of rules, functions and casts by the tree that its parser makes."""
        if not isinstance(definition, (ConnectorDefinition, SinkDefinition)) or not definition.asks_spark:
            return ()
        if not self.is_spark_ready():
            return (_not_asked(definition, "it has not started yet"),)
        try:
            async with asyncio.timeout(self.seconds_max), self._one_at_a_time:
                plan = await self._plan(definition)
                return as_findings(await self.check_plan(plan), definition.properties)
        except TimeoutError:
            return (_not_asked(definition, f"there was no answer within {self.seconds_max:g} s"),)
        except (ConversionError, RegistryFailure) as error:
            return (_not_asked(definition, str(error)),)

    async def _plan(self, definition: ConnectorDefinition | SinkDefinition) -> ConversionPlan:
        if isinstance(definition, SinkDefinition):
            return definition.select_plan
        return definition.plan(await self.schemas.contract_of(definition))


def _not_asked(definition: ConnectorDefinition | SinkDefinition, reason: str) -> Finding:
    key = next(
        key
        for key in sorted(definition.properties)
        if key.startswith(RULES_PREFIX) or (key.startswith("transforms.") and key.endswith(".sql"))
    )
    what = "contract.rules" if key.startswith(RULES_PREFIX) else key
    text = f"Spark was not asked about {what} ({reason}); what only it can tell is told when the tasks start"
    return Finding(key, None, text, Severity.WARNING)
