"""What decision 86 says of the kernel, tried on it: which last words of a server reach its client."""

from __future__ import annotations

import socket
import sys

SECONDS_MAX = 30.0


def received(*, is_unread: bool) -> tuple[int, int, bool]:
    """Bytes that a server has sent, bytes that its client reads once it has closed, and whether by a reset.

    ``is_unread``: whether the client has sent something that the server does not read.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that most of it waits with the server
        client.settimeout(SECONDS_MAX)
        client.connect(listening.getsockname())
        server, _ = listening.accept()
        if is_unread:
            client.sendall(b"status")
            server.recv(1, socket.MSG_PEEK)  # it has arrived
        server.settimeout(0)
        sent = 0
        try:
            while True:
                sent += server.send(bytes(65536))
        except BlockingIOError:
            server.close()
        found = 0
        try:
            while data := client.recv(65536):
                found += len(data)
        except ConnectionResetError:
            return sent, found, True
        return sent, found, False


def test_what_is_unsent_is_lost_only_where_statuses_wait_unread() -> None:
    """RFC 1122, 4.2.2.13, has the reset; that what was queued goes with it is Linux's, and asked of no other kernel."""
    sent, found, is_reset = received(is_unread=False)
    assert (found, is_reset) == (sent, False)
    sent, found, is_reset = received(is_unread=True)
    assert is_reset
    assert found < sent or sys.platform != "linux"
