"""Create, change, delete, pause, resume, stop: checked in Connect's order, then written to the config log.

None of them waits for what follows: the owners see the record and act (`connect-rest`, section 5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from service.domain.cluster import ConnectorInfo, Properties
from service.domain.states import TargetState
from service.herder.errors import BadRequestError, ConflictError, NotFoundError
from service.herder.parts import Validator
from service.herder.ports import ConfigStore
from service.herder.view import ClusterView
from service.herder.whereabouts import Whereabouts
from service.herder.writing import ChangeTurns


@dataclass(frozen=True, slots=True)
class ConnectorRequests:
    """Changes of connectors."""

    configs: ConfigStore
    view: ClusterView
    whereabouts: Whereabouts
    validator: Validator
    turns: ChangeTurns

    async def create(self, name: str, config: Properties, initial: TargetState | None) -> ConnectorInfo:
        """Validated here, written by the leader; 409 where it exists."""
        config = named(name, config)
        await self._demand_valid(config)
        self.whereabouts.demand_leader()
        async with self.turns.changing(name):
            if name in self.configs.config.connectors:
                raise ConflictError(f"Connector {name} already exists")
            await self.configs.put_connector(name, config, initial=initial)
        return self.view.info(name)

    async def put(self, name: str, config: Properties) -> tuple[ConnectorInfo, bool]:
        """As ``create``, over what is there; an equal config is written again."""
        config = named(name, config)
        await self._demand_valid(config)
        self.whereabouts.demand_leader()
        async with self.turns.changing(name):
            is_new = name not in self.configs.config.connectors
            await self.configs.put_connector(name, config)
        return self.view.info(name), is_new

    async def patch(self, name: str, patch: Mapping[str, str | None]) -> ConnectorInfo:
        """Merged by the leader, which alone knows the newest config."""
        self.whereabouts.demand_leader()
        async with self.turns.changing(name):
            merged = {**self.view.entry(name).config, **patch}
            config = named(name, {key: value for key, value in merged.items() if value is not None})
            await self._demand_valid(config)
            await self.configs.put_connector(name, config)
        return self.view.info(name)

    async def delete(self, name: str) -> None:
        """Its owners stop what runs; the leader forgets its states."""
        self.whereabouts.demand_leader()
        async with self.turns.changing(name):
            self.view.entry(name)
            await self.configs.remove_connector(name)

    async def set_target(self, name: str, state: TargetState) -> None:
        """Pause and resume anywhere; stop at the leader, because it takes the task configs back."""
        if name not in self.configs.config.connectors:
            raise NotFoundError(f"Unknown connector {name}")
        if state is TargetState.STOPPED:
            self.whereabouts.demand_leader()
        async with self.turns.changing(name):
            if state is TargetState.STOPPED:
                await self.configs.put_tasks(name, ())
            await self.configs.put_target_state(name, state)

    async def _demand_valid(self, config: Properties) -> None:
        if not config.get("connector.class"):
            raise BadRequestError("Connector config contains no connector type")
        errors = await self.validator.errors_of(config)
        if errors:
            raise BadRequestError(refusal(errors))


def named(name: str, config: Properties) -> Properties:
    """The config with its connector's name in it; raises ``BadRequestError`` where another name stands there."""
    given = config.get("name", name)
    if given != name:
        raise BadRequestError(
            f"Connector name configuration ({given}) doesn't match connector name in the URL ({name})"
        )
    return {**config, "name": name}


def refusal(errors: Sequence[str]) -> str:
    """Connect's text about an invalid config."""
    return (
        f"Connector configuration is invalid and contains the following {len(errors)} error(s):\n"
        + "\n".join(errors)
        + "\nYou can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`"
    )
