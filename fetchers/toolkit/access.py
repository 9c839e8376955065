"""Keys of everything that speaks HTTP to a system: who asks, by which certificates, with which header fields.

A source takes them by deriving its config from ``HttpAccessConfig``, and asks with ``auth``, ``tls`` and ``headers``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from fetchers.sdk import (
    Authorizer,
    Boolean,
    Clock,
    ConfigModel,
    FetcherConfig,
    Finding,
    HttpLimits,
    HttpUrl,
    Importance,
    Key,
    NameList,
    Secret,
    SecretMap,
    Severity,
    TlsSettings,
)
from fetchers.toolkit.auth import ApiKeyAuth, BasicAuth, BearerAuth, ClientCredentials, OAuth2Auth
from fetchers.toolkit.rate_limits import RateWindow

_AUTH = Key(group="Authentication")
_TLS = Key(group="TLS", importance=Importance.LOW)
_TLS_FILE = Key(group="TLS", importance=Importance.LOW, is_path=True)
_RHYTHM = Key(group="Rhythm", importance=Importance.LOW)
_LIMITS = Key(group="Limits", importance=Importance.LOW)
_RATE = re.compile(r"([1-9]\d{0,8})/([smhd])\Z", re.ASCII)
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_NEEDS = {
    "none": (),
    "basic": ("http.auth.user", "http.auth.password"),
    "bearer": ("http.auth.token",),
    "api_key": ("http.auth.key",),
    "oauth2": ("http.auth.token.url", "http.auth.client.id", "http.auth.client.secret"),
}
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "origin", "user-agent"})

AuthType = Literal["none", "basic", "bearer", "api_key", "oauth2"]


class HttpAccessKeys(ConfigModel):
    """How a system on HTTP is spoken to, whatever is asked of it or brought to it."""

    http_header: Annotated[SecretMap, Field(default_factory=dict), Key(group="Request")]
    """Header fields: http.header.<name>. Their values are treated as secrets."""

    http_auth_type: Annotated[AuthType, _AUTH] = "none"
    """How the source knows who asks."""
    http_auth_user: Annotated[str | None, _AUTH] = None
    """User for basic."""
    http_auth_password: Annotated[Secret | None, _AUTH] = None
    """Password for basic."""
    http_auth_token: Annotated[Secret | None, _AUTH] = None
    """Token for bearer."""
    http_auth_key: Annotated[Secret | None, _AUTH] = None
    """Key for api_key; for basic the key that is sent as the user, without a password, where the source wants it so."""
    http_auth_key_header: Annotated[str, _AUTH] = "X-API-Key"
    """Header that carries the key, unless http.auth.key.query is given."""
    http_auth_key_query: Annotated[str | None, _AUTH] = None
    """Query field that carries the key."""
    http_auth_token_url: Annotated[HttpUrl | None, _AUTH] = None
    """Token server for oauth2 (client credentials)."""
    http_auth_client_id: Annotated[str | None, _AUTH] = None
    """Client id for oauth2."""
    http_auth_client_secret: Annotated[Secret | None, _AUTH] = None
    """Client secret for oauth2."""
    http_auth_scope: Annotated[str, _AUTH] = ""
    """Scope to ask for with oauth2."""
    http_auth_audience: Annotated[str, _AUTH] = ""
    """Audience to ask for with oauth2, where the token server wants one."""
    http_auth_secret_in_body: Annotated[Boolean, _AUTH] = False
    """Send the client's id and secret in the body of the token request in place of a Basic header."""

    http_tls_ca_file: Annotated[str | None, _TLS_FILE] = None
    """PEM file of authorities to trust, in place of the system's."""
    http_tls_certificate_file: Annotated[str | None, _TLS_FILE] = None
    """PEM file of our own certificate."""
    http_tls_key_file: Annotated[str | None, _TLS_FILE] = None
    """PEM file of the key of our own certificate."""
    http_tls_verify: Annotated[Boolean, _TLS] = True
    """Whether the source's certificate is checked."""

    def headers(self) -> dict[str, str]:
        """The header fields of ``http.header``, as they are sent."""
        return {name: value.get_secret_value() for name, value in self.http_header.items()}

    def tls(self) -> TlsSettings:
        """The authorities and certificates with which https is spoken."""
        return TlsSettings(
            ca_file=self.http_tls_ca_file,
            certificate_file=self.http_tls_certificate_file,
            key_file=self.http_tls_key_file,
            is_verified=self.http_tls_verify,
        )

    def auth(self, *, clock: Clock) -> Authorizer | None:
        """Who asks; made once for a task, since it keeps a token. What it needs is there, for there are no findings."""
        match self.http_auth_type:
            case "basic":
                if self.is_key_the_user:
                    return BasicAuth(plain(self.http_auth_key), "")
                return BasicAuth(self.http_auth_user or "", plain(self.http_auth_password))
            case "bearer":
                return BearerAuth(plain(self.http_auth_token))
            case "api_key":
                query = self.http_auth_key_query
                header = None if query else self.http_auth_key_header
                return ApiKeyAuth(plain(self.http_auth_key), header=header, query=query)
            case "oauth2":
                client = ClientCredentials(
                    token_url=self.http_auth_token_url or "",
                    client_id=self.http_auth_client_id or "",
                    client_secret=plain(self.http_auth_client_secret),
                    scope=self.http_auth_scope,
                    audience=self.http_auth_audience,
                    is_secret_in_body=self.http_auth_secret_in_body,
                )
                return OAuth2Auth(client, clock=clock, tls=self.tls())
            case "none":
                return None

    @property
    def is_key_the_user(self) -> bool:
        """Whether Basic carries a key in place of a user, and no password."""
        return self.http_auth_type == "basic" and bool(plain(self.http_auth_key))

    def access_secrets(self) -> tuple[str, ...]:
        """Texts of these keys that must show up in no message and no offset."""
        own = [value for name, value in self.headers().items() if name.lower() not in _HARMLESS_HEADERS]
        keys = (self.http_auth_password, self.http_auth_token, self.http_auth_key, self.http_auth_client_secret)
        own += map(plain, keys)
        if self.http_auth_type == "basic" and not plain(self.http_auth_password):
            own.append(self.http_auth_user or "")  # without a password the user is the key
        return tuple(text for text in own if text)

    def access_findings(self) -> Iterator[Finding]:
        """What is wrong with values of these keys that are each right by themselves."""
        for key in () if self.is_key_the_user else _NEEDS[self.http_auth_type]:
            value = getattr(self, key.replace(".", "_"))
            # Where an API takes its key for the user, the password is there and empty.
            if value is None or (not value and key != "http.auth.password"):
                yield Finding(key, None, f"Missing: http.auth.type={self.http_auth_type} needs it.")
        yield from self._user_findings()
        if self.http_tls_key_file is not None and self.http_tls_certificate_file is None:
            yield odd_value(
                "http.tls.key.file", self.http_tls_key_file, "There is no http.tls.certificate.file to go with it."
            )

    def _user_findings(self) -> Iterator[Finding]:
        """A user is shown like any other text; only a key that is given as one is hidden in every log and answer."""
        if self.http_auth_type != "basic":
            return
        user, password = self.http_auth_user, self.http_auth_password
        if self.is_key_the_user:
            for key, value in (("http.auth.user", user), ("http.auth.password", plain(password))):
                if value:
                    message = "Not sent: http.auth.key is, as a user without password. Give one or the other."
                    yield Finding(key, None, message)
        elif user and password is not None and not plain(password):
            message = (
                "Better as http.auth.key: a key that is given for the user is shown in answers and logs of the worker."
            )
            yield Finding("http.auth.user", None, message, Severity.WARNING)


class HttpAccessConfig(HttpAccessKeys, FetcherConfig):
    """How a source on HTTP is asked, whatever is asked for."""


class HttpPaceKeys(ConfigModel):
    """How often a system on HTTP is asked, and how long it may take."""

    http_rate_limits: Annotated[NameList, _RHYTHM] = ()
    """Requests allowed to all tasks of a worker with these credentials, such as 3/s,60/h (s, m, h, d).

    Where they name several limits, all of these hold for each. After a 429 all wait, with these limits or without."""
    http_timeout_connect_ms: Annotated[int, Field(ge=1), _LIMITS] = 10_000
    """Milliseconds for a connection."""
    http_timeout_read_ms: Annotated[int, Field(ge=1), _LIMITS] = 60_000
    """Milliseconds between two pieces of an answer."""
    http_timeout_total_ms: Annotated[int, Field(ge=1), _LIMITS] = 300_000
    """Milliseconds for a whole answer."""
    http_response_bytes_max: Annotated[int, Field(ge=1), _LIMITS] = 67_108_864
    """Size of a whole answer, unpacked."""

    def limits(self) -> HttpLimits:
        """What a request may cost."""
        return HttpLimits(
            connect_seconds=self.http_timeout_connect_ms / 1000,
            read_seconds=self.http_timeout_read_ms / 1000,
            total_seconds=self.http_timeout_total_ms / 1000,
            response_bytes_max=self.http_response_bytes_max,
        )

    def rate_windows(self) -> tuple[RateWindow, ...]:
        """The limits of ``http.rate.limits``: requests allowed in so many seconds."""
        found = (_RATE.match(text) for text in self.http_rate_limits)
        return tuple(RateWindow(int(match[1]), _UNIT_SECONDS[match[2]]) for match in found if match)

    def pace_findings(self) -> Iterator[Finding]:
        """What is wrong with the limits."""
        for text in self.http_rate_limits:
            if not _RATE.match(text):
                yield odd_value("http.rate.limits", text, "Expected a count per unit, such as 3/s or 60/h.")


def odd_value(key: str, value: str, message: str) -> Finding:
    """A finding about a value that is there."""
    return Finding(key, value, f"Invalid value {value} for configuration {key}: {message}")


def plain(secret: Secret | None) -> str:
    """The text of a secret; empty where there is none."""
    return "" if secret is None else secret.get_secret_value()
