"""Requests between workers: an HTTP client that asks the leader, and the signatures that prove who asks (KIP-507)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from ssl import SSLContext
from types import TracebackType
from typing import Self
from urllib.parse import quote

import aiohttp

from service.domain.cluster import SessionKey
from service.herder.api import Signature
from service.herder.errors import BadRequestError, ForbiddenError, StartingError
from service.herder.ports import PeerError

REQUEST_SECONDS_MAX = 30.0
_TEXT_MAX = 300


class HttpPeers:
    """Use as an async context manager; connects when asked."""

    def __init__(self, *, tls: SSLContext | None = None) -> None:
        """``tls``: how to trust the others where they speak https."""
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the client's pool of connections."""
        timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS_MAX)
        self._session = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client; a later request raises ``PeerError``."""
        if self._session is not None:
            await self._session.close()

    async def publish_tasks(self, url: str, connector: str, body: bytes, signature: Signature | None) -> None:
        """Send task configs to the worker at ``url``: ``POST /connectors/{connector}/tasks``; raises ``PeerError``."""
        headers = {"Content-Type": "application/json"}
        if signature is not None:
            headers |= signature.headers
        target = f"{url.rstrip('/')}/connectors/{quote(connector, safe='')}/tasks"
        if self._session is None:
            raise PeerError("this worker is ending")
        try:
            async with self._session.post(
                target, data=body, headers=headers, ssl=True if self._tls is None else self._tls
            ) as answer:
                if not answer.ok:
                    raise PeerError(f"{url} answered {answer.status}: {(await answer.text())[:_TEXT_MAX]}")
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise PeerError(f"{url} cannot be reached: {type(error).__name__}: {error}") from error


HASHES = {
    "HmacMD5": "md5",
    "HmacSHA1": "sha1",
    "HmacSHA224": "sha224",
    "HmacSHA256": "sha256",
    "HmacSHA384": "sha384",
    "HmacSHA512": "sha512",
}
"""Java's names of algorithms, and Python's of the hashes in them."""


def new_key(algorithm: str, *, created_ms: int) -> SessionKey:
    """A random key, as long as its hash."""
    size = hashlib.new(HASHES[algorithm]).digest_size
    return SessionKey(secrets.token_bytes(size), algorithm, created_ms)


def sign(body: bytes, key: SessionKey, *, algorithm: str, target: str) -> Signature:
    """The headers of a request with this body; ``target``: the connector that it concerns."""
    value = _hmac(body, key, algorithm)
    return Signature(value, algorithm, _hmac(_head(target, value), key, algorithm))


def demand_member(
    signature: Signature | None, key: SessionKey | None, *, target: str, algorithms: tuple[str, ...]
) -> tuple[Signature, SessionKey]:
    """A signature that a member of the group has made for ``target``, before there is a body, and the key it is by.

    Raises ``BadRequestError``, ``ForbiddenError``, ``StartingError``.
    """
    if signature is None:
        raise BadRequestError("Internal request missing required signature")
    if signature.algorithm not in algorithms or signature.algorithm not in HASHES:
        raise BadRequestError(
            f"Signature algorithm '{signature.algorithm}' is not among those this worker accepts "
            f"({', '.join(algorithms)}): let inter.worker.verification.algorithms be the same on all workers"
        )
    if key is None:
        raise StartingError(
            "This worker is still starting up and has not been able to read a session key from the config topic yet"
        )
    _demand_equal(signature.head, _hmac(_head(target, signature.value), key, signature.algorithm))
    return signature, key


def demand_signed(body: bytes, signature: Signature, key: SessionKey) -> None:
    """Raises ``ForbiddenError`` unless the signature is that of this body."""
    _demand_equal(signature.value, _hmac(body, key, signature.algorithm))


def _demand_equal(given: str, right: str) -> None:
    if not hmac.compare_digest(given.encode(errors="surrogateescape"), right.encode()):
        raise ForbiddenError("Internal request contained invalid signature.")


def _head(target: str, value: str) -> bytes:
    return f"{value}\n{target}".encode(errors="surrogateescape")


def _hmac(text: bytes, key: SessionKey, algorithm: str) -> str:
    return base64.b64encode(hmac.digest(key.key, text, HASHES[algorithm])).decode()
