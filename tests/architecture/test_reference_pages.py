"""The generated pages are fresh and leave out no key, error, reason or command."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import click
import pytest

from fetchers import sdk
from fetchers.catalog import PLUGINS
from fetchers.sdk import testing
from fetchers.sdk.config import ConfigKey, ConfigModel
from service.cli.main import main as command_line
from service.config.borrowed_keys import (
    CONNECTION_KEYS,
    CONSUMER_KEYS,
    CONVERTER_KEYS,
    PRODUCER_KEYS,
    REGISTRY_KEYS,
    BorrowedKey,
)
from service.config.connector import SourceConnectorConfig
from service.config.converters import read_converter
from service.config.sink import SinkConnectorConfig
from service.config.worker import WorkerConfig
from service.docs import commands, configuration, errors
from service.docs.generate import PAGES, stale_pages, write_pages
from service.docs.sdk import EXAMPLES
from service.kafka.properties import read_settings
from service.registry.settings import RegistrySettings
from service.sinks.catalog import SINKS
from spark_batch.outcome import Reason, Stage
from tests.architecture.tracked import modules

CONFIG_CLASSES: dict[str, type[ConfigModel]] = {
    "worker": WorkerConfig,
    "connector": SourceConnectorConfig,
    "sink connector": SinkConnectorConfig,
    **{plugin.name: plugin.load().config_class for plugin in SINKS},
    **{plugin.name: plugin.load().config_class for plugin in PLUGINS},
}
CONNECT_KEYS = {
    "name",
    "connector.class",
    "connector.plugin.version",
    "tasks.max",
    "tasks.max.enforce",
    "key.converter",
    "key.converter.plugin.version",
    "value.converter",
    "value.converter.plugin.version",
    "header.converter",
    "header.converter.plugin.version",
    "transforms",
    "predicates",
    "config.action.reload",
    "errors.retry.timeout",
    "errors.retry.delay.max.ms",
    "errors.tolerance",
    "errors.log.enable",
    "errors.log.include.messages",
    "topic.creation.groups",
    "exactly.once.support",
    "transaction.boundary",
    "transaction.boundary.interval.ms",
    "offsets.storage.topic",
}
"""Keys of ConnectorConfig and SourceConnectorConfig (Kafka 4.1). A source's dead letters are ours."""
CONNECT_GROUPS = {
    "Common",
    "Transforms",
    "Predicates",
    "Error Handling",
    "Topic Creation",
    "Exactly Once Support",
    "offsets.topic",
}
ERROR_FILE_NAMES = {"errors", "failure"}


def keys_of(name: str) -> tuple[ConfigKey, ...]:
    """Keys of one config class."""
    return CONFIG_CLASSES[name].config_keys()


def test_generated_pages_are_fresh() -> None:
    """What is committed is what the code would write now; `./headrace docs` writes it."""
    assert stale_pages() == []


def test_a_stale_page_is_found_and_written(tmp_path: Path) -> None:
    """A page that is missing or was changed by hand is named, and written anew."""
    assert write_pages(tmp_path) == list(PAGES)
    errors_page = tmp_path / "docs/reference/errors.md"
    errors_page.write_text(errors_page.read_text(encoding="utf-8") + "by hand\n", encoding="utf-8")

    assert stale_pages(tmp_path) == ["docs/reference/errors.md"]
    assert write_pages(tmp_path) == ["docs/reference/errors.md"]
    assert stale_pages(tmp_path) == []


@pytest.mark.parametrize("name", CONFIG_CLASSES)
def test_every_key_is_documented(name: str) -> None:
    """A key has a sentence of its own, and its line on the page."""
    silent = [key.name for key in keys_of(name) if not key.documentation.strip().endswith((".", ".)", "…"))]
    page = configuration.page()
    missing = [key.name for key in keys_of(name) if f"| `{key.name}" not in page]

    assert silent == []
    assert missing == []


def test_every_key_of_a_connector_has_a_group() -> None:
    """Clients show keys by group, in the group's order."""
    places = [(key.extras.group, key.extras.order) for key in keys_of("connector")]

    assert [key.name for key in keys_of("connector") if not key.extras.group or key.extras.order < 1] == []
    assert len(places) == len(set(places))


def test_keys_of_our_own_are_optional_and_in_groups_of_their_own() -> None:
    """What Connect does not know neither disturbs a Connect config nor its groups; Connect's own keep theirs."""
    strays = [
        key.name
        for key in keys_of("connector")
        if (key.extras.group in CONNECT_GROUPS) != (key.name in CONNECT_KEYS)
        or (key.is_required and key.name not in CONNECT_KEYS)
    ]

    assert strays == []


@pytest.mark.parametrize("key", [*CONNECTION_KEYS, *PRODUCER_KEYS], ids=lambda key: key.name)
def test_every_documented_kafka_key_is_read(key: BorrowedKey) -> None:
    """A documented key of Kafka's clients is known to their reader, and a wrong value of it is found."""
    assert_read(key, role="producer")


@pytest.mark.parametrize("key", CONSUMER_KEYS, ids=lambda key: key.name)
def test_every_documented_key_of_consumers_is_read(key: BorrowedKey) -> None:
    """The same for those of sinks' consumers."""
    assert_read(key, role="consumer")


def assert_read(key: BorrowedKey, *, role: str) -> None:
    """A role's reader knows the key, and finds a wrong value of it."""
    name = f"{role}.{key.name}"
    _, findings = read_settings({name: key.wrong_value or key.default or "text"}, role=role)

    assert [finding for finding in findings if not finding.is_error] == []
    assert bool(findings) == (key.wrong_value is not None)


@pytest.mark.parametrize("key", REGISTRY_KEYS, ids=lambda key: key.name)
def test_every_documented_registry_key_is_read(key: BorrowedKey) -> None:
    """A wrong value of a documented registry key is found; keys that take any text are found when they are missing."""
    good = {"schema.registry.url": "http://localhost:8081"}
    wrong = {key.name: key.wrong_value or "USER_INFO"}
    _, findings = RegistrySettings.parse({**good, **wrong})

    assert RegistrySettings.parse(good)[1] == ()
    if key.name != "basic.auth.user.info":
        assert len(findings) == 1
        return
    settings, _ = RegistrySettings.parse({**good, "basic.auth.credentials.source": "USER_INFO", key.name: "anne:pass"})
    assert settings.logins == (("anne", "pass"),)


@pytest.mark.parametrize("key", CONVERTER_KEYS, ids=lambda key: key.name)
def test_every_documented_converter_key_is_read(key: BorrowedKey) -> None:
    """A wrong value of a documented converter key is found."""
    properties = {"value.converter": "json", f"value.converter.{key.name}": key.wrong_value or ""}
    reading = read_converter("value", properties, {})

    assert [finding.key for finding in reading.findings] == [f"value.converter.{key.name}"]


def test_every_reason_and_stage_is_documented() -> None:
    """Whoever finds a reason or stage in a dead letter finds it on the page."""
    page = errors.page()

    assert [word for word in (*Reason, *Stage) if f"| `{word}` |" not in page] == []


def test_every_header_of_a_dead_letter_is_documented() -> None:
    """Headers are written by one function, and each has its line."""
    page = errors.page()

    assert [name for name in errors.header_names() if f"| `{name}` |" not in page] == []
    assert set(errors.header_names()) == set(errors.HEADERS)


def test_every_reason_a_fetcher_gives_is_documented() -> None:
    """A fetcher's own rejections use the words of the conversion, so that one table explains them all."""
    given = {
        node.args[1].value
        for module in modules()
        if module.path.startswith("fetchers/")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Rejection"
        if len(node.args) > 1 and isinstance(node.args[1], ast.Constant)
    }

    assert given
    assert given <= {reason.value for reason in Reason}


def test_every_error_by_recovery_is_documented() -> None:
    """Every public class in a module called errors or failure stands on the page."""
    page = errors.page()
    classes = [
        node.name
        for module in modules()
        if module.path.startswith(("service/", "spark_batch/", "fetchers/sdk/"))
        and Path(module.path).stem in ERROR_FILE_NAMES
        if not module.path.startswith("service/docs/")
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and _is_exception(node)
    ]

    assert len(classes) > 20
    assert [name for name in classes if f"| `{name}` |" not in page] == []


def _is_exception(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id != "StrEnum" for base in node.bases)


def test_every_command_and_option_is_documented() -> None:
    """Each command of the command line has its section with a sentence, each option its line with one."""
    page = commands.page()
    listed = dict(commands.walk(command_line))
    options = [
        (path, parameter)
        for path, command in listed.items()
        for parameter in command.params
        if isinstance(parameter, click.Option)
    ]

    assert [path for path in listed if f"\n## {' '.join(path)}\n" not in page] == []
    assert [path for path, command in listed.items() if not command.help] == []
    assert [(path, option.name) for path, option in options if not option.help] == []


def test_the_launcher_documents_what_it_does_itself() -> None:
    """The commands the page says are the launcher's are those its shell handles."""
    launcher = (Path(__file__).parents[2] / "headrace").read_text(encoding="utf-8")
    handled = set(re.findall(r"^    ([a-z |]+)\)$", launcher, re.MULTILINE))
    words = {word.strip() for line in handled for word in line.split("|")}

    assert set(commands.LAUNCHER_COMMANDS) <= words
    assert "test" in words


def test_every_name_of_the_sdk_is_in_an_example() -> None:
    """What an author imports is shown at work; where this fails, add it to ``tests/contracts/sdk_examples.py``."""
    nodes = [node for path in EXAMPLES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}

    assert {*sdk.__all__, *testing.__all__} - used == set()
