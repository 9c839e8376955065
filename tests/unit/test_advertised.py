"""Where a worker tells the others to reach it."""

from __future__ import annotations

import socket

import pytest

from service.config.listeners import parse_listeners
from service.config.worker import WorkerConfig
from service.control import advertised

HOST = socket.getfqdn()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"listeners": "http://:8083"}, f"http://{HOST}:8083"),
        ({"listeners": "http://0.0.0.0:8083"}, f"http://{HOST}:8083"),
        ({"listeners": "http://[::]:8083"}, f"http://{HOST}:8083"),
        ({"listeners": "http://10.1.2.3:8083"}, "http://10.1.2.3:8083"),
        ({"listeners": "http://127.0.0.1:8083"}, "http://127.0.0.1:8083"),
        ({"listeners": "http://0.0.0.0:8083", "rest.advertised.host.name": "w1"}, "http://w1:8083"),
        ({"listeners": "http://0.0.0.0:8083", "rest.advertised.port": "80"}, f"http://{HOST}:80"),
    ],
)
def test_a_worker_on_every_interface_is_reached_by_its_host_name(properties: dict[str, str], expected: str) -> None:
    """Loopback would be every worker's own machine."""
    config = WorkerConfig.parse({"bootstrap.servers": "k:9092", "group.id": "g", **properties}).config
    assert config is not None
    (listener,) = parse_listeners(config.listeners)
    assert advertised(config, [listener.url(8083)]).url == expected
