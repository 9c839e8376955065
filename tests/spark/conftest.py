from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark.engines import ConnectEngine, Engine, ExactEngine, LocalEngine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here starts a Spark JVM."""
    for item in items:
        if "tests/spark" in item.nodeid:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def local_engine() -> Iterator[Engine]:
    """Spark in a launched JVM, one for the whole run."""
    engine = LocalEngine()
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def connect_engine(spark_remote: str) -> Iterator[Engine]:
    """Spark Connect, on the server of the whole run."""
    engine = ConnectEngine(spark_remote)
    yield engine
    engine.stop()


@pytest.fixture(scope="session")
def exact_engine(local_engine: Engine) -> Engine:
    """The exact path alone."""
    return ExactEngine(local_engine)


@pytest.fixture(scope="session", params=["local", "connect", "exact"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each way to run Spark in turn."""
    chosen: Engine = request.getfixturevalue(f"{request.param}_engine")
    return chosen
