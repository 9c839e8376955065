"""Headers that browsers obey: which pages of others may ask (off by default), and what the configuration adds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from fetchers.sdk import Clock
from service.rest.bodies import error_answer

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS_BY_DEFAULT = ("GET", "POST", "HEAD")
_ALLOWED_HEADERS = "X-Requested-With,Content-Type,Accept,Origin,Authorization"
_PREFLIGHT_AGE_SECONDS = "1800"
_RULE = re.compile(r"(setDate|addDate|set|add)\s+([!#$%&'*+.^_`|~0-9A-Za-z-]+):\s*([^\r\n]*)")


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


def answering_browsers(cross_origin: CrossOrigin, rules: Sequence[HeaderRule], *, clock: Clock) -> Middleware:
    """CORS, configured headers, and no changes by pages that are not allowed to ask."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if origin is not None and request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            answer: web.StreamResponse = _preflight(cross_origin, origin)
        elif _is_forged(request, cross_origin):
            answer = error_answer(403, f"Pages of {origin} may not change anything (access.control.allow.origin)")
        else:
            answer = await handler(request)
        if origin is not None:
            answer.headers.update(cross_origin.headers(origin))
        for rule in rules:
            _apply(rule, answer, now=clock.now())
        return answer

    return middleware


def _is_forged(request: web.Request, cross_origin: CrossOrigin) -> bool:
    """A change that a page of another site lets a browser ask for: it needs no answer to do harm."""
    is_foreign = request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}
    return (
        is_foreign and request.method not in SAFE_METHODS and not cross_origin.allows(request.headers.get("Origin", ""))
    )


def _preflight(cross_origin: CrossOrigin, origin: str) -> web.Response:
    if not cross_origin.allows(origin):
        return web.Response()
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
