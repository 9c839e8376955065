"""Converters by name: ours, Kafka Connect's classes and Confluent's Avro converter.

``key.converter`` and ``value.converter`` may name the class in full or the short word. A connector that names no
converter inherits the worker's class *and* its prefixed settings, as in Connect.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator

from fetchers.sdk import Boolean, ConfigModel, Finding, Importance, Key, NameList, Secret, Severity
from service.registry.settings import RegistrySettings
from spark_batch.number_forms import NUMBER_FORMS
from spark_batch.plan import ConverterKind, ConverterSpec

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
CLASS_NAMES: Mapping[str, ConverterKind] = {
    JSON_CONVERTER: ConverterKind.JSON,
    "org.apache.kafka.connect.storage.StringConverter": ConverterKind.STRING,
    "org.apache.kafka.connect.converters.ByteArrayConverter": ConverterKind.BYTES,
    **{form.class_name: ConverterKind(word) for word, form in NUMBER_FORMS.items()},
    "io.confluent.connect.avro.AvroConverter": ConverterKind.AVRO,
}
_HEADER = "header.converter"
_SIMPLE_HEADERS = {
    "",
    "SimpleHeader",
    "SimpleHeaderConverter",
    "org.apache.kafka.connect.storage.SimpleHeaderConverter",
}
_MISPRINT = "schema.enable"
_URL = "schema.registry.url"
_LOGIN = "basic.auth."
_DECIMALS = "decimal.format"
_NULLS = "replace.null.with.default"
_ENCODING = "converter.encoding"


@dataclass(frozen=True, slots=True)
class Converter:
    """One converter, ready for a plan once its schema has an id."""

    spec: ConverterSpec
    class_name: str
    registry: RegistrySettings | None = None
    is_null_kept: bool = False
    """Whether a sink reads a null, where a field has a default, as null (`replace.null.with.default=false`)."""


@dataclass(frozen=True, slots=True)
class ConverterReading:
    """A converter, or what is wrong with its settings; both where it is known all the same which one it is."""

    converter: Converter | None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class HeaderConverterReading:
    """How headers are written, None for SimpleHeaderConverter, and what is wrong with it."""

    form: ConverterSpec | None
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
        return ConverterReading(None, (_invalid(key, name, f"Class {name} could not be found. Known: {known}"),))
    warnings = _misprint(key, own)
    if kind is ConverterKind.AVRO:
        reading = _avro(key, name, *_with_registry(key, own, connector, worker))
        return ConverterReading(reading.converter, (*warnings, *reading.findings))
    if kind is ConverterKind.JSON:
        reading = _json(key, name, own)
        return ConverterReading(reading.converter, (*warnings, *reading.findings))
    refused = _refused_encoding(key, own) if kind is ConverterKind.STRING else ()
    return ConverterReading(None if refused else Converter(ConverterSpec(kind), name), (*warnings, *refused))


def read_header_converter(connector: Mapping[str, str], worker: Mapping[str, str]) -> HeaderConverterReading:
    """Read ``header.converter`` of a connector over the worker's; none is SimpleHeaderConverter, as in Connect."""
    source = connector if connector.get(_HEADER, "").strip() else worker
    name = source.get(_HEADER, "").strip()
    if name in _SIMPLE_HEADERS:
        return HeaderConverterReading(None)
    if _kind(name) is ConverterKind.AVRO:
        text = f"Class {name} does not implement the HeaderConverter interface"
        return HeaderConverterReading(None, (_invalid(_HEADER, name, text),))
    settings = connector if source is connector else {**worker, **connector}
    reading = read_converter("header", {_HEADER: name, **settings}, {})
    return HeaderConverterReading(None if reading.converter is None else reading.converter.spec, reading.findings)


def _json(key: str, name: str, own: Mapping[str, str]) -> ConverterReading:
    is_enveloped, findings = _boolean(key, own, "schemas.enable", own.get(_MISPRINT, str(name != ConverterKind.JSON)))
    is_replaced, doubts = _boolean(key, own, _NULLS, "true")
    findings += doubts
    decimals = own.get(_DECIMALS, "BASE64").strip().upper()
    if decimals not in {"NUMERIC", "BASE64"}:
        expected = "String must be one of (case insensitive): NUMERIC, BASE64"
        findings += (_invalid(f"{key}.{_DECIMALS}", own[_DECIMALS], expected),)
    if findings:
        return ConverterReading(None, findings)
    if is_replaced and _NULLS in own:
        text = "A sink reads a null as its field's default; what a source gives as null is written so, as with false."
        findings = (Finding(f"{key}.{_NULLS}", own[_NULLS], text, Severity.WARNING),)
    spec = ConverterSpec(ConverterKind.JSON, is_schema_enveloped=is_enveloped, is_decimal_numeric=decimals == "NUMERIC")
    return ConverterReading(Converter(spec, name, is_null_kept=not is_replaced), findings)


def _boolean(key: str, own: Mapping[str, str], word: str, default: str) -> tuple[bool, tuple[Finding, ...]]:
    value = own.get(word, default)
    if value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true", ()
    return False, (_invalid(f"{key}.{word}", value, "Expected value to be either true or false"),)


def _refused_encoding(key: str, own: Mapping[str, str]) -> tuple[Finding, ...]:
    given = own.get(_ENCODING, "UTF-8")
    if given.strip().upper() in {"UTF-8", "UTF8"}:
        return ()
    return (_invalid(f"{key}.{_ENCODING}", given, "Expected UTF-8, the only encoding that is supported"),)


def _invalid(key: str, value: str, expected: str) -> Finding:
    return Finding(key, value, f"Invalid value {value} for configuration {key}: {expected}")


def _kind(name: str) -> ConverterKind | None:
    if name in set(ConverterKind):
        return ConverterKind(name)
    simple = {full.rpartition(".")[2]: kind for full, kind in CLASS_NAMES.items()}
    short = {known.removesuffix("Converter"): kind for known, kind in simple.items()}
    return CLASS_NAMES.get(name) or simple.get(name) or short.get(name)


def _misprint(key: str, own: Mapping[str, str]) -> tuple[Finding, ...]:
    """The seed book prints ``schema.enable``; taken for ``schemas.enable``, which it means."""
    if _MISPRINT not in own:
        return ()
    text = f"Taken for {key}.schemas.enable, the key that Kafka Connect knows."
    return (Finding(f"{key}.{_MISPRINT}", own[_MISPRINT], text, Severity.WARNING),)


def _with_registry(
    key: str, own: Mapping[str, str], connector: Mapping[str, str], worker: Mapping[str, str]
) -> tuple[Mapping[str, str], bool]:
    """The converter's settings with the URL of its registry, and whether the worker does not name that one itself.

    A login goes only to the URL that it was given for: the worker's is for the worker's registry; a
    connector that names another one brings its own, or has none.
    """
    url = own.get(_URL) or connector.get(_URL) or worker.get(_URL) or ""
    is_named_here = url in {connector.get(f"{key}.{_URL}"), connector.get(_URL)}
    workers = {worker.get(f"{key}.{_URL}"), worker.get(_URL)}
    if not is_named_here or _places(url) in [_places(each) for each in workers if each]:
        return {**own, _URL: url}, False
    own = {k: v for k, v in own.items() if not k.startswith(_LOGIN) or f"{key}.{k}" in connector}
    return {**own, _URL: url}, True


def _places(url: str) -> tuple[str, ...]:
    return RegistrySettings.parse({_URL: url})[0].urls


def _avro(key: str, name: str, own: Mapping[str, str], is_foreign: bool) -> ConverterReading:  # noqa: FBT001 - passed on
    if not own[_URL]:
        text = f'Missing required configuration "{key}.{_URL}" which has no default value.'
        return ConverterReading(
            Converter(ConverterSpec(ConverterKind.AVRO), name), (Finding(f"{key}.{_URL}", None, text),)
        )
    settings, findings = RegistrySettings.parse(own, prefix=f"{key}.", is_foreign=is_foreign)
    return ConverterReading(Converter(ConverterSpec(ConverterKind.AVRO), name, settings), findings)


_LOW = Importance.LOW


def _decimal_format(value: object) -> object:
    if isinstance(value, str) and value.upper() not in {"NUMERIC", "BASE64"}:
        message = "String must be one of (case insensitive): NUMERIC, BASE64"
        raise ValueError(message)
    return value.upper() if isinstance(value, str) else value


def _encoding(value: object) -> object:
    if isinstance(value, str) and value.upper() not in {"UTF-8", "UTF8"}:
        message = "Expected UTF-8, the only encoding that is supported"
        raise ValueError(message)
    return value


class ConverterConfig(ConfigModel):
    """The key that Kafka's own converters all have (``ConverterConfig`` of Kafka 4.1.1)."""

    converter_type: Annotated[Literal["key", "value", "header"], Key(importance=_LOW)]
    """What is converted. Given by the place where the converter is named."""


class JsonConverterConfig(ConverterConfig):
    """JSON, each value with its schema or without."""

    schemas_enable: Annotated[
        Boolean,
        Key(importance=Importance.HIGH, group="Schemas", order=0, width="MEDIUM", display_name="Enable Schemas"),
    ] = True
    """Whether each value comes with its schema."""
    schemas_cache_size: Annotated[
        int,
        Key(importance=Importance.HIGH, group="Schemas", order=1, width="MEDIUM", display_name="Schema Cache Size"),
    ] = 1000
    """Accepted as in Connect; a plan knows its schema once and for all."""
    decimal_format: Annotated[
        Literal["BASE64", "NUMERIC"],
        BeforeValidator(_decimal_format),
        Key(importance=_LOW, group="Serialization", order=0, width="MEDIUM", display_name="Decimal Format"),
    ] = "BASE64"
    """How decimals are written: base64 of the unscaled number, or a number with the digits of its scale."""
    replace_null_with_default: Annotated[
        Boolean,
        Key(importance=_LOW, group="Serialization", order=1, width="MEDIUM", display_name="Replace null with default"),
    ] = True
    """Whether a sink reads a null as the default of its field; with false, what may be null has no default there.
    What a source gives as null is written so, whatever stands here."""


class StringConverterConfig(ConverterConfig):
    """Keys, values or headers that are written as text."""

    converter_encoding: Annotated[
        str, BeforeValidator(_encoding), Key(importance=Importance.HIGH, width="MEDIUM", display_name="Encoding")
    ] = "UTF-8"
    """Character set of the text. UTF-8 alone is supported; any other is refused."""


class BytesConverterConfig(ConverterConfig):
    """Keys, values or headers that are bytes already and are passed on unchanged."""


class NumberConverterConfig(ConverterConfig):
    """Keys, values or headers that are single numbers or booleans, as Kafka's serializers write them."""


class AvroConverterConfig(ConfigModel):
    """Avro in Confluent's wire format."""

    schema_registry_url: Annotated[NameList, Key(importance=Importance.HIGH)] = ()
    """Where the registry is; the connector's or worker's when not given here."""
    basic_auth_credentials_source: Annotated[str, Key(importance=Importance.MEDIUM)] = "URL"
    """``URL``, or ``USER_INFO``."""
    basic_auth_user_info: Annotated[Secret | None, Key(importance=Importance.MEDIUM)] = None
    """``user:password``."""
    auto_register_schemas: Annotated[Boolean, Key(importance=Importance.MEDIUM)] = True
    """Whether schemas are put into the registry."""
    use_latest_version: Annotated[Boolean, Key(importance=_LOW)] = False
    """Whether the subject's latest version is written under."""
    key_subject_name_strategy: Annotated[str, Key(importance=Importance.MEDIUM)] = "TopicNameStrategy"
    """How subjects of keys are named."""
    value_subject_name_strategy: Annotated[str, Key(importance=Importance.MEDIUM)] = "TopicNameStrategy"
    """How subjects of values are named."""


class SimpleHeaderConverterConfig(ConfigModel):
    """Headers as text, read by what they look like."""
