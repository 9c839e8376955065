"""What the tests of the architecture look at: the tracked files, and the parsed Python modules among them."""

from __future__ import annotations

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("service", "fetchers", "spark_batch", "metrics")


@dataclass(frozen=True)
class Module:
    """One Python file of the repository."""

    path: str
    """Relative to the root, with slashes."""
    text: str
    tree: ast.Module

    @property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every function and method."""
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@cache
def tracked_paths() -> tuple[str, ...]:
    """Every file git tracks that is there, relative to the root."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, check=True, timeout=300).stdout.decode()
    return tuple(sorted(path for path in listed.split("\0") if path and (ROOT / path).is_file()))


@cache
def modules() -> tuple[Module, ...]:
    """Every tracked Python module, parsed."""
    return tuple(_module(path) for path in tracked_paths() if path.endswith(".py"))


def text_of(path: str) -> str:
    """A tracked file's text."""
    return (ROOT / path).read_text(encoding="utf-8")


def _module(path: str) -> Module:
    text = text_of(path)
    return Module(path, text, ast.parse(text, path))
