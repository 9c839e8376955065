"""What a simulated X holds itself to, and how a request is made to fail.

Facts: X's documentation, ``x-api/fundamentals/{rate-limits,response-codes-and-errors,handling-disconnections}`` and
``x-api/posts/filtered-stream``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

STREAM_PATH = "/2/tweets/search/stream"
RULES_PATH = "/2/tweets/search/stream/rules"
SEARCH_PATH = "/2/tweets/search/recent"
TOKEN_PATH = "/oauth2/token"  # noqa: S105 - a path
PROBLEMS = "https://api.x.com/2/problems/"


class SecondConnection(StrEnum):
    """What becomes of a connection to the stream beyond those allowed."""

    REFUSED = "refused"
    """It gets 429 and ConnectionException."""
    EVICTS = "evicts"
    """It is accepted, and the oldest one is closed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Requests in each window; answered ones and refused ones count alike."""

    stream: int = 50
    rules_get: int = 450
    rules_post: int = 100
    search: int = 60
    token: int = 450
    window_seconds: float = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class XSettings:
    """One app on a simulated X. The defaults are those of an account that pays for its use."""

    consumer_key: str = "simulated consumer/key"
    consumer_secret: str = "simulated+secret%"  # noqa: S105 - opens nothing
    bearer_token: str = "AAAAsimulated%2Bbearer%3D"  # noqa: S105 - opens nothing
    access_token: str = "simulated-access-token"  # noqa: S105 - opens nothing
    access_token_secret: str = "simulated-access-secret"  # noqa: S105 - opens nothing
    is_enterprise: bool = False
    """Backfill and recovery by times; otherwise these parameters are refused."""
    keep_alive_seconds: float = 20.0
    connections_max: int = 1
    second_connection: SecondConnection = SecondConnection.REFUSED
    rules_max: int = 1000
    rule_characters_max: int = 1024
    limits: Limits = field(default_factory=Limits)
    buffer_bytes_max: int = 4 * 1024 * 1024
    """For a client that reads slowly: beyond it the connection is cut, and what was buffered is lost."""
    search_age_seconds_min: float = 10.0
    """``end_time`` of a search has to be so long ago."""
    index_seconds: float = 0.0
    """How long after its publication a post shows in searches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The answer to the next request for ``path`` that would be answered well or not: another status."""

    path: str
    status: int
    body: str | None = None
    """None: the vendor's own problem for the status."""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/problem+json"

    @property
    def text(self) -> str:
        """The body."""
        return problem(self.status) if self.body is None else self.body


_TITLES = {
    400: ("Invalid Request", "One or more parameters to your request was invalid.", "invalid-request"),
    401: ("Unauthorized", "Unauthorized", None),
    403: (
        "Client Forbidden",
        "Keys and tokens must be those of a developer App that is attached to a Project.",
        "client-forbidden",
    ),
    404: ("Not Found", "Not Found", None),
    429: ("Too Many Requests", "Too Many Requests", None),
    500: ("Internal Server Error", "Something is broken.", None),
    503: ("Service Unavailable", "Service Unavailable", None),
}


def problem(status: int, *, title: str = "", detail: str = "", kind: str | None = None, **more: object) -> str:
    """A problem as X words it; the given parts replace those of the status."""
    usual = _TITLES.get(status, ("Error", "Error", None))
    name = kind or usual[2]
    parts = {
        "title": title or usual[0],
        "detail": detail or usual[1],
        "type": PROBLEMS + name if name else "about:blank",
        "status": status,
    }
    return json.dumps(parts | more)


def too_many_connections() -> str:
    """What a connection gets while the allowed ones are taken."""
    return problem(
        429,
        title="ConnectionException",
        detail="This stream is currently at the maximum allowed connection limit.",
        kind="streaming-connection",
        connection_issue="TooManyConnections",
    )


def no_rules() -> str:
    """What a connection gets while there are no rules (status 409)."""
    return problem(
        409,
        title="ConnectionException",
        detail="You must define rules using the POST /2/tweets/search/stream/rules endpoint before connecting to "
        "filtered stream.",
        kind="streaming-connection",
        connection_issue="RuleConfigurationIssue",
    )


def operational_disconnect() -> bytes:
    """The message inside a 200 stream that says that it is over."""
    message = {
        "errors": [
            {
                "title": "operational-disconnect",
                "disconnect_type": "UpstreamOperationalDisconnect",
                "detail": "This stream has been disconnected upstream for operational reasons.",
                "type": PROBLEMS + "operational-disconnect",
            }
        ]
    }
    return json.dumps(message).encode()
