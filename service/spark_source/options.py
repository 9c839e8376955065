"""The options of ``spark.read.format("headrace")``: a connector's config, and what the rows are to be."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from fetchers.sdk import Boolean, ConfigModel, Finding, Importance, Key
from fetchers.sdk.config import unknown_keys
from service.config.definition import RULES_PREFIX, ConnectorDefinition, as_findings
from service.config.files import ConfigFileError, read_properties
from service.registry.errors import RegistryFailure
from service.registry.settings import RegistrySettings
from service.validation.files import validate_properties
from service.worker.schemas import RegistrySchemas
from spark_batch.judge_rows import plan_for_rows
from spark_batch.plan import ConversionPlan
from spark_batch.plan_findings import plan_findings

logger = logging.getLogger("headrace.spark")

OWN_PREFIX = "headrace."
REJECTED, SOURCE = "_rejected", "_source"
"""Columns beside those of the contract."""
_WORKER_KEYS = ("config.providers", "schema.registry.url")
"""Keys of a worker that mean the same here: where variables and schemas come from."""
_NAMES = {"name": "spark", "topic": "spark"}
"""What a connector must have and nobody needs here; both are named in `_source` and in messages."""
_FILE_OPTION = "path"
"""What Spark makes of ``load("file")``."""


class Rejects(StrEnum):
    """What becomes of rejected records. None is left out unless somebody asks for that."""

    FAIL = "fail"
    COLUMN = "column"
    ONLY = "only"
    WITHOUT = "without"


class ReadOptions(ConfigModel):
    """Options of the data source besides a connector's own keys."""

    free_prefixes: ClassVar[tuple[str, ...]] = ()

    headrace_rejected: Annotated[Rejects | None, Key(Importance.HIGH)] = None
    """What becomes of records that the contract rejects: ``fail``, ``column`` (each is a row, its reason and bytes in
    ``_rejected``), ``only`` (a table of the rejected alone), or ``without`` them. When not given, ``errors.tolerance``
    decides: ``none`` (its default) fails, ``all`` gives the column."""
    headrace_source_column: Annotated[Boolean, Key()] = False
    """Whether rows have a column ``_source``: topic, key, timestamp, source partition, offset and position."""
    headrace_pages_path: Annotated[str | None, Field(min_length=1), Key(Importance.HIGH)] = None
    """For ``readStream``: a folder, as path or URL that PyArrow opens, which driver and executors reach alike. What was
    fetched is kept there until Spark has committed it, so that every batch can be read again."""
    headrace_trigger_records_max: Annotated[int, Field(ge=1), Key()] = 1_000_000
    """For ``readStream``: records of one trigger, unless a single page has more."""


class OptionsRefusedError(ValueError):
    """What is wrong with the options, all of it; Spark shows it as an AnalysisException."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        """``findings``: at least one."""
        told = "\n".join(f"- {finding.key}: {finding.message}" for finding in findings)
        super().__init__(f"headrace refuses these options:\n{told}")
        self.findings = tuple(findings)


@dataclass(frozen=True)
class SourceOptions:
    """Options that were found right. Pickled: secrets among the properties are in the options of Spark's too."""

    properties: Mapping[str, str]
    """The connector's, with the values of variables, and its contract's schema as text."""
    plan: ConversionPlan
    rejects: Rejects
    has_source_column: bool
    pages_path: str | None
    trigger_records_max: int


def read_options(options: Mapping[str, str], *, environ: Mapping[str, str] = os.environ) -> SourceOptions:
    """Read the options as Spark gives them; raises OptionsRefusedError with what ``headrace validate`` would say too.

    Blocking: files that are named are read, and the registry that is named is asked. Called on the driver.
    """
    given = _with_file(options)
    parsed = ReadOptions.parse(given)
    own = {key: value for key, value in given.items() if key.startswith(OWN_PREFIX)}
    known = [key.name for key in ReadOptions.config_keys()]
    strangers = [replace(finding, value=own[finding.key]) for finding in unknown_keys(own, known)]
    worker = {key: value for key, value in given.items() if key.startswith(_WORKER_KEYS)}
    properties = {key: value for key, value in given.items() if key not in own and key not in worker}
    verdict = validate_properties({**_NAMES, **properties}, worker, environ=environ)
    definition = verdict.definition
    errors = [finding for finding in (*parsed.findings, *verdict.findings) if finding.is_error] + strangers
    if isinstance(definition, ConnectorDefinition):
        errors += _what_rows_cannot_have(definition)
    elif not errors:
        errors.append(Finding("connector.class", given.get("connector.class"), "is a sink: expected a source"))
    if errors or parsed.config is None or not isinstance(definition, ConnectorDefinition):
        raise OptionsRefusedError(errors)
    for finding in (*verdict.findings, *verdict.worker_findings):
        logger.warning("%s: %s", finding.key, finding.message)
    return _source_options(definition, parsed.config, verdict.worker)


def _with_file(options: Mapping[str, str]) -> dict[str, str]:
    """The options; where ``load("…")`` names a connector's file, its keys below them."""
    given = {key: value for key, value in options.items() if key != _FILE_OPTION}
    if not options.get(_FILE_OPTION):
        return given
    try:
        return {**read_properties(Path(options[_FILE_OPTION])), **given}
    except ConfigFileError as error:
        raise OptionsRefusedError([Finding(_FILE_OPTION, options[_FILE_OPTION], str(error))]) from error


def _what_rows_cannot_have(definition: ConnectorDefinition) -> Iterable[Finding]:
    """Keys that mean something for records of Kafka, and would silently mean nothing here."""
    properties, taken = definition.properties, definition.for_task({}).taken_by_reading()
    rules = [key for key in properties if key.startswith(RULES_PREFIX)]
    for key in rules:
        text = "rules are Spark's own expressions: expected none here, and df.where(…) of the same expression instead"
        yield Finding(key, properties[key], text)
    if definition.common.transforms:
        text = "expected none: a DataFrame is transformed by Spark's own columns"
        yield Finding("transforms", properties.get("transforms"), text)
    if definition.common.contract_unknown_fields == "keep":
        text = "expected ignore or reject: rows have the contract's columns only"
        yield Finding("contract.unknown.fields", "keep", text)
    if taken is not None:
        text = f"reading takes away {taken}: expected a source that can be read again, as Spark does when a task fails"
        yield Finding("connector.class", properties["connector.class"], text)


def _source_options(definition: ConnectorDefinition, chosen: ReadOptions, worker: Mapping[str, str]) -> SourceOptions:
    try:
        schema = asyncio.run(_contract_of(definition, worker))
    except RegistryFailure as error:
        text = f"the registry does not give it: {error}"
        raise OptionsRefusedError([Finding("contract.schema", None, text)]) from error
    plan = plan_for_rows(definition.plan(schema))
    findings = [*as_findings(plan_findings(plan), definition.properties), *_taken_names(plan)]
    if findings:
        raise OptionsRefusedError(findings)
    properties = {key: value for key, value in definition.properties.items() if key != "contract.schema"}
    tolerant = Rejects.COLUMN if definition.common.is_tolerant else Rejects.FAIL
    return SourceOptions(
        properties=properties if schema is None else {**properties, "contract.schema": schema},
        plan=plan,
        rejects=chosen.headrace_rejected or tolerant,
        has_source_column=chosen.headrace_source_column,
        pages_path=_absolute(chosen.headrace_pages_path),
        trigger_records_max=chosen.headrace_trigger_records_max,
    )


def _absolute(path: str | None) -> str | None:
    """Executors have other working folders than the driver."""
    return path if path is None or "://" in path else str(Path(path).absolute())


async def _contract_of(definition: ConnectorDefinition, worker: Mapping[str, str]) -> str | None:
    registry: Any = None
    if "schema.registry.url" in worker:
        registry = RegistrySettings.parse(dict(worker))[0]
    async with RegistrySchemas(contract_registry=registry, addresses=definition.reach.addresses) as schemas:
        return await schemas.contract_of(definition)


def _taken_names(plan: ConversionPlan) -> Iterable[Finding]:
    for field in () if plan.record is None else plan.record.fields:
        if field.name in {REJECTED, SOURCE}:
            yield Finding("contract.schema", None, f"field {field.name}: expected another name, this one is taken")
