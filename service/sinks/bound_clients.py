"""Clients of others within ``connector.allowed.addresses``: those that we tell what to dial, and those that we cannot.

A name may stand for another address when it is asked for again (DNS rebinding). So the clients of urllib3, which are
those of ``requests`` and of Amazon's ``boto3``, are given numbers that were judged, and never the name; the name stays
that of the request and of the certificate. What looks up names by itself is only asked about beforehand.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from urllib3.exceptions import ConnectTimeoutError, LocationParseError, NameResolutionError, NewConnectionError

from fetchers.sdk.reach import AddressRefusedError, AllowedAddresses
from service.sinks.contract import Fatal


def check_host(host: str, port: int | None, allowed: AllowedAddresses) -> None:
    """Look at what a host stands for now, for clients that look it up again by themselves. Raises Fatal."""
    for *_, address in socket.getaddrinfo(host, port, proto=socket.IPPROTO_TCP):
        try:
            allowed.check(host, str(address[0]))
        except AddressRefusedError as error:
            raise Fatal(str(error)) from error


def bind_boto(client: Any, allowed: AllowedAddresses) -> None:
    """Let a client of ``boto3`` dial allowed addresses alone; its errors carry AddressRefusedError as their reason.

    A proxy that the client was told of is dialled as it is.
    """
    bind(client._endpoint.http_session._manager, allowed)  # noqa: SLF001 - it has no door for this


def bind(manager: Any, allowed: AllowedAddresses) -> None:
    """Let a PoolManager of urllib3 dial allowed addresses alone; else its requests raise AddressRefusedError."""
    if not allowed.is_internal_free:
        manager.pool_classes_by_scheme = _bound_pools(manager.pool_classes_by_scheme, allowed)


def _bound_pools(pools: Mapping[str, Any], allowed: AllowedAddresses) -> dict[str, Any]:
    return {
        scheme: type(pool.__name__, (pool,), {"ConnectionCls": _bound(pool.ConnectionCls, allowed)})
        for scheme, pool in pools.items()
    }


def _bound(kind: Any, allowed: AllowedAddresses) -> Any:
    class Bound(kind):  # type: ignore[misc]
        port: int
        _dns_host: str
        """What urllib3 dials; ``host``, which is read from it, names the server in TLS as soon as that is done."""

        def _new_conn(self) -> Any:
            name, failure = self._dns_host, None
            try:
                numbers = allowed.looked_up(name.strip("[]"), self.port)
            except socket.gaierror as error:
                raise NameResolutionError(name, self, error) from error
            except ValueError as error:
                raise LocationParseError(name) from error
            for number in numbers:
                try:
                    self._dns_host = number
                    return super()._new_conn()
                except (NewConnectionError, ConnectTimeoutError) as error:
                    failure = error
                finally:
                    self._dns_host = name
            raise failure or LocationParseError(name)

    return Bound
