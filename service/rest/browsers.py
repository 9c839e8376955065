"""What web pages may ask of a worker, and the headers that browsers obey.

A browser lets any page send requests to any address that it can reach, loopback addresses included. Two things tell
such a request from one of a tool. ``Origin`` (RFC 6454) names the page's site. ``Host`` is the name the browser
believes to talk to: a page that has its own name resolve to this worker's address (DNS rebinding) becomes of one
origin with it, but cannot change that name. So a worker answers only to names that are its own, with 421
(RFC 9110, 15.5.20) otherwise, and only to pages of such a name or of an origin that the configuration allows.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Self
from urllib.parse import urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fetchers.sdk import Clock
from service.config.listeners import Listener
from service.rest.bodies import error_answer

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS_BY_DEFAULT = ("GET", "POST", "HEAD")
_ALLOWED_HEADERS = "X-Requested-With,Content-Type,Accept,Origin,Authorization"
_PREFLIGHT_AGE_SECONDS = "1800"
_RULE = re.compile(r"(setDate|addDate|set|add)\s+([!#$%&'*+.^_`|~0-9A-Za-z-]+):\s*([^\r\n]*)")


_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_SHOWN_MAX = 80
"""Characters of a client's header that are shown in the text of a refusal."""


@dataclass(frozen=True, slots=True)
class Authority:
    """A host and, where it is given, a port: what ``Host`` holds (RFC 9110, 7.2)."""

    host: str
    """In lower case, without the dot that may end a name; an address without brackets, in its shortest form."""
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """None for what is no host and port: several of them, user names, addresses that only some systems read."""
        try:
            parts = urlsplit(f"//{text}")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return None
        if parts.netloc != text or "@" in text:
            return None
        if (address := _address(host)) is not None:
            return cls(str(address), port)
        name = host.removesuffix(".")
        # The last label of a name is never a number (RFC 3696, 2): that would be an address in another spelling.
        is_name = _NAME.fullmatch(name) and not name.rpartition(".")[2].isdecimal()
        return cls(name, port) if is_name and "[" not in text else None

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """The IP address, where the host is one."""
        return _address(self.host)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Under which names a worker may be asked. Ports do not count: those of containers and proxies differ."""

    listeners: tuple[Listener, ...] = ()
    machine: tuple[str, ...] = ()
    """What this machine is called, and what the worker advertises."""
    allowed: tuple[Authority, ...] = ()
    """``rest.allowed.hosts``: names of proxies; one with a port is meant with that port only."""
    is_any_allowed: bool = False
    """``rest.allowed.hosts=*``."""

    def holds(self, text: str) -> bool:
        """Whether ``text``, from a ``Host`` header, is one of them."""
        if self.is_any_allowed:
            return True
        asked = Authority.parse(text)
        if asked is None:
            return False
        if any(each.host == asked.host and each.port in {None, asked.port} for each in self.allowed):
            return True
        if asked.address is not None:
            # Whoever asks for an address has not been led here by a name.
            return any(self._listens_at(each, asked.address) for each in self.listeners)
        names = {name.lower().removesuffix(".") for name in self.machine} if self._is_reached_by_others else set()
        return asked.host in {"localhost", *names, *(each.host.lower() for each in self.listeners)}

    def is_of_proxy(self, origin: str) -> bool:
        """Whether an origin is that of a page served under one of ``allowed``, by a proxy before this worker."""
        site = _site(origin)
        return site is not None and any(
            each.host == site[1] and (each.port or _PORTS[site[0]]) == site[2] for each in self.allowed
        )

    @property
    def _is_reached_by_others(self) -> bool:
        return any(not each.is_loopback for each in self.listeners)

    @staticmethod
    def _listens_at(listener: Listener, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        if listener.is_loopback:
            return address.is_loopback
        # Behind network address translation a worker does not know its own addresses.
        return listener.is_everywhere or _address(listener.host) == address

    def __str__(self) -> str:
        """For the text of a refusal."""
        hosts = dict.fromkeys(
            f"[{each.host}]" if ":" in each.host else each.host for each in self.listeners if not each.is_everywhere
        )
        names = ["localhost", *(hosts or {"its IP address": None}), *(each.host for each in self.allowed)]
        return ", ".join(dict.fromkeys(names))


def parse_allowed_hosts(items: Iterable[str]) -> tuple[tuple[Authority, ...], bool]:
    """``rest.allowed.hosts``: the names, and whether any name will do; ValueError names what is neither."""
    found = []
    for item in items:
        authority = Authority.parse(item)
        if authority is None and item != "*":
            raise ValueError(f"Expected HOST, HOST:PORT or *, found '{item}'")
        found += [authority] if authority is not None else []
    return tuple(found), "*" in items


def _site(origin: str) -> tuple[str, str, int] | None:
    """Scheme, host and port of an origin; None for ``null`` and for what is none."""
    scheme, colon, rest = origin.partition("://")
    authority = Authority.parse(rest) if colon and scheme.lower() in _PORTS else None
    return None if authority is None else (scheme.lower(), authority.host, authority.port or _PORTS[scheme.lower()])


def is_same_site(origin: str, host: str) -> bool:
    """Whether a page's origin is the host that it asks. A proxy may have taken off TLS, so that the schemes differ."""
    site, asked = _site(origin), Authority.parse(host)
    return site is not None and asked is not None and site[1:] == (asked.host, asked.port or _PORTS[site[0]])


@dataclass(frozen=True, slots=True)
class CrossOrigin:
    """Whose pages may ask, and by which methods."""

    origins: tuple[str, ...] = ()
    methods: tuple[str, ...] = METHODS_BY_DEFAULT

    def allows(self, origin: str) -> bool:
        """Whether a page of that origin may read answers."""
        return "*" in self.origins or origin in self.origins

    def headers(self, origin: str) -> Mapping[str, str]:
        """What tells a browser so; with credentials only for origins that are named."""
        if not self.allows(origin):
            return {}
        named = {"Access-Control-Allow-Credentials": "true"} if origin in self.origins else {}
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin", **named}


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """One header of every answer."""

    action: str
    name: str
    value: str

    def text(self, now: datetime) -> str:
        """What is sent; a date is given in milliseconds from now."""
        if not self.action.endswith("Date"):
            return self.value
        return format_datetime(now + timedelta(milliseconds=int(self.value)), usegmt=True)


def parse_header_rules(text: str) -> tuple[HeaderRule, ...]:
    """``[action] [name]: [value], …``; a rule with a comma in it stands in double quotes. ValueError names the bad."""
    rules = []
    for quoted, plain in re.findall(r'\s*"([^"]*)"|([^,]+)', text):
        rule = (quoted or plain).strip()
        if not rule:
            continue
        match = _RULE.fullmatch(rule)
        if match is None or ("Date" in match[1] and not match[3].strip().isdecimal()):
            raise ValueError(f"Expected '[set|add|setDate|addDate] NAME: VALUE', found '{rule}'")
        rules.append(HeaderRule(match[1], match[2], match[3].strip()))
    return tuple(rules)


def answering_browsers(
    names: OwnNames, cross_origin: CrossOrigin, rules: Sequence[HeaderRule], *, clock: Clock
) -> Middleware:
    """421 for a name that is not the worker's, 403 for pages that may not ask; CORS and the configured headers."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        answer: web.StreamResponse | None = _refusal(request, names, cross_origin)
        if answer is None and origin is not None and _is_preflight(request):
            answer = _preflight(cross_origin, origin)
        if answer is None:
            answer = await handler(request)
        if origin is not None:
            answer.headers.update(cross_origin.headers(origin))
        for rule in rules:
            _apply(rule, answer, now=clock.now())
        return answer

    return middleware


def _refusal(request: web.Request, names: OwnNames, cross_origin: CrossOrigin) -> web.Response | None:
    # The authority of a target in absolute form goes before Host (RFC 9112, 3.2.2); a worker answers to neither alone.
    for host in (request.host, request.headers.get("Host", request.host)):
        if not names.holds(host):
            return error_answer(
                421,
                f"This worker is not '{_shown(host)}': ask it as one of {names}, "
                "or name the host in rest.allowed.hosts of the worker's configuration",
            )
    origin = request.headers.get("Origin")
    is_foreign = (
        # A browser that tells no Origin with a change still says that another site asked for it.
        request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"} and request.method not in SAFE_METHODS
        if origin is None
        else not is_same_site(origin, request.host) and not names.is_of_proxy(origin)
    )
    if is_foreign and not cross_origin.allows(origin or ""):
        page = "another site" if origin is None else f"'{_shown(origin)}'"
        return error_answer(
            403,
            f"Web pages of {page} may not ask this worker: only those of its own host may, "
            "and of origins that access.control.allow.origin of its configuration names",
        )
    return None


def _shown(text: str) -> str:
    return text[:_SHOWN_MAX].encode("ascii", "backslashreplace").decode()


def _is_preflight(request: web.Request) -> bool:
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def _preflight(cross_origin: CrossOrigin, origin: str) -> web.Response:
    if not cross_origin.allows(origin):
        return web.Response()  # A page of the worker's own host, which needs no permission.
    return web.Response(
        headers={
            "Access-Control-Allow-Methods": ",".join(cross_origin.methods),
            "Access-Control-Allow-Headers": _ALLOWED_HEADERS,
            "Access-Control-Max-Age": _PREFLIGHT_AGE_SECONDS,
        }
    )


def _apply(rule: HeaderRule, answer: web.StreamResponse, *, now: datetime) -> None:
    if rule.action.startswith("set"):
        answer.headers[rule.name] = rule.text(now)
    else:
        answer.headers.add(rule.name, rule.text(now))
