"""The peer itself: a real Kafka Connect that the other tests here compare with."""

from __future__ import annotations

import pytest

from service.embedded.running import Running
from tests.java_connect import JavaConnect

pytestmark = pytest.mark.integration


def test_the_peer_is_the_imitated_version(java_connect: Running[JavaConnect]) -> None:
    """4.1.1 with the file connectors: what every comparison here is about."""
    status, root = java_connect.server.ask("GET", "/")
    _, plugins = java_connect.server.ask("GET", "/connector-plugins")
    assert (status, root["version"]) == (200, "4.1.1")
    assert "org.apache.kafka.connect.file.FileStreamSourceConnector" in {plugin["class"] for plugin in plugins}
