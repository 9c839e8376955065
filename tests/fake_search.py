"""A stand-in for OpenSearch: the few calls that the sink makes, with the server's verdicts, and with troubles to order.

It passes the suite that the real server passes (``tests.search_suite``).
"""

from __future__ import annotations

import base64
import gzip
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

ID_BYTES_MAX = 512


@dataclass
class Index:
    """Documents by id, with the version each has; a deleted one leaves its version."""

    documents: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    is_strict: bool = False
    is_stream: bool = False


@dataclass
class FakeSearch:
    """All indices of one server, and what it does wrong."""

    indices: dict[str, Index] = field(default_factory=dict)
    templates: list[str] = field(default_factory=list)
    bulks: list[list[dict[str, Any]]] = field(default_factory=list)
    """Actions of each bulk that was carried out."""
    busy_ids: dict[str, int] = field(default_factory=dict)
    """How often a document is answered with 429."""
    statuses: list[int] = field(default_factory=list)
    """What the next bulks are answered with, undone; 0: as they deserve."""
    retry_after: str | None = None
    """That header of such an answer."""
    lost_answers: int = 0
    """How many bulks are carried out, and then the connection breaks."""
    body_bytes_max: int = 1 << 30
    login: str | None = None
    """User and password, with a colon between."""
    closed: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    """Status, kind and reason of the error of each document, and of each mapping, of an index that takes none."""
    unmade: tuple[int, str, str] | None = None
    """The same of each new index, where there are to be none."""
    mapping_page: str | None = None
    """What somebody between answers in place of a mapping."""

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
        """Serve on a free port; gives the address."""
        app = web.Application(client_max_size=1 << 30, middlewares=[self._admitted])
        app.router.add_post("/_bulk", self._bulk)
        app.router.add_put("/_index_template/{name}", self._template)
        app.router.add_put("/_data_stream/{name}", self._stream)
        app.router.add_get("/", self._nothing)
        app.router.add_route("*", "/{name}", self._index)
        app.router.add_route("*", "/{name}/_mapping", self._mapping)
        app.router.add_post("/{name}/_refresh", self._nothing)
        app.router.add_get("/{name}/_search", self._search)
        server = TestServer(app, scheme="http" if tls is None else "https")
        await server.start_server(ssl=tls)
        try:
            yield str(server.make_url("")).rstrip("/")
        finally:
            await server.close()

    @web.middleware
    async def _admitted(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Whatever is asked: who asks must be known."""
        if self.login is not None and request.headers.get("Authorization") != f"Basic {_base64(self.login)}":
            return web.json_response(_error("security_exception", "missing authentication"), status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _nothing(self, _request: web.Request) -> web.Response:
        return web.json_response({})

    async def _index(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if request.method == "PUT":
            return self._make(name, await request.json())
        if name.startswith("_"):  # a name of the server's own: all indices are there, others are no names
            return web.json_response({}, status=200 if name == "_all" else 400)
        if name not in self.indices:
            return web.json_response(_error("index_not_found_exception", f"no such index [{name}]"), status=404)
        if request.method == "DELETE":
            del self.indices[name]
        return web.json_response({})

    def _make(self, name: str, body: Any) -> web.Response:
        if _is_illegal(name):
            return web.json_response(_error("invalid_index_name_exception", f"Invalid index name [{name}]"), status=400)
        if self.unmade is not None:
            return web.json_response(_error(*self.unmade[1:]), status=self.unmade[0])
        if name in self.indices:
            return web.json_response(
                _error("resource_already_exists_exception", f"[{name}] already exists"), status=400
            )
        mappings = body.get("mappings", {})
        is_strict = mappings.get("dynamic") == "strict"
        self.indices[name] = Index(properties=dict(mappings.get("properties", {})), is_strict=is_strict)
        return web.json_response({"acknowledged": True})

    async def _mapping(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.indices:
            return web.json_response(_error("index_not_found_exception", f"no such index [{name}]"), status=404)
        if request.method == "PUT":
            if name in self.closed:
                status, *error = self.closed[name]
                return web.json_response(_error(*error), status=status)
            self.indices[name].properties |= (await request.json())["properties"]
        elif self.mapping_page is not None:
            return web.Response(text=self.mapping_page, content_type="text/html")
        properties = self.indices[name].properties
        return web.json_response({name: {"mappings": {"properties": properties} if properties else {}}})

    async def _template(self, request: web.Request) -> web.Response:
        self.templates += (await request.json())["index_patterns"]
        return web.json_response({"acknowledged": True})

    async def _stream(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self.templates:
            text = f"no matching index template found for data stream [{name}]"
            return web.json_response(_error("illegal_argument_exception", text), status=400)
        self.indices[name] = Index(is_stream=True)
        return web.json_response({"acknowledged": True})

    async def _search(self, request: web.Request) -> web.Response:
        index = self.indices[request.match_info["name"]]
        hits = [
            {"_id": name, "_version": index.versions[name], "_source": source}
            for name, source in index.documents.items()
        ]
        return web.json_response({"hits": {"hits": hits}})

    async def _bulk(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip" and body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        if self.statuses and (status := self.statuses.pop(0)):
            headers = {} if self.retry_after is None else {"Retry-After": self.retry_after}
            return web.json_response(_error("broken", "to order"), status=status, headers=headers)
        if len(body) > self.body_bytes_max:
            return web.Response(status=413)
        try:
            items = self._carried_out(body)
        except ValueError as error:
            return web.json_response(_error("illegal_argument_exception", str(error)), status=400)
        if self.lost_answers:
            self.lost_answers -= 1
            assert request.transport is not None
            request.transport.close()
        has_errors = any("error" in next(iter(item.values())) for item in items)
        return web.json_response({"took": 1, "errors": has_errors, "items": items})

    def _carried_out(self, body: bytes) -> list[dict[str, Any]]:
        assert body.endswith(b"\n")
        lines = iter(body.split(b"\n")[:-1])
        items: list[dict[str, Any]] = []
        actions: list[dict[str, Any]] = []
        for line in lines:
            action = json.loads(line)
            [(verb, told)] = action.items()
            actions.append(action)
            assert len(str(told.get("_id", "")).encode()) <= ID_BYTES_MAX
            source = b"" if verb == "delete" else next(lines)
            _demand_sound(verb, told, source)
            items.append({verb: {"_index": told["_index"], "_id": told.get("_id"), **self._done(verb, told, source)}})
        self.bulks.append(actions)
        return items

    def _done(self, verb: str, told: dict[str, Any], source: bytes) -> dict[str, Any]:
        name = told.get("_id", f"made-{sum(map(len, self.bulks))}-{len(source)}-{id(told)}")
        trouble = self._trouble(name, told["_index"])
        if trouble is not None:
            return trouble
        index = self.indices.setdefault(told["_index"], Index())
        if (verb == "create" and name in index.documents) or self._is_old(index, name, told):
            why = f"current version [{index.versions.get(name)}] is higher or equal to the one provided"
            return {"status": 409, **_error("version_conflict_engine_exception", f"[{name}]: version conflict, {why}")}
        version = told.get("version", index.versions.get(name, 0) + 1)
        if verb == "delete":
            index.versions[name] = version
            return {"status": 200 if index.documents.pop(name, None) is not None else 404, "result": "deleted"}
        try:
            document = json.loads(source)
        except ValueError:
            return {"status": 400, **_error("mapper_parsing_exception", "failed to parse")}
        if verb == "update":
            document = {**index.documents[name], **document["doc"]} if name in index.documents else document["upsert"]
        misfit = _misfit(index, document)
        if misfit is not None:
            return misfit
        index.documents[name], index.versions[name] = document, version
        return {"status": 201, "result": "created"}

    def _trouble(self, name: str, index: str) -> dict[str, Any] | None:
        if self.busy_ids.get(name):
            self.busy_ids[name] -= 1
            return {"status": 429, **_error("es_rejected_execution_exception", "rejected execution")}
        if _is_illegal(index):
            return {"status": 400, **_error("invalid_index_name_exception", f"Invalid index name [{index}]")}
        trouble = self.unmade if index not in self.indices else self.closed.get(index)
        if trouble is not None:
            status, *error = trouble
            return {"status": status, **_error(*error)}
        return None

    @staticmethod
    def _is_old(index: Index, name: str, told: dict[str, Any]) -> bool:
        return told.get("version_type") == "external" and told["version"] <= index.versions.get(name, -1)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _is_illegal(name: str) -> bool:
    signs = set(name) & set('\\/*?"<>| ,#:')
    return (
        name in {"", ".", ".."} or name != name.lower() or name[0] in "_-+" or bool(signs) or len(name.encode()) > 255
    )


def _demand_sound(verb: str, told: dict[str, Any], source: bytes) -> None:
    """What the server demands of an action when it reads the bulk: it carries out nothing of one that has another."""
    if verb in {"update", "delete"} and "_id" not in told:
        message = "an id must be provided"
        raise ValueError(message)
    if verb == "update" and not all(isinstance(each, dict) for each in json.loads(source).values()):
        message = "failed to parse field [doc]"
        raise ValueError(message)


def _misfit(index: Index, document: Any) -> dict[str, Any] | None:
    if not isinstance(document, dict):
        return {"status": 400, **_error("mapper_parsing_exception", "failed to parse")}
    for name, value in document.items():
        mapping = index.properties.get(name)
        if mapping is None and index.is_strict:
            text = f"mapping set to strict, dynamic introduction of [{name}] within [_doc] is not allowed"
            return {"status": 400, **_error("strict_dynamic_mapping_exception", text)}
        if mapping and mapping.get("type") == "long" and not isinstance(value, int | None):
            return {
                "status": 400,
                **_error("mapper_parsing_exception", f"failed to parse field [{name}] of type [long]"),
            }
    return None


def _error(kind: str, reason: str) -> dict[str, Any]:
    return {"error": {"type": kind, "reason": reason}}
