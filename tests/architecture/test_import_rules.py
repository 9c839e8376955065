"""Who may import whom: the contracts in pyproject.toml hold, and would be broken by a stray import."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.tracked import ROOMS, ROOT, Module, modules, text_of

DOORS = {
    "aiokafka": ("service/kafka/",),
    "pyspark": ("spark_batch/",),
    "prometheus_client": ("metrics/",),
    "aiohttp.web": ("service/rest/", "service/simulators/"),
}
"""Third parties that one room alone speaks to. (Simulators are servers of their own, for demo and tests.)"""
LINT = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"


def imported(module: Module) -> set[str]:
    """Full names of everything a module imports, both `package` and `package.name` of a from-import."""
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter as `./headrace check` does."""
    command = [sys.executable, "-c", LINT]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_the_contracts_hold() -> None:
    """import-linter keeps every contract."""
    result = lint(ROOT)

    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("door", DOORS)
def test_third_parties_have_one_door(door: str) -> None:
    """Each is imported in its room and nowhere else in the product."""
    importers = [
        module.path
        for module in modules()
        if module.path.startswith(ROOMS)
        and any(name == door or name.startswith(f"{door}.") for name in imported(module))
    ]

    assert importers, f"nothing imports {door} any more: take its door away"
    assert [path for path in importers if not path.startswith(DOORS[door])] == []


def test_every_room_is_under_a_contract() -> None:
    """The linter looks at every top-level package of the product."""
    settings = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]
    packages = {module.path.split("/")[0] for module in modules() if module.path.count("/")} - {"tests"}

    assert set(settings["root_packages"]) == set(ROOMS) == packages


def test_every_fetcher_is_a_layer_of_its_own() -> None:
    """Each folder of fetchers is named in the layers, so that fetchers cannot import each other."""
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["fetchers"])
    named = {part.strip(" ()") for layer in layers for part in layer.split("|")}
    folders = {Path(module.path).parts[1] for module in modules() if module.path.startswith("fetchers/")}

    assert {folder.removesuffix(".py") for folder in folders} - {"__init__"} <= named
