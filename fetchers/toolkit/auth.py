"""Ways to tell a source who asks. Secrets are sent and hidden, never said."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec

from fetchers.sdk.clock import Clock
from fetchers.sdk.errors import Fatal, Retriable
from fetchers.sdk.http import Credentials, HttpAccess, HttpLimits, StatusTable, StatusVerdict, TlsSettings

EXPIRY_MARGIN_SECONDS = 60.0
"""A token is renewed so long before its end, or at half of its life where that is shorter."""
LIFE_SECONDS_DEFAULT = 300.0
"""Life of a token whose answer does not say it (RFC 6749 §5.1 only recommends to)."""
TOKEN_BYTES_MAX = 1024 * 1024
_UNRENEWABLE_STATUSES = (400, 401, 403)


@dataclass(frozen=True, slots=True, repr=False)
class BasicAuth:
    """User and password (RFC 7617), in UTF-8."""

    user: str
    password: str

    @property
    def secrets(self) -> Sequence[str]:
        """The password, or the user who has none and so is the key, and what goes over the wire."""
        return (self.password or self.user, self._encoded())

    async def credentials(self, http: HttpAccess) -> Credentials:
        """The ``Authorization`` header of RFC 7617."""
        del http
        return Credentials(headers={"Authorization": f"Basic {self._encoded()}"})

    def refuse(self, credentials: Credentials) -> bool:
        """Nothing else can be tried."""
        del credentials
        return False

    def _encoded(self) -> str:
        return base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


@dataclass(frozen=True, slots=True, repr=False)
class BearerAuth:
    """A token given once (RFC 6750)."""

    token: str

    @property
    def secrets(self) -> Sequence[str]:
        """The token, which no message may show."""
        return (self.token,)

    async def credentials(self, http: HttpAccess) -> Credentials:
        """The ``Authorization`` header of RFC 6750."""
        del http
        return Credentials(headers={"Authorization": f"Bearer {self.token}"})

    def refuse(self, credentials: Credentials) -> bool:
        """Nothing else can be tried."""
        del credentials
        return False


@dataclass(frozen=True, slots=True, repr=False)
class ApiKeyAuth:
    """A key in a header or in the query, whichever is named."""

    key: str
    header: str | None = "X-API-Key"
    query: str | None = None

    @property
    def secrets(self) -> Sequence[str]:
        """The key, which no message may show."""
        return (self.key,)

    async def credentials(self, http: HttpAccess) -> Credentials:
        """The header, the query field, or both."""
        del http
        return Credentials(
            headers={self.header: self.key} if self.header else {},
            query={self.query: self.key} if self.query else {},
        )

    def refuse(self, credentials: Credentials) -> bool:
        """Nothing else can be tried."""
        del credentials
        return False


@dataclass(frozen=True, slots=True, repr=False)
class ClientCredentials:
    """What a client is known by at its token server (RFC 6749 §4.4)."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""
    audience: str = ""
    """Sent where it is given; some token servers ask for it."""
    is_secret_in_body: bool = False
    """Send id and secret in the body in place of a Basic header (RFC 6749 §2.3.1), for servers that want it."""


@dataclass(frozen=True, slots=True, repr=False)
class _Token:
    text: str
    renew_at: float


class _TokenAnswer(msgspec.Struct):
    access_token: str
    expires_in: float | str | None = None
    token_type: str = "bearer"  # noqa: S105 - a kind of token, not a token


class OAuth2Auth:
    """OAuth 2 client credentials: the token is fetched when needed, before it ends, and once for all who wait.

    Share one object among the tasks that use the same client: they then share the token.
    """

    def __init__(
        self,
        client: ClientCredentials,
        *,
        clock: Clock,
        limits: HttpLimits | None = None,
        tls: TlsSettings | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._limits = limits or HttpLimits(total_seconds=30.0, response_bytes_max=TOKEN_BYTES_MAX)
        self._tls = tls or TlsSettings()
        self._token: _Token | None = None
        self._lock = asyncio.Lock()

    @property
    def secrets(self) -> Sequence[str]:
        """The client's secret and the token of the moment."""
        token = (self._token.text,) if self._token else ()
        return (self._client.client_secret, *self._own().secrets, *token)

    async def credentials(self, http: HttpAccess) -> Credentials:
        """The ``Authorization`` header; asks the token server when there is no token that lasts.

        The lock is held across that one request on purpose: the others want the same token.
        """
        async with self._lock:
            token = self._token
            if token is None or token.renew_at <= self._clock.monotonic():
                self._token = token = await self._ask(http)
        return Credentials(headers={"Authorization": f"Bearer {token.text}"})

    def refuse(self, credentials: Credentials) -> bool:
        """Drop the token that was refused, unless somebody has renewed it meanwhile."""
        if self._token and credentials.headers.get("Authorization") == f"Bearer {self._token.text}":
            self._token = None
        return True

    def _own(self) -> BasicAuth:
        return BasicAuth(self._client.client_id, self._client.client_secret)

    async def _ask(self, http: HttpAccess) -> _Token:
        client = self._client
        form = {"grant_type": "client_credentials", "scope": client.scope, "audience": client.audience}
        if client.is_secret_in_body:
            form |= {"client_id": client.client_id, "client_secret": client.client_secret}
        body = urlencode({name: value for name, value in form.items() if value}).encode()
        asked = self._clock.monotonic()
        answer = await http.request(
            "POST",
            client.token_url,
            headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
            body=body,
            auth=None if client.is_secret_in_body else self._own(),
            secrets=self._own().secrets,
            limits=self._limits,
            tls=self._tls,
            statuses=StatusTable().with_verdict(StatusVerdict.FATAL, _UNRENEWABLE_STATUSES),
        )
        return _token(answer.body, asked)


def _token(body: bytes, asked: float) -> _Token:
    """The token of an answer, asked for at ``asked`` (monotonic seconds)."""
    try:
        answer = msgspec.json.decode(body, type=_TokenAnswer)
        life = LIFE_SECONDS_DEFAULT if answer.expires_in is None else float(answer.expires_in)
    except (msgspec.ValidationError, ValueError) as error:  # the cause is left out: it may quote the token
        if isinstance(error, msgspec.ValidationError):
            message = "the token server's answer has no access_token"
            raise Fatal(message) from None
        message = "the token server's answer cannot be read"
        raise Retriable(message) from None
    if answer.token_type.lower() != "bearer":
        message = "the token server gives tokens of a kind that is not bearer"
        raise Fatal(message)
    return _Token(answer.access_token, asked + max(life - EXPIRY_MARGIN_SECONDS, life / 2))
