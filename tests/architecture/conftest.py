from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture import tracked


@pytest.fixture(scope="package", autouse=True)
def _parsed_modules() -> Iterator[None]:
    """A parsed repository is a million objects, which every later collection of garbage would visit."""
    yield
    tracked.modules.cache_clear()
