"""Who asks, and whether they may: users with passwords, clients with tokens, certificates; each with a role.

A route declares what it takes (``Access``). Passwords and tokens that are wrong make their address wait, and no other.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import math
import os
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from service.herder.api import Signature
from service.rest.bodies import error_answer
from service.rest.connections import counted_address
from service.rest.passwords import PREFIX, PasswordHash, verify_password
from service.rest.routes import Access, route_of

TOKEN_PREFIX = "sha256$"  # noqa: S105 - how a digest is marked, no secret
_DIGEST = re.compile("[0-9a-fA-F]{64}")
CHECKS_MAX, CHECKS_PER_ADDRESS_MAX = 64, 8
"""Passwords that may wait for their check: each takes some fifty milliseconds, and anyone may send some."""
FAILURES_FREE = 5
"""Wrong passwords and tokens from one address before the next has to wait."""
WAIT_SECONDS_MAX = 60.0
FORGOTTEN_AFTER_SECONDS = 600.0
"""Without a wrong one from an address."""
ADDRESSES_MAX = 10_000
"""Addresses, and proofs that were found right, that are remembered; the oldest make room."""


class TooManyAttemptsError(Exception):
    """A password or token is not looked at, because too many from its address were wrong or wait to be checked."""

    def __init__(self, wait_seconds: float) -> None:
        """For how long the client has to wait."""
        super().__init__(f"wait {wait_seconds:g} s")
        self.wait_seconds = wait_seconds


class Proof(StrEnum):
    """How clients may prove who they are; the words of ``rest.auth``."""

    NONE = "none"
    BASIC = "basic"
    BEARER = "bearer"


class Role(StrEnum):
    """What a principal may do: ``read`` asks and changes nothing, ``admin`` does both."""

    READ = "read"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who asks: the name of a user, of a token or of a certificate, and the role that it has."""

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


@dataclass(slots=True)
class Attempts:
    """Slows down guessing, by address: after some wrong proofs each further one doubles the wait for the next.

    Right ones do not shorten it: who has one account may try to guess another's.
    """

    now: Callable[[], float] = time.monotonic
    """In seconds; only differences count."""
    _failures: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict)
    """How many, and when the last was."""

    def wait_seconds(self, address: str) -> float:
        """How long nothing from this address is looked at; 0 mostly."""
        count, last = self._failures.get(address, (0, 0.0))
        if count <= FAILURES_FREE:
            return 0.0
        return max(0.0, last + min(WAIT_SECONDS_MAX, 2.0 ** min(count - FAILURES_FREE - 1, 10)) - self.now())

    def note_failure(self, address: str) -> None:
        """Count a wrong password or token from this address."""
        now = self.now()
        count, last = self._failures.pop(address, (0, now))
        self._failures[address] = (1 if now - last > FORGOTTEN_AFTER_SECONDS else count + 1, now)
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)


class Credentials:
    """Checks what an ``Authorization`` header says, in the same time whether the name or the secret is wrong."""

    def __init__(
        self, *, users: Mapping[str, Credential], tokens: Mapping[str, Credential], attempts: Attempts | None = None
    ) -> None:
        """Hashes are checked in a thread: one takes some fifty milliseconds on purpose."""
        self._users = dict(users)
        self._tokens = [(_token_digest(held.secret), Principal(name, held.role)) for name, held in tokens.items()]
        self._hashing = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rest-password")
        self._nobody = Credential(Role.READ, next((held.secret for held in users.values() if held.is_hashed), "-"))
        """Stands in for a name that is not there: its check must take as long."""
        self._attempts = attempts or Attempts()
        self._waiting: Counter[str] = Counter()
        """Checks of passwords by the address they come from."""
        self._key = os.urandom(32)
        self._proven: dict[str, bytes] = {}
        """Digest of the password that was last found right, by user, so that only the first request is slow."""
        self._known: OrderedDict[tuple[str, bytes], Principal] = OrderedDict()
        """By address and digest of the header: who has shown it from there is not kept waiting by others' guesses."""

    def close(self) -> None:
        """End the thread that checks passwords; called once nothing listens any more."""
        self._hashing.shutdown(wait=False, cancel_futures=True)

    async def find(self, authorization: str, *, address: str) -> Principal | None:
        """Whose header this is; None for nobody's. Raises ``TooManyAttemptsError``."""
        key = address, hmac.digest(self._key, authorization.encode(errors="surrogateescape"), "sha256")
        known = self._known.get(key)
        if known is not None:
            self._known.move_to_end(key)
            return known
        if wait := self._attempts.wait_seconds(address):
            raise TooManyAttemptsError(wait)
        found = await self._find(authorization, address)
        if found is None:
            self._attempts.note_failure(address)
            return None
        self._known[key] = found
        if len(self._known) > ADDRESSES_MAX:
            self._known.popitem(last=False)
        return found

    async def _find(self, authorization: str, address: str) -> Principal | None:
        scheme, _, value = authorization.partition(" ")
        match scheme.lower():
            case Proof.BASIC:
                return await self._user(value.strip(), address)
            case Proof.BEARER:
                return self._token(value.strip())
            case _:
                return None

    async def _user(self, encoded: str, address: str) -> Principal | None:
        try:
            name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
        except ValueError:
            # No base64, not even ASCII, or no UTF-8 in it.
            return None
        if not colon:
            return None
        held = self._users.get(name, self._nobody)
        if not held.is_hashed:
            is_right = hmac.compare_digest(password.encode(), held.secret.encode())
        else:
            is_right = await self._is_hashed_from(name, password, held, address)
        return Principal(name, held.role) if is_right and name in self._users else None

    async def _is_hashed_from(self, name: str, password: str, held: Credential, address: str) -> bool:
        digest = hmac.digest(self._key, password.encode(), "sha256")
        if hmac.compare_digest(self._proven.get(name, b""), digest):
            return True
        if self._waiting[address] >= CHECKS_PER_ADDRESS_MAX or self._waiting.total() >= CHECKS_MAX:
            raise TooManyAttemptsError(1.0)
        self._waiting[address] += 1
        try:
            loop = asyncio.get_running_loop()
            is_right = await loop.run_in_executor(self._hashing, verify_password, password, held.secret)
        finally:
            self._waiting -= Counter((address,))
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


PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)
ANYONE = Principal("anonymous", Role.ADMIN)
_GROUP = Principal("worker", Role.ADMIN)


_CHALLENGES = {Proof.BASIC: 'Basic realm="headrace", charset="UTF-8"', Proof.BEARER: 'Bearer realm="headrace"'}


def authenticating(credentials: Credentials, proofs: Collection[Proof]) -> Middleware:
    """401 where nobody is known, 403 where the role does not do, 429 for who guesses.

    Without ``proofs`` everyone may do everything.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = route_of(request)
        access = Access.READ if route is None else route.access
        if access is Access.INTERNAL:
            # The herder demands a signature and checks it: it has the key.
            if Signature.of(request.headers) is not None:
                request[PRINCIPAL] = _GROUP
            return await handler(request)
        try:
            principal = await _principal(request, credentials, proofs)
        except TooManyAttemptsError as error:
            if access is not Access.OPEN:
                return _too_many(request, error)
            principal = None
        if principal is not None:
            request[PRINCIPAL] = principal
        if access is Access.OPEN:
            return await handler(request)
        if principal is None:
            return _unauthorized(proofs)
        if access is not Access.READ and principal.role is not Role.ADMIN:
            return error_answer(403, f"{principal.name} may read only; this needs the role admin")
        return await handler(request)

    return middleware


async def _principal(request: web.Request, credentials: Credentials, proofs: Collection[Proof]) -> Principal | None:
    if not proofs:
        return _by_certificate(request) or ANYONE
    authorization = request.headers.get("Authorization", "")
    if authorization.partition(" ")[0].lower() not in proofs:
        return None
    return await credentials.find(authorization, address=counted_address(request.get_extra_info("peername")))


def _by_certificate(request: web.Request) -> Principal | None:
    """Whoever shows a certificate that the listener trusts, by its common name."""
    certificate = request.get_extra_info("peercert")
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return Principal(names[0] if names else "certificate", Role.ADMIN)


def _unauthorized(proofs: Collection[Proof]) -> web.Response:
    kinds = {Proof.BASIC: "a user and password", Proof.BEARER: "a token"}
    shown = " or ".join(kinds[proof] for proof in proofs)
    answer = error_answer(401, f"This needs {shown} that the worker knows (rest.auth)")
    for proof in proofs:
        answer.headers.add("WWW-Authenticate", _CHALLENGES[proof])
    return answer


def _too_many(request: web.Request, error: TooManyAttemptsError) -> web.Response:
    seconds = math.ceil(error.wait_seconds)
    text = f"Too many wrong passwords or tokens came from {request.remote}: the next is looked at in {seconds} s"
    return error_answer(429, text, headers={"Retry-After": str(seconds)})
