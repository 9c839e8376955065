"""Every plugin of the catalogue is whole: it loads, is documented, tested, and told of in the changelog."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from fetchers.catalog import PLUGINS, Plugin, find_plugin
from fetchers.sdk import FetcherConfig, SourceConnector
from tests.architecture.tracked import ROOT, text_of

by_plugin = pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)


@by_plugin
def test_it_loads(plugin: Plugin) -> None:
    """Its target is a connector class with a config class of its own."""
    connector_class = plugin.load()

    assert issubclass(connector_class, SourceConnector)
    assert issubclass(connector_class.config_class, FetcherConfig)
    assert connector_class.config_class is not FetcherConfig
    assert connector_class.__name__ == plugin.name


@by_plugin
def test_it_is_found_by_each_of_its_names(plugin: Plugin) -> None:
    """Its name, its aliases, and their simple names without ``Connector``, mean this plugin and no other."""
    simple = {plugin.name, *(alias.rpartition(".")[2] for alias in plugin.aliases)}
    names = {*plugin.aliases, *simple, *(name.removesuffix("Connector") for name in simple)}

    assert {name: find_plugin(name) for name in names} == dict.fromkeys(names, plugin)


@by_plugin
def test_it_says_what_it_is(plugin: Plugin) -> None:
    """Connector and config class have docstrings of their own."""
    connector_class = plugin.load()

    for kind in (connector_class, connector_class.config_class):
        assert kind.__doc__, kind
        assert len(inspect.cleandoc(kind.__doc__).split()) > 3, kind


@by_plugin
def test_it_has_a_contract_case(plugin: Plugin) -> None:
    """The contract suite knows how to try it."""
    _, folder, module = plugin.target.partition(":")[0].split(".")
    case = ROOT / "tests/contracts" / f"{folder if module == 'fetcher' else module}_case.py"

    assert case.is_file()
    assert re.search(r"^CASE\b", case.read_text(encoding="utf-8"), re.MULTILINE)


@by_plugin
def test_it_has_unit_tests(plugin: Plugin) -> None:
    """A folder of unit tests bears its name and is not empty."""
    folder = ROOT / "tests/unit" / plugin.target.split(".")[1]

    assert list(Path(folder).glob("test_*.py"))


@by_plugin
def test_it_is_in_the_changelog(plugin: Plugin) -> None:
    """A new fetcher is news."""
    assert f"`{plugin.name}`" in text_of("CHANGELOG.md")


def test_every_folder_of_fetchers_is_in_the_catalogue() -> None:
    """A fetcher nobody can configure is none."""
    folders = {path.parent.name for path in (ROOT / "fetchers").glob("*/fetcher.py")}

    assert folders == {plugin.target.split(".")[1] for plugin in PLUGINS}
