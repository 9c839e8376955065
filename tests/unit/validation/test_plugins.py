"""Listing of plugins, their definitions, and validation that a connector's own code cannot hold up."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from threading import Event, Semaphore
from types import ModuleType

import pytest

from fetchers.sdk import FetchContext, FetcherConfig, Finding, Page, SourceConnector
from service.herder.errors import BadRequestError, NotFoundError
from service.sinks.catalog import SINKS
from service.validation.connectors import find_connector
from service.validation.plugins import HANGING_MAX, ConnectorPlugins, SlowValidationError
from service.validation.validator import Validation
from service.worker.foreign_calls import COUNTED_SECONDS_MAX, ForeignCalls
from tests.passing_time import let_pass

PACKAGE = "org.apache.kafka.connect"
WORKER = {"key.converter": "string", "value.converter": "json"}
SOURCE = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}
HELD = Event()
BEGUN = Semaphore(0)
"""One for each check that hangs."""


class HangingConfig(FetcherConfig):
    """Nothing of its own."""


class Hanging(SourceConnector[HangingConfig]):
    """Its own check hangs until the test lets it go."""

    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        """Never called."""
        del context
        return
        yield

    def findings(self) -> Sequence[Finding]:
        """Hang."""
        BEGUN.release()
        HELD.wait(timeout=600)
        return ()


@pytest.fixture
def hanging() -> Iterator[Mapping[str, str]]:
    """A config of a connector whose check hangs."""
    module = ModuleType("hanging_plugin")
    module.Hanging = Hanging  # type: ignore[attr-defined] # a module made for this test
    sys.modules["hanging_plugin"] = module
    HELD.clear()
    yield {"name": "h", "connector.class": "hanging_plugin:Hanging", "topic": "t"}
    HELD.set()
    del sys.modules["hanging_plugin"]


def plugins(*, seconds_max: float = 30.0) -> ConnectorPlugins:
    """The plugins of a worker."""
    return ConnectorPlugins(Validation(WORKER), ForeignCalls(seconds_max=seconds_max))


def test_connectors_are_listed_sinks_first() -> None:
    """Under the Java classes they stand for, with their versions."""
    listed = plugins().listing(connectors_only=True)
    assert {"class": f"{PACKAGE}.file.FileStreamSourceConnector", "type": "source", "version": "4.1.1"} in listed
    assert [entry["class"] for entry in listed if entry["type"] == "sink"] == [plugin.aliases[0] for plugin in SINKS]
    types = [entry["type"] for entry in listed]
    assert types == sorted(types)
    assert {"HttpSource", f"{PACKAGE}.mixpanel.MixPanelConnector"} <= {entry["class"] for entry in listed}


def test_all_plugins_are_listed_by_type() -> None:
    """In Connect's order."""
    types = [entry["type"] for entry in plugins().listing(connectors_only=False)]
    order = ["sink", "source", "transformation", "predicate", "converter", "header_converter"]
    assert list(dict.fromkeys(types)) == order
    assert [order.index(word) for word in types] == sorted(order.index(word) for word in types)


def test_every_listed_class_can_be_used() -> None:
    """A connector as ``connector.class``, and each has definitions."""
    for entry in plugins().listing(connectors_only=False):
        if entry["type"] in {"source", "sink"}:
            known = find_connector(entry["class"], {})
            assert known is not None
            assert known.kind.name == entry["type"]
        assert isinstance(plugins().config_keys(entry["class"]), Sequence)


def test_definitions_of_a_connector_are_its_own_then_everyones() -> None:
    """By any of its names."""
    names = [key.name for key in plugins().config_keys("FileStreamSource")]
    assert names.index("file") < names.index("name")
    assert names == [key.name for key in plugins().config_keys(f"{PACKAGE}.file.FileStreamSourceConnector")]


@pytest.mark.parametrize("plugin", ["FileStreamSource", "FileStreamSink", "HttpSource"])
def test_the_version_s_default_is_the_plugin_s_own(plugin: str) -> None:
    """As Connect tells it (KIP-891), where converters have none before a worker is known."""
    keys = {key.name: key for key in plugins().config_keys(plugin)}
    known = find_connector(plugin, {})
    assert known is not None
    assert keys["connector.plugin.version"].default_value == known.plugin.version


def test_converters_have_no_default_in_definitions() -> None:
    """What the worker uses shows in validation."""
    keys = {key.name: key for key in plugins().config_keys("FileStreamSource")}
    assert keys["key.converter"].default_value is None
    assert keys["key.converter.plugin.version"].default_value is None


@pytest.mark.parametrize(
    ("plugin", "names"),
    [
        (f"{PACKAGE}.transforms.HoistField$Value", ["field"]),
        (f"{PACKAGE}.transforms.ExtractField$Key", ["field", "field.syntax.version", "replace.null.with.default"]),
        ("RegexRouter", ["regex", "replacement"]),
        ("HasHeaderKey", ["name"]),
        ("RecordIsTombstone", []),
        (
            "JsonConverter",
            ["converter.type", "schemas.enable", "schemas.cache.size", "decimal.format", "replace.null.with.default"],
        ),
        (f"{PACKAGE}.storage.StringConverter", ["converter.type", "converter.encoding"]),
        (f"{PACKAGE}.storage.SimpleHeaderConverter", []),
    ],
)
def test_other_plugins_have_definitions_too(plugin: str, names: list[str]) -> None:
    """Only their own keys."""
    assert [key.name for key in plugins().config_keys(plugin)] == names


@pytest.mark.parametrize(
    "plugin", ["Nope", "HoistField$Value", "no_such_module:Class", "antigravity:x", "json:JSONDecoder"]
)
def test_an_unknown_plugin_is_not_found(plugin: str) -> None:
    """And no module is imported to find out."""
    with pytest.raises(NotFoundError) as error:
        plugins().config_keys(plugin)
    assert str(error.value) == f"Unknown plugin {plugin}."
    assert "antigravity" not in sys.modules


def test_definitions_can_be_asked_for_by_version() -> None:
    """Of the one there is."""
    for version in (None, "latest", "4.1.1", "[4,5)"):
        assert plugins().config_keys("FileStreamSource", version=version)
    with pytest.raises(BadRequestError, match="Invalid version specification: \\["):
        plugins().config_keys("FileStreamSource", version="[")
    with pytest.raises(BadRequestError) as error:
        plugins().config_keys("FileStreamSource", version="9.9")
    assert str(error.value) == (
        f"Plugin {PACKAGE}.file.FileStreamSourceConnector not found that matches the version range [9.9,9.9], "
        "available versions: [4.1.1]"
    )


async def test_errors_of_a_config_come_in_the_order_of_its_keys() -> None:
    """With both texts of a key that has two."""
    errors = await plugins().errors_of({"name": "x", "connector.class": "FileStreamSource", "tasks.max": "abc"})
    assert errors == (
        "Invalid value abc for configuration tasks.max: Not a number of type INT",
        "Invalid value null for configuration tasks.max: Value must be non-null",
        'Missing required configuration "topic" which has no default value.',
    )


async def test_every_error_names_its_key() -> None:
    """A refused request shows messages alone."""
    sink = {"name": "x", "connector.class": "S3Sink", "topics": "t", "s3.bucket.name": "b", "flush.size": "1"}
    errors = await plugins().errors_of({**sink, "topics.dir": "..", "file.delim": "-", "timezone": "Mars"})
    keys = ("topics.dir", "file.delim", "timezone")
    assert [key for key in keys if not any(key in error for error in errors)] == []
    assert len(errors) == len(keys)


async def test_warnings_are_told_when_a_config_is_accepted() -> None:
    """Not when somebody only asks, and not beside errors."""
    told: list[tuple[str, list[str]]] = []
    watched = ConnectorPlugins(
        Validation(WORKER),
        ForeignCalls(),
        lambda connector, findings: told.append((connector, [finding.key for finding in findings])),
    )
    await watched.validate("FileStreamSource", {**SOURCE, "zzz": "1"})
    await watched.errors_of({**SOURCE, "zzz": "1", "tasks.max": "0"})
    assert told == []
    assert await watched.errors_of({**SOURCE, "zzz": "1"}) == ()
    assert told == [("c", ["zzz"])]


async def test_a_client_hears_of_its_own_mistakes() -> None:
    """Through the thread."""
    with pytest.raises(BadRequestError):
        await plugins().validate("FileStreamSource", {**SOURCE, "connector.class": "HttpSource"})


async def test_a_hanging_check_harms_nobody_else(hanging: Mapping[str, str]) -> None:
    """It ends with an error, others go on, and there is a limit to how many may hang."""
    looked_at = plugins(seconds_max=1000.0)
    async with asyncio.TaskGroup() as group:
        for _ in range(HANGING_MAX):
            group.create_task(_refused(looked_at, hanging), name="hanging")
        for _ in range(HANGING_MAX):
            while not BEGUN.acquire(blocking=False):
                await asyncio.sleep(0.001)
            let_pass(COUNTED_SECONDS_MAX)  # it makes room for one more
        let_pass(1000.0)
    with pytest.raises(SlowValidationError, match="have not come back"):
        await looked_at.errors_of(hanging)
    assert await looked_at.errors_of(SOURCE) == ()


async def _refused(looked_at: ConnectorPlugins, config: Mapping[str, str]) -> None:
    with pytest.raises(SlowValidationError):
        await looked_at.errors_of(config)
