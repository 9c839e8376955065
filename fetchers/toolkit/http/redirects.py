"""Where a redirect may lead: never to another host when the request carries credentials."""

from __future__ import annotations

from collections.abc import Iterable

from yarl import URL

from fetchers.sdk.errors import Fatal

REDIRECTS_MAX = 5
STATUSES = frozenset({301, 302, 303, 307, 308})
_KEEPS_METHOD = frozenset({307, 308})
_HARMLESS_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-type",
        "if-modified-since",
        "if-none-match",
        "last-event-id",
        "user-agent",
    }
)


def has_credentials(headers: Iterable[str], *, is_authorized: bool, has_secrets: bool) -> bool:
    """Whether something in a request must not reach a stranger; an unknown header is taken for a secret."""
    return is_authorized or has_secrets or any(name.lower() not in _HARMLESS_HEADERS for name in headers)


def is_same_place(first: URL, second: URL) -> bool:
    """Same host and port; from http to https on their usual ports counts as the same, the way back does not.

    Raises ValueError where one has no proper host or port.
    """
    before, after = first.origin(), second.origin()
    if (before.host or "").lower() != (after.host or "").lower():
        return False
    is_upgrade = (before.scheme, after.scheme) == ("http", "https")
    if is_upgrade and before.is_default_port() and after.is_default_port():
        return True
    return (before.scheme, before.port) == (after.scheme, after.port)  # the usual port may stand there or not


def redirected(url: URL, location: str | None, *, place: str, carries_credentials: bool) -> URL:
    """The URL to ask instead. Raises Fatal where following would be unsafe."""
    if not location:
        message = f"{place}: redirected to nowhere"
        raise Fatal(message)
    try:
        target = url.join(URL(location, encoded=True))
        is_same = bool(target.host) and is_same_place(url, target)  # a port that is none is noticed only here
    except ValueError as error:
        message = f"{place}: redirected to something that is no URL"
        raise Fatal(message) from error
    if target.scheme not in {"http", "https"} or not target.host:
        message = f"{place}: redirected to a {target.scheme or 'nameless'} address"
        raise Fatal(message)
    if is_same:
        return target
    if carries_credentials:
        message = f"{place}: redirected to another host ({target.host}); credentials are not sent there"
        raise Fatal(message)
    if url.scheme == "https" and target.scheme == "http":
        message = f"{place}: redirected from https to http ({target.host})"
        raise Fatal(message)
    return target


def method_after(status: int, method: str, *, place: str) -> str:
    """The method of the next request; only GET and HEAD survive the redirects that change it."""
    if status in _KEEPS_METHOD or method in {"GET", "HEAD"}:
        return method
    if status == 303:  # noqa: PLR2004 - "See Other": the answer of a POST lies elsewhere
        return "GET"
    message = f"{place}: a {method} was redirected with status {status}"
    raise Fatal(message)
