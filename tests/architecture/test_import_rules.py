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
    "aiohttp.web": ("service/rest/", "service/simulators/", "fetchers/sdk/testing/"),
}
"""Third parties that one room alone speaks to. (Simulators, and the contract suite, have servers of
their own.)"""
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
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_the_contracts_hold() -> None:
    """import-linter keeps every contract."""
    result = lint(ROOT)

    assert result.returncode == 0, result.stdout


STRAYS = {
    "fetchers/file/fetcher.py": "from fetchers.mixpanel import fetcher",
    "fetchers/http/fetcher.py": "from service import app",
    "fetchers/toolkit/parts.py": "from metrics import prometheus",
    "spark_batch/job.py": "from metrics import events",
    "metrics/prometheus.py": "from service import app",
    "service/app.py": "from fetchers.toolkit import parts",
    "service/worker.py": "import aiokafka",
    "service/stores.py": "from service import worker",
    "metrics/events.py": "import pyspark",
    "fetchers/sdk/page.py": "import prometheus_client",
    "spark_batch/plan.py": "from spark_batch import convert",
}
"""Imports that must not be: one for each rule at least."""
SKETCH = {
    **dict.fromkeys((*STRAYS, "fetchers/catalog.py", "fetchers/mixpanel/fetcher.py", "service/kafka/client.py"), ""),
    "spark_batch/convert.py": "from spark_batch import plan",
}


@pytest.mark.parametrize("path", [None, *STRAYS])
def test_a_stray_import_breaks_a_contract(path: str | None, tmp_path: Path) -> None:
    """In a sketch of the rooms the same contracts hold, and each stray import breaks one."""
    for name, content in SKETCH.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        for folder in file.relative_to(tmp_path).parents[:-1]:
            (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text(text_of("pyproject.toml"), encoding="utf-8")
    if path is not None:
        (tmp_path / path).write_text(STRAYS[path], encoding="utf-8")

    result = lint(tmp_path)

    assert ("BROKEN" in result.stdout) == (path is not None), result.stdout + result.stderr
    assert result.returncode == (0 if path is None else 1), result.stdout + result.stderr


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
    """The linter looks at every package of the product; deploy has settings of other programs, and the wheel's name."""
    settings = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]
    packages = {module.path.split("/")[0] for module in modules() if module.path.count("/")} - {"tests", "deploy"}

    assert set(settings["root_packages"]) == set(ROOMS) == packages


def test_every_fetcher_is_a_layer_of_its_own() -> None:
    """Each folder of fetchers is named in the layers, so that fetchers cannot import each other."""
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract.get("containers") == ["fetchers"])
    named = {part.strip(" ()") for layer in layers for part in layer.split("|")}
    folders = {Path(module.path).parts[1] for module in modules() if module.path.startswith("fetchers/")}

    assert {folder.removesuffix(".py") for folder in folders} - {"__init__"} <= named
