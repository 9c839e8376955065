"""Modules are named by what they are about and say it; tests say what behaviour they show."""

from __future__ import annotations

import ast
import re
from pathlib import PurePosixPath

from tests.architecture.tracked import ROOMS, modules

FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
"""Names that say nothing, so that everything ends up behind them."""
FORBIDDEN_CLASS_ENDS = ("Utils", "Helper", "Helpers", "Manager", "Misc")


def words_of(path: str) -> set[str]:
    """The folders of a module's path and the words of its name."""
    pure = PurePosixPath(path)
    return {word for part in (*pure.parts[:-1], pure.stem) for word in (part, *part.split("_"))}


def test_words_of_a_path_are_found() -> None:
    """The measure itself works: a forbidden word is found wherever it stands."""
    assert words_of("service/utils/queue.py") & FORBIDDEN_NAMES == {"utils"}
    assert words_of("service/queue_helpers.py") & FORBIDDEN_NAMES == {"helpers"}
    assert words_of("service/pipeline/queue.py") & FORBIDDEN_NAMES == set()


def test_no_module_has_a_name_that_says_nothing() -> None:
    """No utils, helpers, common, base, manager, misc, alone or as part of a name."""
    strays = [module.path for module in modules() if words_of(module.path) & FORBIDDEN_NAMES]

    assert strays == []


def test_no_class_has_a_name_that_says_nothing() -> None:
    """Nor do classes hide behind such words."""
    strays = [
        f"{module.path}: {node.name}"
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith(FORBIDDEN_CLASS_ENDS)
    ]

    assert strays == []


def test_every_module_says_what_it_is_for() -> None:
    """A module begins with a docstring of at least one sentence; of a conftest the folder's name says it."""
    named = [module for module in modules() if not module.path.endswith("/conftest.py")]
    silent = [module.path for module in named if len((ast.get_docstring(module.tree) or "").split()) < 2]

    assert silent == []


def test_every_test_says_what_behaviour_it_shows() -> None:
    """A test function has a docstring: the sentence that is true when it passes."""
    silent = [
        f"{module.path}: {function.name}"
        for module in modules()
        if module.path.startswith("tests/")
        for function in module.functions
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]

    assert silent == []


def test_annotations_are_never_evaluated_for_nothing() -> None:
    """Every module that has code imports annotations from the future, so that types may name what comes later."""
    strays = [
        module.path
        for module in modules()
        if module.path.startswith(ROOMS)
        and any(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) for node in module.tree.body)
        and not re.search(r"^from __future__ import annotations$", module.text, re.MULTILINE)
    ]

    assert strays == []
