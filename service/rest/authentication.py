"""Who asks, and whether they may: read-only or admin, by what the route declares."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from service.herder.api import Signature
from service.rest.bodies import error_answer
from service.rest.credentials import Credentials, Principal, Role
from service.rest.routes import Access, route_of

PRINCIPAL: web.RequestKey[Principal] = web.RequestKey("principal", Principal)
ANYONE = Principal("anonymous", Role.ADMIN)
_GROUP = Principal("worker", Role.ADMIN)


class Proof(StrEnum):
    """How clients may prove who they are; the words of ``rest.auth``."""

    NONE = "none"
    BASIC = "basic"
    BEARER = "bearer"


_CHALLENGES = {Proof.BASIC: 'Basic realm="headrace", charset="UTF-8"', Proof.BEARER: 'Bearer realm="headrace"'}


def authenticating(credentials: Credentials, proofs: Collection[Proof]) -> Middleware:
    """401 where nobody is known, 403 where the role does not do. Without ``proofs`` everyone may do everything."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = route_of(request)
        access = Access.READ if route is None else route.access
        if access is Access.INTERNAL:
            # The herder demands a signature and checks it: it has the key.
            if Signature.of(request.headers) is not None:
                request[PRINCIPAL] = _GROUP
            return await handler(request)
        principal = await _principal(request, credentials, proofs)
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
    authorization = request.headers.get("Authorization")
    scheme = (authorization or "").partition(" ")[0].lower()
    return await credentials.find(authorization) if scheme in proofs else None


def _by_certificate(request: web.Request) -> Principal | None:
    """Whoever shows a certificate that the listener trusts, by its common name."""
    certificate = request.get_extra_info("peercert")
    if not certificate:
        return None
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return Principal(names[0] if names else "certificate", Role.ADMIN)


def _unauthorized(proofs: Collection[Proof]) -> web.Response:
    answer = error_answer(401, "This needs a user and password, or a token, that the worker knows")
    for proof in proofs:
        answer.headers.add("WWW-Authenticate", _CHALLENGES[proof])
    return answer
