"""A real OpenSearch server for the whole run, started when a test first asks for it; ends with the run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.embedded.running import Running, running
from service.embedded.search import embedded_search
from service.embedded.server import EmbeddedServer


@pytest.fixture(scope="session")
def search_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running[EmbeddedServer]]:
    """The run's server; who stops it starts it again, on the same port and data."""
    with running(embedded_search(data_dir=tmp_path_factory.mktemp("opensearch")), name="opensearch") as server:
        yield server


@pytest.fixture
def opensearch(search_server: Running[EmbeddedServer]) -> str:
    """The address of the run's server; tests keep apart by the names of their indices."""
    return search_server.server.address
