"""What every test may use. Fixtures live in plugins by what they are about."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from service.embedded import ports

pytest_plugins = [
    "tests.closing_servers",
    "tests.spread",
    "tests.time_limit",
    "tests.stack",
    "tests.databases",
    "tests.spark_server",
    "tests.differential.java_transforms",
    "tests.java_connect",
    "tests.debezium",
    "tests.hdfs",
    "tests.opensearch",
    "tests.object_storage",
    "tests.iceberg_rest",
    "tests.small_disk",
    "tests.headrace_worker",
    "tests.faults.options",
]

# A busy machine is no failure: no test is right or wrong by how long it takes. Nor is a change by what was drawn: the
# same tests draw the same examples. With --hypothesis-profile=explore they draw others, to find what is not known.
settings.register_profile("headrace", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("explore", settings.get_profile("headrace"), derandomize=False, print_blob=True)
settings.load_profile("headrace")

# JVMs of tests live for seconds: HotSpot's second compiler would take a third of their time and never earn it back.
os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:TieredStopAtLevel=1 {os.environ.get('JAVA_TOOL_OPTIONS', '')}".rstrip()
# Some hundred Python programs start from this checkout: each would compile all of it anew, and take twice as long.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Servers that tests start take seconds to listen. So that nobody is given their ports meanwhile, each process of a run
# chooses from its own, and the programs that it starts from others still (service/embedded/ports.py).
_PROCESS = int(os.environ.get("PYTEST_XDIST_WORKER", "gw4").removeprefix("gw"))
ports.CHOICE = range(10_000 + 2_000 * _PROCESS, 12_000 + 2_000 * _PROCESS)


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Leave the process's logging as it was found: a command that a test runs here sets it for all that come after."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logger.level for name, logger in _loggers().items()}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, logger in _loggers().items():
        logger.setLevel(levels.get(name, logging.NOTSET))
    logging.captureWarnings(capture=False)


def _loggers() -> dict[str, logging.Logger]:
    known = logging.root.manager.loggerDict.items()
    return {name: logger for name, logger in known if isinstance(logger, logging.Logger)}
