"""The converters of a config: each setting is honoured, or it is said that it is not."""

from __future__ import annotations

import pytest

from fetchers.sdk import Severity
from service.config.converters import Converter, ConverterReading, read_converter
from service.registry.settings import RegistrySettings
from spark_batch.plan import ConverterKind

JSON_CLASS = "org.apache.kafka.connect.json.JsonConverter"
STRING_CLASS = "org.apache.kafka.connect.storage.StringConverter"


def reading(side: str, name: str, **settings: str) -> ConverterReading:
    """A converter with its settings, given with underscores for dots."""
    key = f"{side}.converter"
    own = {f"{key}.{word.replace('_', '.')}": value for word, value in settings.items()}
    return read_converter(side, {key: name, **own}, {})


def converter(side: str, name: str, **settings: str) -> Converter:
    """One that has no findings."""
    found = reading(side, name, **settings)
    assert found.findings == ()
    assert found.converter is not None
    return found.converter


@pytest.mark.parametrize("side", ["key", "value"])
@pytest.mark.parametrize("name", [JSON_CLASS, "json"])
def test_decimals_are_written_as_is_said(side: str, name: str) -> None:
    """Base64 unless numbers are asked for, in whatever case."""
    assert not converter(side, name).spec.is_decimal_numeric
    for word, is_numeric in (("NUMERIC", True), (" numeric ", True), ("BASE64", False), ("Base64", False)):
        spec = converter(side, name, decimal_format=word).spec
        assert (spec.kind, spec.is_decimal_numeric) == (ConverterKind.JSON, is_numeric)


def test_a_worker_s_setting_is_inherited_with_its_converter() -> None:
    """As all of them are."""
    worker = {"value.converter": "json", "value.converter.decimal.format": "NUMERIC"}
    for connector, is_numeric in (({}, True), ({"value.converter": "json"}, False)):
        found = read_converter("value", connector, worker).converter
        assert found is not None
        assert found.spec.is_decimal_numeric is is_numeric


@pytest.mark.parametrize("encoding", ["UTF-8", "utf-8", "UTF8", " utf8 "])
def test_text_is_utf_8(encoding: str) -> None:
    """Under every name it has."""
    assert converter("key", STRING_CLASS, converter_encoding=encoding).spec.kind is ConverterKind.STRING


@pytest.mark.parametrize(
    ("name", "key", "value", "told"),
    [
        (JSON_CLASS, "decimal.format", "HEX", "String must be one of (case insensitive): NUMERIC, BASE64"),
        (JSON_CLASS, "schemas.enable", "maybe", "Expected value to be either true or false"),
        (JSON_CLASS, "replace.null.with.default", "maybe", "Expected value to be either true or false"),
        (STRING_CLASS, "converter.encoding", "ISO-8859-1", "Expected UTF-8, the only encoding that is supported"),
        ("string", "converter.encoding", "klingon", "Expected UTF-8, the only encoding that is supported"),
    ],
)
def test_what_cannot_be_done_is_refused(name: str, key: str, value: str, told: str) -> None:
    """Not accepted and then done otherwise."""
    found = reading("value", name, **{key.replace(".", "_"): value})
    full = f"value.converter.{key}"
    assert found.converter is None
    (finding,) = found.findings
    assert (finding.key, finding.value, finding.is_error) == (full, value, True)
    assert finding.message == f"Invalid value {value} for configuration {full}: {told}"


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Each under its own key."""
    found = reading("value", "json", schemas_enable="x", decimal_format="y", replace_null_with_default="z")
    assert len({finding.key for finding in found.findings}) == 3
    assert all(finding.is_error for finding in found.findings)


def test_a_null_that_was_written_stays_one() -> None:
    """Where false asks for it, at a sink; of a source it always does, and who asks for true is told so."""
    assert converter("value", JSON_CLASS, replace_null_with_default="false").is_null_kept
    assert not converter("value", JSON_CLASS).is_null_kept
    found = reading("value", JSON_CLASS, replace_null_with_default="true")
    assert found.converter is not None
    (finding,) = found.findings
    assert finding.severity is Severity.WARNING
    assert finding.key == "value.converter.replace.null.with.default"


def test_settings_of_other_converters_are_left_alone() -> None:
    """Connect's converters ignore what they do not know."""
    assert converter("value", "bytes", decimal_format="x", converter_encoding="x").spec.kind is ConverterKind.BYTES
    assert converter("value", "json", converter_encoding="x").spec.kind is ConverterKind.JSON


LOGIN = {
    "value.converter.basic.auth.credentials.source": "USER_INFO",
    "value.converter.basic.auth.user.info": "w:s3cret",
}
"""The worker's, for its own registry."""
AVRO_WORKER = {"value.converter": "avro", "value.converter.schema.registry.url": "http://mine:8081/", **LOGIN}


@pytest.mark.parametrize(
    "connector",
    [
        {"value.converter.schema.registry.url": "http://thief:1"},
        {"value.converter.schema.registry.url": "http://mine:8081,http://thief:1"},
        {"value.converter.schema.registry.url": "http://mine:8082"},
        {"value.converter.schema.registry.url": "https://mine:8081"},
        {
            "value.converter.schema.registry.url": "http://thief:1",
            "value.converter.basic.auth.credentials.source": "USER_INFO",
            "value.converter.basic.auth.user.info": "own:login",
        },
    ],
)
def test_the_worker_s_login_is_for_the_worker_s_registry(connector: dict[str, str]) -> None:
    """A connector that names another registry has its own login, or none."""
    found = read_converter("value", connector, AVRO_WORKER)
    assert found.converter is not None
    assert found.converter.registry is not None
    assert "s3cret" not in str(found.converter.registry.logins)
    assert found.converter.registry.is_foreign
    own = ("own", "login") if "value.converter.basic.auth.user.info" in connector else None
    assert set(found.converter.registry.logins) == {own}


def test_a_registry_that_only_the_connector_itself_names_gets_no_login_either() -> None:
    """The worker's may stand there for converters that name their own registry."""
    for worker in (
        {"value.converter": "avro", **LOGIN},
        {"value.converter": "avro", "schema.registry.url": "http://b", **LOGIN},
    ):
        registry = _registry(read_converter("value", {"schema.registry.url": "http://thief:1"}, worker))
        assert (registry.urls, registry.logins) == (("http://thief:1",), (None,))


def test_the_worker_s_own_registry_keeps_its_login() -> None:
    """Named by nobody, or by its own URL once more."""
    for connector in ({}, {"value.converter.schema.registry.url": "http://mine:8081"}):
        registry = _registry(read_converter("value", connector, AVRO_WORKER))
        assert (registry.logins, registry.is_foreign) == ((("w", "s3cret"),), False)


def _registry(reading: ConverterReading) -> RegistrySettings:
    assert reading.converter is not None
    assert reading.converter.registry is not None
    return reading.converter.registry
