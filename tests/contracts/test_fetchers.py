"""Runs the contract suite on every fetcher of the catalogue; a fetcher without a case fails."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fetchers.catalog import PLUGINS, Plugin, shared_http
from fetchers.sdk.testing import FetcherCase, FetcherContract, ListenerCase, ListenerContract

HERE = Path(__file__).parent


def case_file(plugin: Plugin) -> Path:
    """Where the case of a plugin stands: ``fetchers.<name>.fetcher`` has ``<name>_case.py`` here.

    A second plugin of a folder, in another module, has ``<module>_case.py``.
    """
    _, folder, module = plugin.target.partition(":")[0].split(".")
    return HERE / f"{folder if module == 'fetcher' else module}_case.py"


def load_case(plugin: Plugin) -> FetcherCase:
    """The ``CASE`` of a plugin."""
    path = case_file(plugin)
    spec = importlib.util.spec_from_file_location(f"contract_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    case: FetcherCase = module.CASE
    return case


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_has_a_case(plugin: Plugin) -> None:
    """Every plugin of the catalogue brings a case of the contract suite, and it is of that plugin."""
    assert case_file(plugin).is_file(), f"write {case_file(plugin).name} (see fetchers.sdk.testing.case)"
    assert load_case(plugin).connector is plugin.load()


def _suite(plugin: Plugin) -> type[FetcherContract]:
    case = load_case(plugin)
    members: dict[str, Any] = {
        "case": case,
        "open_http": staticmethod(shared_http),
        "__doc__": plugin.name,
    }
    suite = ListenerContract if isinstance(case, ListenerCase) else FetcherContract
    return type(f"Test{plugin.name}", (suite,), members)


for _plugin in PLUGINS:
    if case_file(_plugin).is_file():  # where it is not, test_has_a_case fails
        globals()[f"Test{_plugin.name}"] = _suite(_plugin)
