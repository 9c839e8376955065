"""Hashes of passwords, by scrypt (RFC 7914). ``python -m service.rest.passwords`` reads one and prints its hash."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import sys
from dataclasses import dataclass
from getpass import getpass

PREFIX = "scrypt$"
_COST = (2**14, 8, 1)
"""N, r and p: some fifty milliseconds and 16 MiB."""
_SALT_BYTES, _HASH_BYTES = 16, 32
_MEMORY_BYTES_MAX = 256 * 1024 * 1024
_FORM = re.compile(r"scrypt\$(\d{1,8})\$(\d{1,3})\$(\d{1,3})\$([A-Za-z0-9_-]{8,128})\$([A-Za-z0-9_-]{22,128})")


def hash_password(password: str) -> str:
    """``scrypt$N$r$p$salt$hash``, with a salt of its own."""
    salt = os.urandom(_SALT_BYTES)
    numbers = "$".join(map(str, _COST))
    return f"{PREFIX}{numbers}${_encode(salt)}${_encode(_scrypt(password, salt, _COST))}"


@dataclass(frozen=True, slots=True)
class PasswordHash:
    """A hash of a password, taken apart into cost, salt and value."""

    cost: tuple[int, int, int]
    salt: bytes
    value: bytes

    @classmethod
    def parse(cls, text: str) -> PasswordHash:
        """ValueError for what is no hash, or one that would take too much memory to check."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError("Expected a hash of the form scrypt$N$r$p$salt$hash")
        number, block, lanes = cost = (int(match[1]), int(match[2]), int(match[3]))
        is_power = number > 1 and number & (number - 1) == 0
        if not is_power or block * lanes == 0 or 128 * block * (number + lanes + 2) > _MEMORY_BYTES_MAX:
            raise ValueError("Expected N a power of two, and together with r and p not too large")
        return cls(cost, _decode(match[4]), _decode(match[5]))


def verify_password(password: str, hashed: str) -> bool:
    """Whether ``hashed`` was made from ``password``; takes the same time either way."""
    known = PasswordHash.parse(hashed)
    return hmac.compare_digest(_scrypt(password, known.salt, known.cost, length=len(known.value)), known.value)


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int], *, length: int = _HASH_BYTES) -> bytes:
    number, block, lanes = cost
    return hashlib.scrypt(
        password.encode(), salt=salt, n=number, r=block, p=lanes, maxmem=_MEMORY_BYTES_MAX, dklen=length
    )


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


if __name__ == "__main__":
    password = getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    sys.stdout.write(f"{hash_password(password)}\n")
