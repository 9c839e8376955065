"""Converters by name: ours, Kafka Connect's classes and Confluent's Avro converter.

``key.converter`` and ``value.converter`` may name the class in full or the short word. A connector that names no
converter inherits the worker's class *and* its prefixed settings, as in Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fetchers.sdk import Finding, Severity
from spark_batch.plan import ConverterKind, ConverterSpec

CLASS_NAMES: Mapping[str, ConverterKind] = {
    "org.apache.kafka.connect.json.JsonConverter": ConverterKind.JSON,
    "org.apache.kafka.connect.storage.StringConverter": ConverterKind.STRING,
    "org.apache.kafka.connect.converters.ByteArrayConverter": ConverterKind.BYTES,
    "io.confluent.connect.avro.AvroConverter": ConverterKind.AVRO,
}
_MISPRINT = "schema.enable"
_SUBJECT_STRATEGIES = ("TopicNameStrategy", "RecordNameStrategy", "TopicRecordNameStrategy")


@dataclass(frozen=True, slots=True)
class RegistryUse:
    """How an Avro converter uses the schema registry."""

    url: str
    settings: Mapping[str, str]
    """The converter's own settings, prefix cut (authentication, ``auto.register.schemas`` …)."""
    subject_strategy: str = "TopicNameStrategy"


@dataclass(frozen=True, slots=True)
class Converter:
    """One converter, ready for a plan once its schema has an id."""

    spec: ConverterSpec
    class_name: str
    registry: RegistryUse | None = None


@dataclass(frozen=True, slots=True)
class ConverterReading:
    """A converter, or what is wrong with its settings."""

    converter: Converter | None
    findings: tuple[Finding, ...] = ()


def read_converter(side: str, connector: Mapping[str, str], worker: Mapping[str, str]) -> ConverterReading:
    """Read ``<side>.converter`` (side: ``key`` or ``value``) of a connector over the worker's."""
    key = f"{side}.converter"
    source = connector if key in connector else worker
    name = source.get(key, "")
    settings = {**worker, **connector} if source is worker else connector
    own = {k.removeprefix(f"{key}."): v for k, v in settings.items() if k.startswith(f"{key}.")}
    kind = _kind(name)
    if kind is None:
        known = ", ".join([*(word.value for word in ConverterKind), *CLASS_NAMES])
        text = f"Invalid value {name} for configuration {key}: Class {name} could not be found. Known: {known}"
        return ConverterReading(None, (Finding(key, name, text),))
    warnings = _misprint(key, own)
    if kind is ConverterKind.AVRO:
        reading = _avro(key, name, own, connector, worker)
        return ConverterReading(reading.converter, (*warnings, *reading.findings))
    enveloped = own.get("schemas.enable", own.get(_MISPRINT, str(name != kind.value))).strip().lower()
    if enveloped not in {"true", "false"}:
        text = f"Invalid value {enveloped} for configuration {key}.schemas.enable: Expected value to be either true or false"
        return ConverterReading(None, (*warnings, Finding(f"{key}.schemas.enable", enveloped, text)))
    spec = ConverterSpec(kind, is_schema_enveloped=kind is ConverterKind.JSON and enveloped == "true")
    return ConverterReading(Converter(spec, name), warnings)


def _kind(name: str) -> ConverterKind | None:
    if name in set(ConverterKind):
        return ConverterKind(name)
    simple = {full.rpartition(".")[2]: kind for full, kind in CLASS_NAMES.items()}
    return CLASS_NAMES.get(name) or simple.get(name)


def _misprint(key: str, own: Mapping[str, str]) -> tuple[Finding, ...]:
    """The seed book prints ``schema.enable``; taken for ``schemas.enable``, which it means."""
    if _MISPRINT not in own:
        return ()
    text = f"Taken for {key}.schemas.enable, the key that Kafka Connect knows."
    return (Finding(f"{key}.{_MISPRINT}", own[_MISPRINT], text, Severity.WARNING),)


def _avro(
    key: str, name: str, own: Mapping[str, str], connector: Mapping[str, str], worker: Mapping[str, str]
) -> ConverterReading:
    url = own.get("schema.registry.url") or connector.get("schema.registry.url") or worker.get("schema.registry.url")
    if not url:
        text = f'Missing required configuration "{key}.schema.registry.url" which has no default value.'
        return ConverterReading(None, (Finding(f"{key}.schema.registry.url", None, text),))
    strategy_key = f"{key.removesuffix('.converter')}.subject.name.strategy"
    strategy = own.get(strategy_key, _SUBJECT_STRATEGIES[0]).rpartition(".")[2]
    if strategy not in _SUBJECT_STRATEGIES:
        text = f"Invalid value {strategy} for configuration {key}.{strategy_key}: String must be one of: {', '.join(_SUBJECT_STRATEGIES)}"
        return ConverterReading(None, (Finding(f"{key}.{strategy_key}", strategy, text),))
    return ConverterReading(Converter(ConverterSpec(ConverterKind.AVRO), name, RegistryUse(url, own, strategy)))
