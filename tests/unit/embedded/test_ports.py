"""Chosen ports are free, distinct, and not such as outgoing connections are given."""

from __future__ import annotations

import random
import socket

import pytest

from service.embedded.errors import PortBusy
from service.embedded.ports import CHOICE, LOOPBACK, free_ports, require_free


def test_taken_port_is_neither_accepted_nor_chosen() -> None:
    """A port with a listener is refused with its number."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortBusy, match=str(port)):
            require_free(port)


def test_chosen_ports_can_be_listened_on_together() -> None:
    """Several ports at once are distinct and all free."""
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(port in CHOICE for port in ports)
    for port in ports:
        require_free(port)


def test_processes_with_the_same_seed_choose_apart() -> None:
    """Tests that run beside each other are seeded alike."""
    choices = []
    for _ in range(2):
        random.seed(1)
        choices.append(free_ports(5))
    assert choices[0] != choices[1]


def test_choice_is_below_the_ports_of_outgoing_connections() -> None:
    """What a connection of our own is given lies outside of the choice."""
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as outgoing:
        assert outgoing.getsockname()[1] not in CHOICE
