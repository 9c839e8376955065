"""``ElasticsearchSink`` against a real OpenSearch: the suite that the stand-in passes too."""

from __future__ import annotations

import pytest

from tests.search_suite import Search, SearchSuite

pytestmark = pytest.mark.integration


@pytest.fixture
def search(opensearch: str) -> Search:
    """The real server, as the suite asks it."""
    return Search(opensearch)


class TestOpenSearch(SearchSuite):
    """The server itself."""
