"""Every example of the SDK's reference runs, and each is on the page."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from service.docs.sdk import SECTIONS, examples_of
from tests.contracts import sdk_examples, toolkit_examples

FUNCTIONS = [
    value
    for module in (sdk_examples, toolkit_examples)
    for name, value in vars(module).items()
    if "__" in name.strip("_")
]


@pytest.mark.parametrize("example", FUNCTIONS, ids=lambda example: example.__name__)
async def test_it_runs(example: Any) -> None:
    """What the page shows is true."""
    assert example.__doc__
    result = example()
    if inspect.isawaitable(result):
        await result


def test_each_is_shown_in_a_section() -> None:
    """None is forgotten by the page, and no section goes without."""
    shown = [name for section in SECTIONS for name, _, _ in examples_of(section.slug)]
    assert sorted(shown) == sorted(function.__name__ for function in FUNCTIONS)
    assert all(examples_of(section.slug) for section in SECTIONS)
