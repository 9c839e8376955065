"""The transformations of one connector: its ``transforms.*`` and ``predicates.*`` keys, read into the plan's values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fetchers.sdk import ConfigModel, Finding
from service.config.transforms import (
    PREDICATES,
    TRANSFORMATIONS,
    AliasConfig,
    TransformClass,
    find_class,
)
from spark_batch.plan import ConverterSpec
from spark_batch.plan_misfits import pattern_misfits
from spark_batch.transforms import catalog
from spark_batch.transforms.catalog import (
    HeaderFrom,
    InsertHeader,
    Predicate,
    RegexRouter,
    Side,
    Step,
    TopicNameMatches,
    Transformation,
)
from spark_batch.transforms.form import KeysRefused, KeyValues


@dataclass(frozen=True, slots=True)
class TransformationsReading:
    """The steps in order, as far as they can be read, and what is wrong with them."""

    steps: tuple[Step, ...] = ()
    findings: tuple[Finding, ...] = ()


def aliases_of(properties: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Names in a list of aliases, each once."""
    text = properties.get(key, "")
    return tuple(dict.fromkeys(name.strip() for name in text.split(","))) if text.strip() else ()


def read_transformations(
    properties: Mapping[str, str], *, is_sink: bool = False, header_form: ConverterSpec | None = None
) -> TransformationsReading:
    """Every ``transforms.*`` and ``predicates.*`` key of a source's config, or of a sink's.

    ``header_form``: how the source's headers are written (``read_header_converter``).
    """
    predicates: dict[str, Predicate] = {}
    findings: list[Finding] = []
    for alias in aliases_of(properties, "predicates"):
        named = _Alias("predicates", alias, properties, is_sink=is_sink)
        predicate = named.predicate()
        findings += named.findings
        if predicate is not None:
            predicates[alias] = predicate
    steps = []
    for alias in aliases_of(properties, "transforms"):
        named = _Alias("transforms", alias, properties, is_sink=is_sink)
        step = named.step(predicates)
        findings += named.findings
        if step is not None:
            steps.append(step)
    for key, value, expected in pattern_misfits(steps):
        text = f"Invalid value {value} for configuration {key}: Expected {expected}"
        findings.append(Finding(key, value, text))
    if is_sink:
        findings += _ascii_findings(steps)
    elif header_form is not None:
        findings += _header_findings(header_form, steps)
        steps = [_written_as(header_form, step) for step in steps]
    return TransformationsReading(tuple(steps), tuple(findings))


def _header_findings(form: ConverterSpec, steps: Sequence[Step]) -> Iterator[Finding]:
    """Literals that the header converter does not write, or not as people read them; fields are the plan's."""
    for step in steps:
        if isinstance(step.transformation, InsertHeader):
            expected = step.transformation.refusal(form)
            if expected is not None:
                key, literal = f"transforms.{step.name}.value.literal", step.transformation.literal
                yield Finding(key, literal, f"Invalid value {literal} for configuration {key}: Expected {expected}")


def _written_as(form: ConverterSpec, step: Step) -> Step:
    made = step.transformation
    return (
        replace(step, transformation=replace(made, form=form)) if isinstance(made, (HeaderFrom, InsertHeader)) else step
    )


def _ascii_findings(steps: Sequence[Step]) -> Iterator[Finding]:
    """Expressions are carried out over ASCII, which names in Kafka are; what a sink's router makes need not be."""
    for number, step in enumerate(steps):
        router = step.transformation
        is_asked = any(
            isinstance(later.transformation, RegexRouter) or isinstance(later.predicate, TopicNameMatches)
            for later in steps[number + 1 :]
        )
        if isinstance(router, RegexRouter) and is_asked and not router.replacement.isascii():
            key = f"transforms.{step.name}.replacement"
            text = (
                f"Invalid value {router.replacement} for configuration {key}: Expected ASCII, as the name is asked for"
            )
            yield Finding(key, router.replacement, text)


class _Alias:
    """One alias."""

    def __init__(self, kind: str, alias: str, properties: Mapping[str, str], *, is_sink: bool) -> None:
        self.prefix = f"{kind}.{alias}."
        self.alias = alias
        self.is_sink = is_sink
        self.properties = properties
        self.own = {key.removeprefix(self.prefix): text for key, text in properties.items() if self._is_own(key)}
        self.findings: list[Finding] = []

    def _is_own(self, key: str) -> bool:
        return key.startswith(self.prefix)

    def predicate(self) -> Predicate | None:
        known = self._class(PREDICATES)
        config = None if known is None else self._parsed(known.config_class)
        made: Predicate | None = None
        if known is not None and config is not None:
            made = known.form.configured(_values(known, config))
        return made

    def step(self, predicates: Mapping[str, Predicate]) -> Step | None:
        known = self._class(TRANSFORMATIONS)
        config = None if known is None else self._parsed(known.config_class)
        shared: Any = self._parsed(AliasConfig)
        if known is None or config is None or shared is None:
            return None
        name = (shared.predicate or "").strip()
        if name and name not in aliases_of(self.properties, "predicates"):
            self._refuse("predicate", "a name in 'predicates'")
        if "negate" in self.own and not name:
            text = (
                f"Config '{self.prefix}negate' was provided but there is no config '{self.prefix}predicate' "
                "defining a predicate to be negated."
            )
            self.findings.append(Finding(f"{self.prefix}type", known.name, text))
        transformation = self._made(known, _values(known, config))
        if transformation is None or self.findings or (name and name not in predicates):
            return None
        return Step(self.alias, transformation, predicates.get(name), is_negated=shared.negate)

    def _made(self, known: TransformClass, values: KeyValues) -> Transformation | None:
        made: Transformation | None = None
        for old, new in known.removed_keys.items():
            if self.own.get(old, "").strip():
                key = self.prefix + old
                text = f"{key} is a key of older versions, and would not be obeyed: give {self.prefix}{new}"
                self.findings.append(Finding(key, self.own[old], text))
        side = Side.KEY if known.name.endswith("$Key") else Side.VALUE
        try:
            if known.form in catalog.WHOLE:
                return known.form.configured(values)  # type: ignore[no-any-return] # as the catalogue has it
            made = known.form.configured(side, values, is_sink=self.is_sink)
        except KeysRefused as error:
            for key, expected in error.refused:
                self._refuse(key, expected)
        return made

    def _class(self, classes: tuple[TransformClass, ...]) -> TransformClass | None:
        name = self.own.get("type", "").strip()
        known = find_class(name, classes)
        if known is None:
            key = f"{self.prefix}type"
            missing = f'Missing required configuration "{key}" which has no default value.'
            text = (missing if not name else "") or (
                f"Invalid value {name} for configuration {key}: Class {name} could not be found. "
                f"Built: {', '.join(known.name for known in classes)}"
            )
            self.findings.append(Finding(key, name, text))
        return known

    def _parsed(self, config_class: type[ConfigModel]) -> Any:
        reading = config_class.parse(self.own)
        for finding in reading.findings:
            if finding.is_error:
                self.findings.append(Finding(self.prefix + finding.key, finding.value, finding.message))
        return reading.config

    def _refuse(self, name: str, expected: str) -> None:
        key = self.prefix + name
        value = self.own.get(name, "")
        text = f"Invalid value {value} for configuration {key}: Expected {expected}"
        self.findings.append(Finding(key, value, text))


def _values(known: TransformClass, config: ConfigModel) -> KeyValues:
    """The values of a form's keys by their names."""
    return {key.name: getattr(config, key.name.replace(".", "_")) for key in known.form.KEYS}
