"""Keys of the converters, after ``key.converter.``, ``value.converter.`` or ``header.converter.``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator

from fetchers.sdk import Boolean, ConfigModel, Importance, Key, NameList, Secret

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
    """Accepted as in Connect; a null that was written stays null, whatever stands here. See the contract's defaults."""


class StringConverterConfig(ConverterConfig):
    """Keys, values or headers that are written as text."""

    converter_encoding: Annotated[
        str, BeforeValidator(_encoding), Key(importance=Importance.HIGH, width="MEDIUM", display_name="Encoding")
    ] = "UTF-8"
    """Character set of the text. UTF-8 alone is supported; any other is refused."""


class BytesConverterConfig(ConverterConfig):
    """Keys, values or headers that are bytes already and are passed on unchanged."""


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
