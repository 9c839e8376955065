"""Who may use the REST interface: users with passwords, clients with tokens, each with a role."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from service.herder.errors import RequestError
from service.rest.passwords import PREFIX, PasswordHash, verify_password

TOKEN_PREFIX = "sha256$"  # noqa: S105 - how a digest is marked, no secret
_DIGEST = re.compile("[0-9a-fA-F]{64}")


CHECKS_MAX = 16
"""Passwords that may wait for their check: each costs some fifty milliseconds, and anyone may send some."""


class TooManyChecksError(RequestError):
    """More passwords wait to be checked than can be in reasonable time."""

    status = 429


class Role(StrEnum):
    """What one may do."""

    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Credential:
    """A role, and what proves it: a plain secret or a hash."""

    role: Role
    secret: str = field(repr=False)

    @property
    def is_hashed(self) -> bool:
        """Whether the secret is a password's hash."""
        return self.secret.startswith(PREFIX)


def parse_password(text: str) -> Credential:
    """``ROLE:PASSWORD``, plain or its hash; ValueError says what is wrong, without the text."""
    held = _parse(text)
    if held.is_hashed:
        PasswordHash.parse(held.secret)
    return held


def parse_token(text: str) -> Credential:
    """``ROLE:TOKEN``, plain or its digest; ValueError says what is wrong, without the text."""
    held = _parse(text)
    if held.secret.startswith(TOKEN_PREFIX) and not _DIGEST.fullmatch(held.secret.removeprefix(TOKEN_PREFIX)):
        raise ValueError("Expected sha256$ and 64 hexadecimal digits")
    return held


def _parse(text: str) -> Credential:
    role, colon, secret = text.partition(":")
    if role not in list(Role) or not colon or not secret:
        raise ValueError(f"Expected ROLE:SECRET with a role of {', '.join(Role)}")
    return Credential(Role(role), secret)


class Credentials:
    """Checks what an ``Authorization`` header says, in the same time whether the name or the secret is wrong."""

    def __init__(self, *, users: Mapping[str, Credential], tokens: Mapping[str, Credential]) -> None:
        """Hashes are checked in a thread: one takes some fifty milliseconds on purpose."""
        self._users = dict(users)
        self._tokens = [(_token_digest(held.secret), Principal(name, held.role)) for name, held in tokens.items()]
        self._hashing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rest-password")
        self._nobody = Credential(Role.READ, next((held.secret for held in users.values() if held.is_hashed), "-"))
        """Stands in for a name that is not there: its check must take as long."""
        self._waiting = 0
        self._key = os.urandom(32)
        self._proven: dict[str, bytes] = {}
        """Digest of the password that was last found right, by user, so that only the first request is slow."""

    def close(self) -> None:
        """End the thread."""
        self._hashing.shutdown(wait=False, cancel_futures=True)

    async def find(self, authorization: str | None) -> Principal | None:
        """Whose header this is; None for nobody's."""
        scheme, _, value = (authorization or "").partition(" ")
        match scheme.lower():
            case "basic":
                return await self._user(value.strip())
            case "bearer":
                return self._token(value.strip())
            case _:
                return None

    async def _user(self, encoded: str) -> Principal | None:
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except ValueError:
            # No base64, not even ASCII, or no UTF-8 in it.
            return None
        if not colon:
            return None
        held = self._users.get(name, self._nobody)
        is_right = await self._is_right(name, password, held)
        return Principal(name, held.role) if is_right and name in self._users else None

    async def _is_right(self, name: str, password: str, held: Credential) -> bool:
        if not held.is_hashed:
            return hmac.compare_digest(password.encode(), held.secret.encode())
        digest = hmac.digest(self._key, password.encode(), "sha256")
        if hmac.compare_digest(self._proven.get(name, b""), digest):
            return True
        if self._waiting >= CHECKS_MAX:
            raise TooManyChecksError("Too many passwords are being checked; try again")
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._hashing, verify_password, password, held.secret)
        finally:
            self._waiting -= 1
        if is_right:
            self._proven[name] = digest
        return is_right

    def _token(self, token: str) -> Principal | None:
        # Bytes of a header that are not UTF-8 are lone surrogates in its text.
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        found = [principal for held, principal in self._tokens if hmac.compare_digest(held, digest)]
        return found[0] if found else None


def _token_digest(secret: str) -> bytes:
    """Tokens are long and random: a plain digest is enough, and quick."""
    if secret.startswith(TOKEN_PREFIX):
        return bytes.fromhex(secret.removeprefix(TOKEN_PREFIX))
    return hashlib.sha256(secret.encode()).digest()
