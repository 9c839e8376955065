"""Asks a Confluent-compatible schema registry (REST API v1; Apicurio's `ccompat/v7` speaks it too).

Five calls, over HTTP, with the URLs tried in turn. Answers that can never change (a schema's id, the
schema of an id) are remembered; a failure is not.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from fetchers.catalog import bound_connector, check_literal
from fetchers.sdk.reach import AddressRefusedError, AllowedAddresses
from service.registry.errors import IncompatibleSchema, RegistryFatal, RegistryRetriable, SchemaNotFound, UnusableSchema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from service.registry.settings import RegistrySettings

_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_ANSWER_BYTES_MAX = 8 * 1_048_576
_CACHE_ENTRIES_MAX = 1000
_CONNECTIONS_MAX = 8
_NOT_FOUND = 404
_NOT_FOUND_CODES = frozenset({40401, 40402, 40403})
"""What a registry says of a subject, version or schema that it has not; a wrong address answers 404 without them."""
_CONFLICT = 409
_RETRIABLE = frozenset({408, 425, 429})
_SERVER_ERROR = 500
_OK_BELOW = 300


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema (Avro, JSON text) with the number that stands for it in records."""

    id: int
    schema: str
    version: int | None = None


@dataclass(frozen=True)
class _Answer:
    status: int
    body: dict[str, Any]

    @property
    def message(self) -> str:
        return str(self.body.get("message") or self.body)


class RegistryClient:
    """One registry, however many URLs it has. Use as an async context manager."""

    def __init__(self, settings: RegistrySettings, addresses: AllowedAddresses | None = None) -> None:
        """Prepare; connects when asked.

        ``addresses``: what may be connected to where a connector's config names the registry; all when not given.
        """
        self.settings = settings
        self._addresses = addresses if addresses is not None and settings.is_foreign else AllowedAddresses()
        self._session: aiohttp.ClientSession | None = None
        self._first_url = 0
        self._ids: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._schemas: OrderedDict[int, str] = OrderedDict()

    async def __aenter__(self) -> Self:
        """Open the connection pool; no request is made yet."""
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json"}
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self.settings.request_seconds_max),
            connector=bound_connector(self._addresses, connections_max=_CONNECTIONS_MAX),
            headers=headers,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection pool."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def check_compatible(self, subject: str, schema: str) -> None:
        """Ask whether the subject would take this schema as its next version; a new subject takes any.

        Raises IncompatibleSchema with the registry's reasons, RegistryFatal, RegistryRetriable.
        """
        path = f"/compatibility/subjects/{_quoted(subject)}/versions/latest?verbose=true"
        answer = await self._ask("POST", path, {"schema": schema})
        if answer.status == _NOT_FOUND:
            return
        if answer.status == _CONFLICT or _demand(answer, subject).get("is_compatible") is not True:
            reasons = answer.body.get("messages") or await self._reasons_of_apicurio(subject, schema)
            told = reasons or [answer.body.get("message") or "its compatibility level refuses it"]
            raise IncompatibleSchema(f"subject '{subject}' does not take the schema: " + "; ".join(map(str, told)))

    async def _reasons_of_apicurio(self, subject: str, schema: str) -> list[str]:
        """What Apicurio's own API says to a dry run, since its answer in Confluent's form never holds a reason.

        Nothing is registered by it. Other registries, and an Apicurio that does not answer, give none.
        """
        base, is_apicurio, _ = self.settings.urls[self._first_url].partition("/apis/ccompat/")
        if not is_apicurio:
            return []
        url = f"{base}/apis/registry/v3/groups/default/artifacts/{_quoted(subject)}/versions?dryRun=true"
        body = {"content": {"content": schema, "contentType": "application/json"}}
        try:
            login = self._login(self._first_url)
            answer = await self._ask_one("POST", url, body, login=login, content_type="application/json")
        except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError):
            return []
        causes = answer.body.get("causes") or ()
        return [f"{cause.get('description')} at {cause.get('context')}" for cause in causes if isinstance(cause, dict)]

    async def has(self, subject: str, schema: str) -> bool:
        """Whether some version of the subject is this schema; raises RegistryFatal, RegistryRetriable."""
        answer = await self._ask("POST", f"/subjects/{_quoted(subject)}", {"schema": schema})
        if answer.status == _NOT_FOUND:
            return False
        _demand(answer, f"the schema for subject '{subject}'")
        return True

    async def register(self, subject: str, schema: str) -> int:
        """Id under which records with this schema are written, by the settings' policy; remembered.

        `auto.register.schemas`: put it there unless it is. Without: it must be there already.
        `use.latest.version`: it must *be* the latest version, since records are written with this schema
        and must not carry the number of another.
        Raises IncompatibleSchema, SchemaNotFound, RegistryFatal, RegistryRetriable.
        """
        key = (subject, schema)
        if key not in self._ids:
            _remember(self._ids, key, await self._schema_id(subject, schema))
        return self._ids[key]

    async def _schema_id(self, subject: str, schema: str) -> int:
        if self.settings.is_latest_used:
            latest = await self.latest(subject)
            if json.loads(latest.schema) != json.loads(schema):
                raise RegistryFatal(
                    f"the latest version of subject '{subject}' is not this schema; "
                    f"use contract.schema=registry:{subject}"
                )
            return latest.id
        path = f"/subjects/{_quoted(subject)}"
        if self.settings.is_auto_registered:
            path += "/versions"
        answer = await self._ask("POST", path, {"schema": schema})
        if answer.status == _CONFLICT:
            raise IncompatibleSchema(f"subject '{subject}' does not take the schema: {answer.message}")
        return int(_demand(answer, f"the schema for subject '{subject}'", fields=("id",))["id"])

    async def by_id(self, schema_id: int) -> str:
        """Schema of an id, remembered.

        Raises SchemaNotFound, UnusableSchema, RegistryFatal, RegistryRetriable.
        """
        if schema_id not in self._schemas:
            answer = await self._ask("GET", f"/schemas/ids/{schema_id}")
            body = _demand(answer, f"schema id {schema_id}", fields=("schema",))
            _remember(self._schemas, schema_id, _avro(body))
        return self._schemas[schema_id]

    async def latest(self, subject: str, *, version: int | None = None) -> RegisteredSchema:
        """Newest version of a subject, or the version given; never remembered.

        Raises SchemaNotFound, UnusableSchema, RegistryFatal, RegistryRetriable.
        """
        answer = await self._ask("GET", f"/subjects/{_quoted(subject)}/versions/{version or 'latest'}")
        body = _demand(answer, f"subject '{subject}'", fields=("id", "version", "schema"))
        return RegisteredSchema(int(body["id"]), _avro(body), int(body["version"]))

    async def _ask(self, method: str, path: str, body: dict[str, str] | None = None) -> _Answer:
        """Try every URL once, beginning with the one that answered last."""
        urls = self.settings.urls
        failures = []
        for offset in range(len(urls)):
            index = (self._first_url + offset) % len(urls)
            try:
                answer = await self._ask_one(method, urls[index] + path, body, login=self._login(index))
            except AddressRefusedError as error:
                raise RegistryFatal(f"{urls[index]}: {error}") from error
            except (aiohttp.ClientError, TimeoutError, asyncio.IncompleteReadError) as error:
                failures.append(f"{urls[index]}: {type(error).__name__} {error}".strip())
                continue
            if answer.status in _RETRIABLE or answer.status >= _SERVER_ERROR:
                failures.append(f"{urls[index]}: {answer.status} {answer.message}")
                continue
            self._first_url = index
            return answer
        raise RegistryRetriable("no schema registry answers: " + "; ".join(failures))

    def _login(self, index: int) -> tuple[str, str] | None:
        """What goes to the URL of this index, and to no other."""
        return self.settings.logins[index] if self.settings.logins else None

    async def _ask_one(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None,
        *,
        login: tuple[str, str] | None,
        content_type: str = _CONTENT_TYPE,
    ) -> _Answer:
        if self._session is None:
            raise RuntimeError("the registry client is not open")
        headers = {"Content-Type": content_type}
        if login is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(":".join(login).encode()).decode()
        check_literal(URL(url).host or "", self._addresses)
        asking = self._session.request(
            method, URL(url, encoded=True), json=body, headers=headers, allow_redirects=False
        )
        async with asking as response:
            raw = bytearray()
            async for chunk in response.content.iter_any():
                raw += chunk
                if len(raw) > _ANSWER_BYTES_MAX:
                    raise RegistryFatal(f"{url} answers with more than {_ANSWER_BYTES_MAX} bytes")
            try:
                parsed = json.loads(bytes(raw) or b"{}")
            except ValueError:
                parsed = {"message": bytes(raw[:200]).decode(errors="replace")}
            return _Answer(response.status, parsed if isinstance(parsed, dict) else {"message": str(parsed)[:200]})


def _demand(answer: _Answer, what: str, *, fields: tuple[str, ...] = ()) -> dict[str, Any]:
    if answer.status < _OK_BELOW and all(field in answer.body for field in fields):
        return answer.body
    if answer.status == _NOT_FOUND and answer.body.get("error_code") in _NOT_FOUND_CODES:
        raise SchemaNotFound(f"{what} is not in the registry: {answer.message}")
    # A success without its fields comes from something that is no registry.
    raise RegistryFatal(f"the registry refuses {what} ({answer.status}): {answer.message}")


def _avro(body: dict[str, Any]) -> str:
    kind = body.get("schemaType") or "AVRO"
    if kind != "AVRO" or body.get("references"):
        count = len(body.get("references") or ())
        message = f"only self-contained Avro schemas can be used, this one is {kind} with {count} references"
        raise UnusableSchema(message)
    return str(body["schema"])


def _remember(cache: OrderedDict[Any, Any], key: object, value: object) -> None:
    cache[key] = value
    if len(cache) > _CACHE_ENTRIES_MAX:
        cache.popitem(last=False)


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
