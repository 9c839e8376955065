"""Chosen ports are free, distinct, and not such as outgoing connections are given."""

from __future__ import annotations

import random
import runpy
import socket

import pytest

from service.embedded import ports
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
    chosen = free_ports(20)
    assert len(set(chosen)) == 20
    assert all(port in CHOICE for port in chosen)
    for port in chosen:
        require_free(port)


def test_a_port_is_not_given_to_two_before_one_of_them_listens() -> None:
    """A server takes seconds to listen, and another one is asked for meanwhile."""
    chosen = [port for _ in range(100) for port in free_ports(3)]
    assert len(set(chosen)) == len(chosen)


def test_ports_do_not_run_out() -> None:
    """However many were given in the life of a process."""
    for _ in range(len(CHOICE) // 100):
        assert len(free_ports(101)) == 101


def test_processes_with_the_same_seed_choose_apart() -> None:
    """Tests that run beside each other are seeded alike."""
    choices = []
    for _ in range(2):
        random.seed(1)
        choices.append(free_ports(5))
    assert choices[0] != choices[1]


def test_choice_is_below_the_ports_of_outgoing_connections() -> None:
    """What a connection of our own is given lies outside of the choice, and so do ports that tests choose from."""
    choice = runpy.run_path(str(ports.__file__))["CHOICE"]
    with socket.create_server((LOOPBACK, 0)) as server, socket.create_connection(server.getsockname()) as outgoing:
        assert outgoing.getsockname()[1] not in choice
    assert CHOICE.stop <= choice.start
