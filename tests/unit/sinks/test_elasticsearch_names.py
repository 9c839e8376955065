"""Names of indices and data streams: what Confluent's connector makes of topics, and which names no server takes."""

from __future__ import annotations

import pytest

from fetchers.sdk import Fatal
from service.sinks.elasticsearch.config import ElasticsearchSinkConfig
from service.sinks.elasticsearch.indices import target_of


def config_of(**keys: str) -> ElasticsearchSinkConfig:
    """Keys with ``__`` for dots."""
    texts = {"connection.url": "http://localhost:9200"} | {key.replace("__", "."): text for key, text in keys.items()}
    parsed = ElasticsearchSinkConfig.parse(texts)
    assert parsed.config is not None, parsed.findings
    return parsed.config


def refused_keys(**keys: str) -> list[str]:
    """Which keys a config is refused for."""
    return sorted({finding.key for finding in config_of(**keys).own_findings() if finding.is_error})


STREAM = {"data__stream__type": "LOGS", "data__stream__dataset": "app"}


@pytest.mark.parametrize(
    ("topic", "index"),
    [
        ("orders", "orders"),
        ("Orders.EU", "orders.eu"),
        ("-orders", "orders"),
        ("_Orders", "orders"),
        (".", "dot"),
        ("..", "dotdot"),
        ("_..", "dotdot"),
        (".kept", ".kept"),
        ("Größe", "größe"),
        ("x" * 255, "x" * 255),
        ("x" * 300, "x" * 255),
        ("_" + "x" * 299, "x" * 254),
    ],
)
def test_the_index_of_a_topic(topic: str, index: str) -> None:
    """``ElasticsearchSinkTask.convertTopicToIndexName``: lower case, cut, then without a first ``-`` or ``_``."""
    assert target_of(topic, config_of()) == index


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("_", "is empty"),
        ("__a", "begins with _"),
        ("-_a", "begins with _"),
        ("+a", r"begins with \+"),
        *((f"a{sign}b", "has one of") for sign in '\\/*?"<>| ,#:'),
        ("ü" * 128, "has 256 bytes"),
    ],
)
def test_a_topic_without_an_index(topic: str, fault: str) -> None:
    """It is told before the server is asked, which says of some of them that they are there."""
    with pytest.raises(Fatal, match=fault) as told:
        target_of(topic, config_of())
    assert "RegexRouter" in str(told.value)


@pytest.mark.parametrize(
    ("topic", "keys", "stream"),
    [
        ("Orders", {}, "logs-app-orders"),
        ("Orders", {"data__stream__type": "metrics"}, "metrics-app-orders"),
        ("Orders", {"data__stream__dataset": "App"}, "logs-app-orders"),
        ("Orders", {"data__stream__namespace": "eu_${topic}"}, "logs-app-eu_orders"),
        ("Orders", {"data__stream__namespace": "default"}, "logs-app-default"),
        ("_orders-eu", {}, "logs-app-_orders-eu"),
        ("x" * 200, {}, f"logs-app-{'x' * 100}"),
    ],
)
def test_the_data_stream_of_a_topic(topic: str, keys: dict[str, str], stream: str) -> None:
    """Type, dataset, and the namespace of at most 100 characters."""
    config = config_of(**STREAM | keys)
    assert not list(config.own_findings())
    assert target_of(topic, config) == stream


@pytest.mark.parametrize("topic", ["a b", "a:b", "ü" * 100 + "x"])
def test_a_topic_without_a_data_stream(topic: str) -> None:
    """The whole name counts, in bytes."""
    with pytest.raises(Fatal, match=r"has no data stream: the name '.*' has"):
        target_of(topic, config_of(**STREAM | {"data__stream__dataset": "ü" * 50}))


@pytest.mark.parametrize("part", ["dataset", "namespace"])
@pytest.mark.parametrize("text", ["a-b", "a b", "a:b", "a*", "a/b", "x" * 101])
def test_parts_of_a_data_streams_name_are_judged_beforehand(part: str, text: str) -> None:
    """As Confluent's connector does: a hyphen stands between the parts, and in none of them."""
    assert refused_keys(**STREAM | {f"data__stream__{part}": text}) == [f"data.stream.{part}"]


USAGES = ("INDEX", "DATASTREAM", "ALIAS_INDEX", "ALIAS_DATASTREAM")
MAPPING = "topic.to.external.resource.mapping"


@pytest.mark.parametrize("usage", USAGES)
def test_topics_go_to_the_resources_that_they_are_given(usage: str) -> None:
    """Whatever their own names are; one that is given none fails the task."""
    config = config_of(
        external__resource__usage=usage, topic__to__external__resource__mapping="__Orders:sales-2026, Logins : who.came"
    )
    assert not [finding for finding in config.own_findings() if finding.is_error]
    assert [target_of(topic, config) for topic in ("__Orders", "Logins")] == ["sales-2026", "who.came"]
    assert config.is_data_stream is usage.endswith("DATASTREAM")
    with pytest.raises(Fatal, match="names no resource for topic 'orders'"):
        target_of("orders", config)


@pytest.mark.parametrize("usage", USAGES)
@pytest.mark.parametrize("resource", ["_all", "-a", "+a", "a*", "a b", "..", "x" * 256])
def test_a_resource_that_no_server_has_is_refused_beforehand(usage: str, resource: str) -> None:
    """By the rules of names."""
    keys = {"external__resource__usage": usage, "topic__to__external__resource__mapping": f"orders:{resource}"}
    assert refused_keys(**keys) == [MAPPING]


@pytest.mark.parametrize("usage", USAGES)
def test_only_an_alias_may_be_in_upper_case(usage: str) -> None:
    """Servers make no index and no data stream of such a name."""
    keys = {"external__resource__usage": usage, "topic__to__external__resource__mapping": "orders:Sales"}
    assert refused_keys(**keys) == ([] if usage.startswith("ALIAS") else [MAPPING])


def test_a_topic_that_is_given_two_resources_is_refused() -> None:
    """As Confluent's connector does: it would go to one of them."""
    keys = {"external__resource__usage": "INDEX", "topic__to__external__resource__mapping": "orders:a,orders:b"}
    assert refused_keys(**keys) == [MAPPING]


def test_a_field_for_the_time_needs_a_data_stream() -> None:
    """As Confluent's connector says: documents of an index have no ``@timestamp``."""
    assert refused_keys(data__stream__timestamp__field="at") == ["data.stream.timestamp.field"]
    assert refused_keys(**STREAM | {"data__stream__timestamp__field": "at"}) == []
