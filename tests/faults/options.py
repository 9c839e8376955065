"""Options of the fault tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--kills`` and ``--kill-seed``."""
    group = parser.getgroup("headrace faults")
    group.addoption("--kills", type=int, default=25, help="how often the crash test kills something")
    group.addoption("--kill-seed", type=int, default=20261121, help="what is killed when")
