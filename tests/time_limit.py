"""Ends the process of a test that its time limit does not end. A pytest plugin, loaded by tests/conftest.py.

The limit of pytest-timeout is one exception, raised in the main thread. It does nothing where it meets a task or a
callback of an event loop (asyncio keeps it there) or code in C that does not return. And it is taken away when a test
fails (``pytest_exception_interact`` of pytest-timeout 2.4.0, and that of pytest 9.2 for its ``faulthandler_timeout``),
because a debugger may follow: what tears such a test down may then take for ever, as ``DROP DATABASE`` did behind a
transaction that a failed test had left prepared.

So each test has a second limit, kept by a thread in C that needs neither the main thread nor the interpreter's lock:
all threads are shown on the run's stderr, and the process ends. xdist tells the test by its name as failed, and goes on
in a new process with the one behind it (tests/spread.py).
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator

import pytest
from pytest_timeout import get_env_settings

GRACE_SECONDS = "300"
"""Beyond the test's own limit; and for all that follows its failure."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Asked for by pytest."""
    parser.addini(
        "timeout_grace", "seconds beyond its timeout after which a test's process ends", default=GRACE_SECONDS
    )


def pytest_configure(config: pytest.Config) -> None:
    """Asked for by pytest, while stderr is the run's own: during a test it is captured."""
    assert sys.__stderr__ is not None
    config.pluginmanager.register(_Limit(config, os.dup(sys.__stderr__.fileno())))


class _Limit:
    def __init__(self, config: pytest.Config, stderr: int) -> None:
        self._config = config
        self._stderr = stderr
        self._is_running = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """One test, with its fixtures."""
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0]) if marker else get_env_settings(self._config).timeout
        if not seconds:
            return (yield)
        self._is_running = True
        self._begin(seconds)
        try:
            return (yield)
        finally:
            self._is_running = False
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        """The test has failed, and others have taken the limit away."""
        if self._is_running:
            self._begin(0)

    def _begin(self, seconds: float) -> None:
        grace = float(self._config.getini("timeout_grace"))
        faulthandler.dump_traceback_later(seconds + grace, exit=True, file=self._stderr)

    def pytest_unconfigure(self) -> None:
        os.close(self._stderr)
