"""Previews that clients of REST ask for, within the bounds of the worker (the ``Previews`` of REST).

A client's config is read as if the connector were created: by the worker's reach (classes, paths, addresses), with the
values of config providers. What a preview may cost is bounded here, and so is how many run at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar

from fetchers.sdk import Retriable, SourceConnector
from service.config.definition import ConnectorDefinition, read_definition
from service.config.providers import ProviderError, Resolved
from service.herder.errors import BadRequestError, ConflictError, RequestError
from service.preview.judging import JUDGES, PreviewParts, PreviewRefusedError
from service.preview.preview import as_json, preview
from service.preview.sampling import SampleLimits, sampled_connector
from service.registry.errors import RegistryFailure
from service.validation.connectors import find_connector
from spark_batch.errors import ConversionError

T = TypeVar("T")

BYTES_MAX = 4 << 20
"""Of the payloads of one sample."""
SECONDS_MAX = 30.0
"""For the source to give it."""
AT_ONCE_MAX = 2
"""Each may hold a whole answer of its source in memory."""
_REFUSED = "Connector configuration is invalid and contains the following {count} error(s):\n{errors}"


class Calls(Protocol):
    """Runs what may block in threads with a time limit (``service.worker.foreign_calls``)."""

    async def run(self, call: Callable[[], T], *, subject: Hashable) -> T:
        """What the call returns or raises; ``Retriable`` when it does neither in time."""


@dataclass(frozen=True, slots=True)
class RequestedPreviews:
    """Previews by one worker."""

    parts: PreviewParts
    worker: Mapping[str, str]
    """The worker's properties, variables resolved: what connectors may reach, and converters they do not name."""
    resolve: Callable[[Mapping[str, str]], Resolved]
    calls: Calls
    hide: Callable[[str], str]
    """Takes known secrets out of a text."""
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE_MAX))
    _numbers: count[int] = field(default_factory=count)

    async def preview(self, config: Mapping[str, str], *, records_max: int) -> Mapping[str, Any]:
        """What ``headrace preview --json`` prints. See ``Previews`` of ``service.rest.ports``."""
        if self._places.locked():
            raise ConflictError(f"{AT_ONCE_MAX} previews are under way already; try again when they have ended")
        async with self._places:
            definition, connector = await self._read(config)
            limits = SampleLimits(records_max, BYTES_MAX, SECONDS_MAX)
            try:
                shown = await preview(definition, limits, self.parts, connector=connector)
            except PreviewRefusedError as refusal:
                raise _refusal([finding.message for finding in refusal.findings]) from refusal
            except (RegistryFailure, ConversionError) as error:
                raise RequestError(f"No preview is possible now: {error}") from error
            return await asyncio.get_running_loop().run_in_executor(JUDGES, lambda: as_json(shown, hide=self.hide))

    async def _read(self, config: Mapping[str, str]) -> tuple[ConnectorDefinition, SourceConnector[Any]]:
        """In a thread: imports the class and runs its checks, which may block."""
        try:
            return await self.calls.run(lambda: self._defined(config), subject=f"preview {next(self._numbers)}")
        except Retriable as error:
            raise RequestError("The connector's own code did not come back in time") from error

    def _defined(self, config: Mapping[str, str]) -> tuple[ConnectorDefinition, SourceConnector[Any]]:
        try:
            resolved = self.resolve({"name": "preview", **config})
        except ProviderError as error:
            raise BadRequestError(str(error)) from error
        if resolved.unresolved:
            # The source would be sent the variable itself.
            raise _refusal([finding.message for finding in resolved.unresolved])
        class_name = resolved.properties.get("connector.class", "").strip()
        known = find_connector(class_name, self.worker)
        if known is not None and known.is_sink:
            raise BadRequestError(f"{class_name} is a sink: only what sources would write can be previewed")
        reading = read_definition(resolved.properties, worker=self.worker)
        if reading.definition is None:
            hidden = map(resolved.hidden, reading.findings)
            raise _refusal([finding.message for finding in hidden if finding.is_error])
        connector = sampled_connector(reading.definition)
        taken = connector.taken_by_reading()
        if taken is not None:
            raise BadRequestError(f"A preview would take away {taken}: nobody could read them again")
        return reading.definition, connector


def _refusal(errors: list[str]) -> BadRequestError:
    return BadRequestError(_REFUSED.format(count=len(errors), errors="\n".join(errors)))
