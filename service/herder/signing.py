"""Signatures of requests between workers: HMAC of the raw body with the session key (`connect-rest`, section 8)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from service.domain.cluster import SessionKey
from service.herder.api import Signature
from service.herder.errors import BadRequestError, ForbiddenError, StartingError

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


def sign(body: bytes, key: SessionKey, *, algorithm: str) -> Signature:
    """The two headers of a request with this body."""
    digest = hmac.digest(key.key, body, HASHES[algorithm])
    return Signature(base64.b64encode(digest).decode(), algorithm)


def demand_signed(
    body: bytes, signature: Signature | None, key: SessionKey | None, *, algorithms: tuple[str, ...]
) -> None:
    """Raises ``BadRequestError``, ``ForbiddenError``, ``StartingError`` unless a member of the group has signed."""
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
    try:
        given = base64.b64decode(signature.value, validate=True)
    except (binascii.Error, ValueError):
        given = b""
    if not hmac.compare_digest(given, hmac.digest(key.key, body, HASHES[signature.algorithm])):
        raise ForbiddenError("Internal request contained invalid signature.")
