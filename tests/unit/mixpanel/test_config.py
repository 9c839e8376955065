"""The keys of ``MixpanelSource``, old and new."""

from __future__ import annotations

import pytest

from fetchers.catalog import find_plugin
from fetchers.mixpanel.config import HOSTS, MixpanelConfig
from fetchers.mixpanel.fetcher import MixpanelSource
from fetchers.sdk import Finding
from service.config.files import read_properties
from tests.faults.worker_life import ROOT

GOOD = {
    "topic": "mixp",
    "from_date": "2016-02-01",
    "mixpanel.project.id": "2195193",
    "mixpanel.service.account.username": "reader",
    "mixpanel.service.account.secret": "the-secret",
}


def config(**changes: str) -> MixpanelConfig:
    """A valid config; ``mixpanel_region`` is the key ``mixpanel.region``."""
    parsed = MixpanelConfig.parse({**GOOD, **{key.replace("_", "."): value for key, value in changes.items()}})
    assert parsed.config is not None, parsed.findings
    return parsed.config


def errors(texts: dict[str, str]) -> dict[str, str]:
    """Message of each error by its key."""
    found: dict[str, Finding] = {
        finding.key: finding for finding in MixpanelConfig.parse(texts).findings if finding.is_error
    }
    return {key: finding.message for key, finding in found.items()}


def test_nothing_given_is_told_in_the_2016_connector_s_words() -> None:
    """Every missing setting at once, each with the text its users know."""
    assert errors({}) == {
        "topic": "MixPanelConnector configuration must include 'topic' setting",
        "api_key": "MixPanelConnector configuration must include 'api key' setting",
        "api_secret": "MixPanelConnector configuration must include 'api secret' setting",
        "from_date": "MixPanelConnector requires dates of format yyyy-mm-dd for the from_date field",
    }


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("topic", "one,two", "MixPanelConnector should only have a single topic when used as a source."),
        ("topic", " ", "MixPanelConnector configuration must include 'topic' setting"),
        ("from_date", "2016-2-1", "MixPanelConnector requires dates of format yyyy-mm-dd for the from_date field"),
        ("from_date", "20160201", "MixPanelConnector requires dates of format yyyy-mm-dd for the from_date field"),
        ("from_date", "2016-02-30", "MixPanelConnector requires dates of format yyyy-mm-dd for the from_date field"),
        ("from_date", "", "MixPanelConnector requires dates of format yyyy-mm-dd for the from_date field"),
        ("mixpanel.to.date", "2016-01-31", "Expected a day not before from_date 2016-02-01"),
        ("mixpanel.timezone", "America", "Expected an IANA time zone such as US/Pacific"),
        ("mixpanel.timezone", "../etc/passwd", "Expected an IANA time zone such as US/Pacific"),
        ("mixpanel.project.id", "acme", "Not a number of type INT"),
        ("mixpanel.region", "moon", "String must be one of: us, eu, in"),
        ("mixpanel.base.url", "ftp://x", "Expected a URL that starts with http:// or https://"),
        ("mixpanel.window.days", "0", "Value must be at least 1"),
        ("mixpanel.attribution.window.days", "-1", "Value must be at least 0"),
        ("mixpanel.events", '["a", 1]', "Expected names separated by commas, or a JSON array"),
        ("mixpanel.time.in.ms", "yes", "Expected value to be either true or false"),
    ],
)
def test_bad_values_are_refused(key: str, value: str, expected: str) -> None:
    """Each with its key and what was expected; nothing else is complained of."""
    found = errors({**GOOD, key: value})
    assert list(found) == [key]
    assert expected in found[key]


@pytest.mark.parametrize(
    "missing", ["mixpanel.project.id", "mixpanel.service.account.username", "mixpanel.service.account.secret"]
)
def test_a_service_account_needs_all_its_parts(missing: str) -> None:
    """What is missing is named; the old keys are not asked for."""
    assert list(errors({key: value for key, value in GOOD.items() if key != missing})) == [missing]


def test_the_seed_s_file_runs() -> None:
    """The connector's own README config: class, keys with blanks, secret as the project's."""
    texts = read_properties(ROOT / "docs/examples/seeds/mixpanel.properties")
    plugin = find_plugin(texts["connector.class"])
    assert plugin is not None
    assert plugin.load() is MixpanelSource
    parsed = MixpanelConfig.parse(texts)
    assert parsed.config is not None
    assert parsed.config.user_and_password == ("YOUR_MIXPANEL_SECRET_KEY", "")
    source = MixpanelSource(parsed.config)
    assert source.partition() == {"service": "mixpanel"}
    assert source.task_configs(8) == ({},)


@pytest.mark.parametrize("name", ["MixpanelSource", "MixPanelConnector", "MixPanel"])
def test_the_connector_s_names(name: str) -> None:
    """Simple names, with and without Connector, mean the same class."""
    plugin = find_plugin(name)
    assert plugin is not None
    assert plugin.load() is MixpanelSource


def test_a_project_has_its_own_partition() -> None:
    """Two projects in one connector's history do not share an offset."""
    assert MixpanelSource(config()).partition() == {"service": "mixpanel", "project": "2195193"}


@pytest.mark.parametrize(("region", "host"), HOSTS.items())
def test_the_region_chooses_the_host(region: str, host: str) -> None:
    """Each residency has its host; a base URL replaces it."""
    assert config(mixpanel_region=region).base_url == f"https://{host}"
    assert config(mixpanel_region=region, mixpanel_base_url="http://127.0.0.1:1/").base_url == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "names"),
    [("", ()), ("a, b c ,d", ("a", "b c", "d")), ('["Paid, in full", "b"]', ("Paid, in full", "b"))],
)
def test_event_names(text: str, names: tuple[str, ...]) -> None:
    """Commas separate, blanks inside stay, and a JSON array takes names that have commas."""
    assert config(mixpanel_events=text).mixpanel_events == names


def test_secrets_are_not_shown() -> None:
    """Neither in the config's texts nor in findings about other keys."""
    secrets = {
        "api_key": "key-5c1e",
        "api_secret": "secret-88a0",
        "mixpanel.service.account.secret": "secret-17f3",
        "mixpanel.project.secret": "secret-e9d2",
    }
    parsed = MixpanelConfig.parse({**GOOD, **secrets})
    assert parsed.config is not None
    said = f"{parsed.config!r} {parsed.config.texts()} {parsed.findings}"
    assert not [secret for secret in secrets.values() if secret in said]
    definitions = MixpanelConfig.config_keys()
    assert {key.name for key in definitions if key.kind == "PASSWORD"} == set(secrets)


def test_credentials_over_open_http_are_warned_of() -> None:
    """A plain base URL is right for a simulator on this machine, and odd elsewhere."""
    keys = {
        url: [finding.key for finding in MixpanelConfig.parse({**GOOD, "mixpanel.base.url": url}).findings]
        for url in ("http://127.0.0.1:99", "http://proxy.example:99", "https://proxy.example")
    }
    assert keys == {
        "http://127.0.0.1:99": [],
        "http://proxy.example:99": ["mixpanel.base.url"],
        "https://proxy.example": [],
    }


def test_every_key_is_documented() -> None:
    """The reference page is made of the docstrings."""
    definitions = MixpanelConfig.config_keys()
    assert [key.name for key in definitions if not key.documentation] == []
