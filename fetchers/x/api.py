"""How X is asked: its addresses, who asks, and the limits that its answers tell.

Facts: https://docs.x.com/x-api/fundamentals/authentication/oauth-2-0/application-only and
https://docs.x.com/x-api/fundamentals/rate-limits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus

from fetchers.sdk import (
    Authorizer,
    Clock,
    HttpAccess,
    HttpLimits,
    HttpResponse,
    RequestBudget,
    RequestOptions,
    Retriable,
    StatusTable,
)
from fetchers.toolkit.auth import BearerAuth, ClientCredentials, OAuth2Auth
from fetchers.toolkit.limit_headers import LimitHeaders
from fetchers.toolkit.rate_limits import shared_budget

STREAM_PATH = "/2/tweets/search/stream"
RULES_PATH = "/2/tweets/search/stream/rules"
SEARCH_PATH = "/2/tweets/search/recent"
_TOKEN_PATH = "/oauth2/token"  # noqa: S105 - a path
_LIMITS = LimitHeaders(remaining="x-rate-limit-remaining", reset="x-rate-limit-reset")
_listening: dict[str, str] = {}
"""The connector of this process that has an app's stream, by hash of the API's address and the app's credential."""


@dataclass(frozen=True, slots=True, repr=False)
class Account:
    """An app of X. Give ``bearer_token``, or ``consumer_key`` and ``consumer_secret`` to ask for one with."""

    base_url: str
    bearer_token: str = ""
    consumer_key: str = ""
    consumer_secret: str = ""
    silence_seconds: float = 21.0
    """A connection on which nothing comes for so long is dead."""


class XApi:
    """Asks X in the name of one app. Made once for a task, since it keeps a token and what X told of its limits."""

    def __init__(self, account: Account, *, clock: Clock) -> None:
        self._account = account
        self._clock = clock
        self._base_url = account.base_url.rstrip("/")
        self._auth: Authorizer
        if account.bearer_token:
            self._auth = BearerAuth(account.bearer_token)
        else:
            # The key and the secret are encoded before they are joined (RFC 6749 §2.3.1, and X asks for it).
            client = ClientCredentials(
                token_url=self._base_url + _TOKEN_PATH,
                client_id=quote_plus(account.consumer_key),
                client_secret=quote_plus(account.consumer_secret),
            )
            self._auth = OAuth2Auth(client, clock=clock)
        self._budgets: dict[str, RequestBudget] = {}

    @property
    def silence_seconds(self) -> float:
        """See ``Account``."""
        return self._account.silence_seconds

    def url(self, path: str) -> str:
        """The address of an endpoint."""
        return self._base_url + path

    @contextmanager
    def only_connection(self, connector: str) -> Iterator[None]:
        """Hold the one connection that X allows an app: a second one would end the first, and the first the second.

        Raises Retriable, before anything is asked of X, while another connector of this process holds it.
        """
        account = self._account
        told = f"{self._base_url} {account.bearer_token or account.consumer_key}"
        app = hashlib.sha256(told.encode()).hexdigest()
        if app in _listening:
            message = (
                f"connector {_listening[app]} of this worker has the one connection that X allows the app of this "
                "credential: put the rules of both into one connector, or give this one an app of its own"
            )
            raise Retriable(message)
        _listening[app] = connector
        try:
            yield
        finally:
            del _listening[app]

    def options(
        self, method: str, path: str, query: Mapping[str, str], *, statuses: StatusTable | None = None
    ) -> RequestOptions:
        """What a request for ``path`` is made with.

        X counts by endpoint, and tells what is left in header fields: nobody asks before the moment that it names.
        """
        account = self._account
        endpoint = f"{method} {self.url(path)}"
        if endpoint not in self._budgets:
            credential = f"{account.bearer_token or account.consumer_key} {endpoint}"
            self._budgets[endpoint] = shared_budget(credential, (), clock=self._clock, headers=_LIMITS)
        return RequestOptions(
            query=query,
            auth=self._auth,
            budget=self._budgets[endpoint],
            statuses=statuses or StatusTable(),
            limits=HttpLimits(read_seconds=account.silence_seconds),
            secrets=tuple(text for text in (account.consumer_key, account.consumer_secret) if text),
            is_page_refused=True,
        )

    async def get(self, http: HttpAccess, path: str, query: Mapping[str, str]) -> HttpResponse:
        """One answer. Raises as ``HttpAccess`` does; X's own title and detail are in the message."""
        return await http.request("GET", self.url(path), **self.options("GET", path, query))

    async def post(
        self, http: HttpAccess, path: str, body: Any, *, query: Mapping[str, str], statuses: StatusTable | None = None
    ) -> HttpResponse:
        """Send a JSON body; raises as ``get``."""
        options = self.options("POST", path, query, statuses=statuses)
        options["headers"] = {"Content-Type": "application/json"}
        options["body"] = json.dumps(body).encode()
        return await http.request("POST", self.url(path), **options)
