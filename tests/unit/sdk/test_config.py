"""Config classes: parser, default, documentation, validation and masking in one."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import pytest
from pydantic import Field

from fetchers.sdk import (
    Boolean,
    FetcherConfig,
    Finding,
    HttpUrl,
    Importance,
    IsoDate,
    Key,
    NameList,
    Secret,
    SecretMap,
    Severity,
    TextMap,
)
from fetchers.sdk.config import unknown_keys


class Config(FetcherConfig):
    """A config with a key of every kind."""

    url: Annotated[HttpUrl, Key(importance=Importance.HIGH, order=1)]
    """Where."""
    password: Secret | None = None
    """Shown nowhere."""
    count_max: Annotated[int, Field(ge=1, le=9)] = 3
    """How many."""
    wait_ms: int = 10
    """How long."""
    ratio: float = 0.5
    """How much."""
    is_open: Boolean = True
    """Whether."""
    names: NameList = ()
    """Which."""
    since: IsoDate | None = None
    """When."""
    mode: Literal["fast", "slow"] = "fast"
    """How."""
    label: Annotated[TextMap, Field(default_factory=dict)]
    """Any number of labels."""
    header: Annotated[SecretMap, Field(default_factory=dict)]
    """Any number of secrets."""


GOOD = {"topic": "t", "url": "http://h/"}
KEYS = Config.config_keys()


def test_reads_texts() -> None:
    """Values are cut of blanks and brought into their types; what is not given has its default."""
    texts = {**GOOD, "count.max": " 5 ", "is.open": "FALSE", "names": "a, b c ,d", "since": "2016-03-22"}
    config = Config.parse({**texts, "label.x": "1", "label.y.z": "2", "other": "ignored", "ratio": None}).config
    assert config is not None
    assert (config.count_max, config.is_open, config.ratio) == (5, False, 0.5)
    assert (config.names, config.since) == (("a", "b c", "d"), date(2016, 3, 22))
    assert dict(config.label) == {"x": "1", "y.z": "2"}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("count.max", "x", "Not a number of type INT"),
        ("count.max", "0", "Value must be at least 1"),
        ("count.max", "10", "Value must be no more than 9"),
        ("wait.ms", "1.5", "Not a number of type LONG"),
        ("is.open", "yes", "Expected value to be either true, false"),
        ("since", "2016-3-22", "Expected a date as yyyy-mm-dd"),
        ("since", "2016-02-30", "Expected a date as yyyy-mm-dd"),
        ("url", "h", "Expected a URL that starts with http://, https://"),
        ("mode", "idle", "String must be one of: fast, slow"),
    ],
)
def test_findings_read_as_in_kafka(key: str, value: str, reason: str) -> None:
    """A bad value is named with its key, itself and what was expected, in the words clients know."""
    parsed = Config.parse({**GOOD, key: value})
    reason = reason.replace("true, false", "true or false").replace("http://, https", "http:// or https")
    assert parsed.findings == (Finding(key, value, f"Invalid value {value} for configuration {key}: {reason}"),)
    assert parsed.config is None


def test_all_findings_at_once() -> None:
    """Every mistake is told in one answer; a missing key as Kafka tells it."""
    findings = Config.parse({"count.max": "x", "mode": "y"}).findings
    assert {finding.key for finding in findings} == {"topic", "url", "count.max", "mode"}
    missing = next(finding for finding in findings if finding.key == "topic")
    assert missing.message == 'Missing required configuration "topic" which has no default value.'


def test_an_empty_topic_is_no_topic() -> None:
    """Blanks alone are nothing."""
    assert [finding.message for finding in Config.parse({**GOOD, "topic": "  "}).findings] == [
        "Invalid value  for configuration topic: String must be non-empty"
    ]


def test_keys_describe_themselves() -> None:
    """Type, default and documentation of each key follow from its declaration."""
    found = {key.name: (key.kind, key.default, key.is_required, key.documentation) for key in KEYS}
    assert found["url"] == ("STRING", None, True, "Where.")
    assert found["count.max"] == ("INT", "3", False, "How many.")
    assert found["wait.ms"][:2] == ("LONG", "10")
    assert found["ratio"][:2] == ("DOUBLE", "0.5")
    assert found["is.open"][:2] == ("BOOLEAN", "true")
    assert found["names"][:2] == ("LIST", "")
    assert found["password"] == ("PASSWORD", None, False, "Shown nowhere.")
    assert found["mode"][:2] == ("STRING", "fast")
    assert found["label."] == ("STRING", None, False, "Any number of labels.")
    assert found["header."][0] == "PASSWORD"
    assert [key.name for key in KEYS if key.is_prefix] == ["label.", "header."]
    assert next(key for key in KEYS if key.name == "url").extras.importance is Importance.HIGH


def test_secrets_are_shown_nowhere() -> None:
    """Neither the config's texts, nor its print, nor findings show a secret."""
    texts = {**GOOD, "password": "s3cr3t", "header.a": "t0k3n", "label.b": "open"}
    config = Config.parse(texts).config
    assert config is not None
    shown = f"{config} {config!r} {config.texts()} {Config.parse({**texts, 'url': 'x'}).findings}"
    assert "s3cr3t" not in shown
    assert "t0k3n" not in shown
    assert config.texts()["label.b"] == "open"
    assert config.password is not None
    assert config.password.get_secret_value() == "s3cr3t"


def test_texts_read_back() -> None:
    """The texts of a config without secrets parse to the same config."""
    config = Config.parse({**GOOD, "names": "a,b", "label.x": "1", "is.open": "false", "since": "2020-01-31"}).config
    assert config is not None
    assert Config.parse(dict(config.texts())).config == config


def test_another_default_leaves_the_rest_of_a_key_as_it_was() -> None:
    """Its range, its text and its group; what is said anew is said otherwise, in subclasses too."""

    class Slow(FetcherConfig):
        poll_interval_ms: int = 60_000

    class Slower(Slow):
        poll_interval_ms: Annotated[int, Field(ge=1000)] = 90_000
        """Rarely."""

    (slow,) = (key for key in Slow.config_keys() if key.name == "poll.interval.ms")
    (usual,) = (key for key in FetcherConfig.config_keys() if key.name == "poll.interval.ms")
    assert (slow.default, slow.documentation, slow.extras) == ("60000", usual.documentation, usual.extras)
    assert [found.message for found in Slow.parse({"topic": "t", "poll.interval.ms": "0"}).findings]
    assert Slow.parse({"topic": "t"}).config.poll_interval == 60  # type: ignore[union-attr]
    assert not Slower.parse({"topic": "t"}).findings
    assert Slower.parse({"topic": "t", "poll.interval.ms": "999"}).findings
    assert next(key.documentation for key in Slower.config_keys() if key.name == "poll.interval.ms") == "Rarely."


def test_unknown_keys_are_warned_of() -> None:
    """A key nothing reads gets a warning with the nearest known one; prefixes of maps are known."""
    found = unknown_keys(
        ["topic", "cuont.max", "zzz", "label.q"], [key.name for key in KEYS], free_prefixes=Config.free_prefixes
    )
    assert found == (
        Finding("cuont.max", None, "Unknown key; did you mean 'count.max'?", Severity.WARNING),
        Finding("zzz", None, "Unknown key; nothing reads it.", Severity.WARNING),
    )
    assert not any(finding.is_error for finding in found)


def test_a_config_does_not_change() -> None:
    """Configs are values."""
    config = Config.parse(GOOD).config
    assert config is not None
    with pytest.raises(ValueError, match="frozen"):
        config.count_max = 4


@pytest.mark.parametrize("url", ["ftp://user:pa55@host/p", "ftp://pa55@host", "ftp://user:pa55@x@host:1/p?q=a@b"])
def test_credentials_in_urls_are_hidden(url: str) -> None:
    """A URL may carry a password: the rest of it is shown."""
    (finding,) = Config.parse({"topic": "t", "url": url}).findings
    shown = str(finding)
    assert "pa55" not in shown
    assert "ftp://[hidden]@host" in shown
