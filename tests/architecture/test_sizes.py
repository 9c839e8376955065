"""Files and functions stay small; what is larger stands in a table that may only shrink."""

from __future__ import annotations

from tests.architecture.tracked import Module, modules

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

FILE_WAIVERS: dict[str, int] = {}
"""Files that are larger for now, with their lines; each is a debt."""
FUNCTION_WAIVERS: dict[str, int] = {}
"""``path:function`` that are longer for now, with their lines."""
WAIVERS_MAX = 0
"""How many waivers there are at most: lower it with each that goes, never raise it."""


def file_lines() -> dict[str, int]:
    """Lines of each Python file."""
    return {module.path: len(module.text.splitlines()) for module in modules()}


def function_lines() -> dict[str, int]:
    """Lines of each function, docstring included, decorators not."""
    return {name: lines for module in modules() for name, lines in _functions(module).items()}


def _functions(module: Module) -> dict[str, int]:
    return {f"{module.path}:{node.name}": (node.end_lineno or 0) - node.lineno + 1 for node in module.functions}


def excess(sizes: dict[str, int], waivers: dict[str, int], *, limit: int) -> dict[str, int]:
    """What is over its limit or its waiver."""
    return {name: lines for name, lines in sizes.items() if lines > waivers.get(name, limit)}


def unneeded(sizes: dict[str, int], waivers: dict[str, int], *, limit: int) -> list[str]:
    """Waivers of what is gone, small enough by now, or smaller than its waiver says."""
    return [name for name, lines in waivers.items() if not limit < sizes.get(name, 0) == lines]


def test_an_excess_is_found() -> None:
    """The measure itself works: over the limit, over a waiver, and not within either."""
    sizes = {"small": 400, "large": 401, "waived": 450, "grown": 451}

    assert excess(sizes, {"waived": 450, "grown": 450}, limit=400) == {"large": 401, "grown": 451}
    assert unneeded(sizes, {"small": 400, "gone": 500, "waived": 460, "grown": 451}, limit=400) == [
        "small",
        "gone",
        "waived",
    ]


def test_no_file_is_over_400_lines() -> None:
    """A longer file is a room with two names."""
    assert excess(file_lines(), FILE_WAIVERS, limit=FILE_LINES_MAX) == {}


def test_no_function_is_over_60_lines() -> None:
    """A longer function does not fit on a screen, nor in a head."""
    assert excess(function_lines(), FUNCTION_WAIVERS, limit=FUNCTION_LINES_MAX) == {}


def test_waivers_only_shrink() -> None:
    """A waiver that is no longer needed, or too generous, has to go; no new one may come."""
    assert unneeded(file_lines(), FILE_WAIVERS, limit=FILE_LINES_MAX) == []
    assert unneeded(function_lines(), FUNCTION_WAIVERS, limit=FUNCTION_LINES_MAX) == []
    assert len(FILE_WAIVERS) + len(FUNCTION_WAIVERS) == WAIVERS_MAX
