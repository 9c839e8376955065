"""Hashes of passwords, by scrypt (RFC 7914). ``python -m service.rest.passwords`` reads one and prints its hash."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import sys
from getpass import getpass

PREFIX = "scrypt$"
_COST = (2**14, 8, 1)
"""N, r and p: some fifty milliseconds and 16 MiB."""
_SALT_BYTES, _HASH_BYTES = 16, 32
_MEMORY_BYTES_MAX = 256 * 1024 * 1024
_FORM = re.compile(r"scrypt\$(\d{1,8})\$(\d{1,3})\$(\d{1,3})\$([A-Za-z0-9_-]+)\$([A-Za-z0-9_-]+)")


def hash_password(password: str) -> str:
    """``scrypt$N$r$p$salt$hash``, with a salt of its own."""
    salt = os.urandom(_SALT_BYTES)
    numbers = "$".join(map(str, _COST))
    return f"{PREFIX}{numbers}${_encode(salt)}${_encode(_scrypt(password, salt, _COST))}"


def check_hash(text: str) -> None:
    """ValueError where ``verify_password`` could not use it."""
    verify_password("", text)


def verify_password(password: str, hashed: str) -> bool:
    """Whether ``hashed`` was made from ``password``; takes the same time either way. ValueError for no such hash."""
    match = _FORM.fullmatch(hashed)
    if match is None:
        raise ValueError("not a hash of the form scrypt$N$r$p$salt$hash")
    made = _scrypt(password, _decode(match[4]), (int(match[1]), int(match[2]), int(match[3])))
    return hmac.compare_digest(made, _decode(match[5]))


def _scrypt(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    number, block, lanes = cost
    return hashlib.scrypt(
        password.encode(), salt=salt, n=number, r=block, p=lanes, maxmem=_MEMORY_BYTES_MAX, dklen=_HASH_BYTES
    )


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


if __name__ == "__main__":
    password = getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
    sys.stdout.write(f"{hash_password(password)}\n")
