"""Runs the contract suite on every sink of the catalogue; a sink without a case fails."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import pytest

from fetchers.catalog import Plugin
from service.sinks.catalog import SINKS
from service.sinks.testing import SinkCase, SinkContract
from tests.architecture.tracked import text_of


def case_of(plugin: Plugin) -> SinkCase:
    """The ``CASE`` of a sink: ``service.sinks.<name>.…`` has ``<name>_sink_case.py`` here."""
    case: SinkCase = import_module(f"tests.contracts.{plugin.target.split('.')[2]}_sink_case").CASE
    return case


@pytest.mark.parametrize("plugin", SINKS, ids=lambda plugin: plugin.name)
def test_has_a_case_and_is_told_of(plugin: Plugin) -> None:
    """Every sink of the catalogue brings its own case, docstrings, and a word in the changelog."""
    loaded = plugin.load()

    assert case_of(plugin).connector is loaded
    assert loaded.__name__ == plugin.name
    assert loaded.__doc__
    assert loaded.config_class.__doc__
    assert f"`{plugin.name}`" in text_of("CHANGELOG.md")


def _suite(plugin: Plugin) -> type[SinkContract]:
    case = case_of(plugin)
    members: dict[str, Any] = {"case": case, "__doc__": plugin.name}
    suite = type(f"Test{plugin.name}", (SinkContract,), members)
    servers: Sequence[str] = getattr(case, "servers", ())
    return pytest.mark.usefixtures(*servers)(suite) if servers else suite


for _plugin in SINKS:
    globals()[f"Test{_plugin.name}"] = _suite(_plugin)
