"""The registry client against a small HTTP server that behaves as badly as it is told to."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from aiohttp import web

from fetchers.sdk.reach import AllowedAddresses
from service.registry import (
    IncompatibleSchema,
    RegistryClient,
    RegistryFatal,
    RegistryRetriable,
    RegistrySettings,
    SchemaNotFound,
    UnusableSchema,
)

SCHEMA = '{"type":"record","name":"A","fields":[{"name":"x","type":"long"}]}'
Reply = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass
class FakeRegistry:
    """A function from request to response, and what was asked."""

    url: str = ""
    reply: Reply = field(default=lambda _: never())
    asked: list[str] = field(default_factory=list)
    authorization: str | None = None


async def never() -> web.StreamResponse:
    """No answer was expected to be needed."""
    raise AssertionError


def json_reply(status: int, body: object) -> Reply:
    """Always the same answer."""

    async def reply(_: web.BaseRequest) -> web.StreamResponse:
        return web.json_response(body, status=status)

    return reply


@asynccontextmanager
async def fake_registry(reply: Reply) -> AsyncIterator[FakeRegistry]:
    """A server on a free port of loopback."""
    fake = FakeRegistry(reply=reply)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        fake.asked.append(f"{request.method} {request.raw_path}")
        fake.authorization = request.headers.get("Authorization")
        return await fake.reply(request)

    server = web.ServerRunner(web.Server(handle))
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    host, port = server.addresses[0][:2]
    fake.url = f"http://{host}:{port}"
    try:
        yield fake
    finally:
        await server.cleanup()


@asynccontextmanager
async def client_of(*fakes: FakeRegistry, **options: object) -> AsyncIterator[RegistryClient]:
    """A client of these servers."""
    settings = RegistrySettings(urls=tuple(fake.url for fake in fakes), request_seconds_max=120.0)
    async with RegistryClient(replace(settings, **options)) as client:  # type: ignore[arg-type]
        yield client


async def test_ids_are_remembered_and_failures_are_not() -> None:
    """A schema is registered by one request; a failed request is made again."""
    async with fake_registry(json_reply(500, {"message": "ill"})) as fake, client_of(fake) as client:
        with pytest.raises(RegistryRetriable, match="500 ill"):
            await client.register("t-value", SCHEMA)
        fake.reply = json_reply(200, {"id": 7})
        assert await client.register("t-value", SCHEMA) == 7
        assert await client.register("t-value", SCHEMA) == 7
        fake.reply = json_reply(200, {"schema": SCHEMA})
        assert await client.by_id(7) == SCHEMA
        assert await client.by_id(7) == SCHEMA
        assert fake.asked == [
            "POST /subjects/t-value/versions",
            "POST /subjects/t-value/versions",
            "GET /schemas/ids/7",
        ]


@pytest.mark.parametrize("status", [408, 429, 500, 503])
async def test_an_ill_registry_is_passed_over(status: int) -> None:
    """While one URL is ill or dead the next is asked, and stays the first to be asked."""
    async with (
        fake_registry(json_reply(status, {})) as ill,
        fake_registry(json_reply(200, {"id": 1})) as well,
        client_of(FakeRegistry(url="http://127.0.0.1:1"), ill, well) as client,
    ):
        assert await client.register("a", SCHEMA) == 1
        assert await client.register("b", SCHEMA) == 1
        assert len(ill.asked) == 1
        assert len(well.asked) == 2


async def test_a_registry_that_is_down_is_retriable() -> None:
    """With no URL answering every call says so, naming the URLs."""
    async with client_of(FakeRegistry(url="http://127.0.0.1:1")) as client:
        for call in (client.register("a", SCHEMA), client.check_compatible("a", SCHEMA), client.by_id(1)):
            with pytest.raises(RegistryRetriable, match=r"http://127\.0\.0\.1:1"):
                await call


async def test_a_silent_registry_is_given_up() -> None:
    """A registry that takes the request and never answers costs the time limit, no more."""
    hold = asyncio.Event()

    async def silent(_: web.BaseRequest) -> web.StreamResponse:
        await hold.wait()
        return web.Response()

    async with fake_registry(silent) as fake, client_of(fake, request_seconds_max=0.2) as client:
        with pytest.raises(RegistryRetriable, match="Timeout"):
            await client.latest("a")
        hold.set()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"is_compatible": False, "messages": ["field x: no default"]}, "field x: no default"),
        ({"is_compatible": False}, "compatibility level refuses it"),
        ({}, "compatibility level refuses it"),
    ],
)
async def test_an_incompatible_schema_is_refused_with_the_reason(body: object, reason: str) -> None:
    """Only a clear yes is a yes; what the registry says against the schema is passed on."""
    async with fake_registry(json_reply(200, body)) as fake, client_of(fake) as client:
        with pytest.raises(IncompatibleSchema, match=reason):
            await client.check_compatible("a", SCHEMA)


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (409, {"causes": [{"description": "no default", "context": "/fields/1"}]}, "no default at /fields/1"),
        (409, {}, "compatibility level refuses it"),
        (404, {"title": "no such page"}, "compatibility level refuses it"),
        (200, {"version": "2"}, "compatibility level refuses it"),
    ],
)
async def test_apicurio_is_asked_for_the_reasons_that_it_leaves_out(status: int, body: object, reason: str) -> None:
    """By a dry run, which registers nothing; whatever it answers, no stays no."""

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        if "/apis/ccompat/" in request.path:
            return web.json_response({"is_compatible": False})
        return web.json_response(body, status=status)

    async with fake_registry(reply) as fake:
        settings = RegistrySettings(urls=(f"{fake.url}/apis/ccompat/v7",))
        async with RegistryClient(settings) as client:
            with pytest.raises(IncompatibleSchema, match=reason):
                await client.check_compatible("a/b", SCHEMA)
    assert fake.asked[1:] == ["POST /apis/registry/v3/groups/default/artifacts/a%2Fb/versions?dryRun=true"]


async def test_a_new_subject_takes_any_schema() -> None:
    """A subject without versions has nothing to be incompatible with."""
    async with (
        fake_registry(json_reply(404, {"error_code": 40401, "message": "no"})) as fake,
        client_of(fake) as client,
    ):
        await client.check_compatible("a", SCHEMA)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(409, IncompatibleSchema), (40401, SchemaNotFound), (401, RegistryFatal), (42201, RegistryFatal)],
)
async def test_refusals_are_fatal(code: int, kind: type[RegistryFatal]) -> None:
    """A conflict, an unknown subject, wrong credentials and invalid schemas do not pass by waiting."""
    reply = json_reply(int(str(code)[:3]), {"error_code": code, "message": "because"})
    async with fake_registry(reply) as fake, client_of(fake) as client:
        with pytest.raises(kind, match="because"):
            await client.register("a", SCHEMA)


@pytest.mark.parametrize("body", [{"message": "because"}, {"error_code": 404, "message": "because"}])
async def test_a_404_of_a_wrong_address_says_nothing_of_a_schema(body: object) -> None:
    """Of a proxy, or a registry under another path: only the registry's own codes say that an id is unknown."""
    async with fake_registry(json_reply(404, body)) as fake, client_of(fake) as client:
        with pytest.raises(RegistryFatal, match="because") as raised:
            await client.by_id(1)
    assert raised.type is RegistryFatal


async def test_without_auto_registration_schemas_are_only_looked_up() -> None:
    """`auto.register.schemas=false` never writes to the registry."""
    async with (
        fake_registry(json_reply(200, {"id": 3})) as fake,
        client_of(fake, is_auto_registered=False) as client,
    ):
        assert await client.register("a", SCHEMA) == 3
        assert fake.asked == ["POST /subjects/a"]


async def test_the_latest_version_must_be_the_schema_itself() -> None:
    """`use.latest.version` never lets records written with one schema carry the number of another."""
    other = SCHEMA.replace("long", "int")
    body = {"id": 9, "version": 2, "subject": "a", "schema": SCHEMA.replace(",", ", ")}
    async with fake_registry(json_reply(200, body)) as fake, client_of(fake, is_latest_used=True) as client:
        assert await client.register("a", SCHEMA) == 9
        with pytest.raises(RegistryFatal, match=r"contract\.schema=registry:a"):
            await client.register("a", other)


async def test_only_plain_avro_is_used() -> None:
    """A Protobuf schema, or one made of several, is refused instead of misread."""
    async with fake_registry(json_reply(200, {"schema": "x", "schemaType": "PROTOBUF"})) as fake:
        async with client_of(fake) as client:
            with pytest.raises(UnusableSchema, match="PROTOBUF"):
                await client.by_id(1)
        fake.reply = json_reply(200, {"schema": SCHEMA, "references": [{}]})
        async with client_of(fake) as client:
            with pytest.raises(UnusableSchema, match="1 references"):
                await client.by_id(1)


async def test_subjects_are_escaped_and_credentials_sent() -> None:
    """A subject with slashes, blanks or umlauts stays one path segment; user and password go in the header."""
    async with (
        fake_registry(json_reply(200, {"id": 3})) as fake,
        client_of(fake, logins=(("u", "p:w"),)) as client,
    ):
        await client.register("a/b ü?", SCHEMA)
        assert fake.asked == ["POST /subjects/a%2Fb%20%C3%BC%3F/versions"]
        assert fake.authorization == "Basic " + base64.b64encode(b"u:p:w").decode()


async def test_credentials_of_one_url_are_not_sent_to_another() -> None:
    """Where the first does not answer, the second is asked without them."""
    async with (
        fake_registry(json_reply(500, {"message": "ill"})) as first,
        fake_registry(json_reply(200, {"id": 3})) as second,
        client_of(first, second, logins=(("u", "p:w"), None)) as client,
    ):
        await client.register("a", SCHEMA)
        assert first.authorization == "Basic " + base64.b64encode(b"u:p:w").decode()
        assert second.authorization is None


@pytest.mark.parametrize("is_foreign", [True, False])
async def test_a_registry_that_a_connector_names_is_where_it_may_be(*, is_foreign: bool) -> None:
    """Whoever may write a config asks no internal address by it; the worker's own registry may be anywhere."""
    async with fake_registry(json_reply(200, {"id": 3})) as fake:
        for url in (fake.url, fake.url.replace("127.0.0.1", "localhost")):
            settings = RegistrySettings(urls=(url,), is_foreign=is_foreign)
            async with RegistryClient(settings, AllowedAddresses(is_internal_free=False)) as client:
                if is_foreign:
                    with pytest.raises(RegistryFatal, match=r"connector\.allowed\.addresses"):
                        await client.register("a", SCHEMA)
                else:
                    assert await client.register("a", SCHEMA) == 3
    assert len(fake.asked) == (0 if is_foreign else 2)


async def test_an_endless_answer_is_cut() -> None:
    """An answer without end is refused before it fills the memory."""

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65_536)

    async with fake_registry(endless) as fake, client_of(fake) as client:
        with pytest.raises(RegistryFatal, match="bytes"):
            await client.by_id(1)


async def test_an_answer_that_is_no_registrys_is_fatal_not_a_crash() -> None:
    """A proxy's HTML page is reported as a refusal with its beginning."""

    async def page(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=403, text="<html>forbidden</html>")

    async with fake_registry(page) as fake, client_of(fake) as client:
        with pytest.raises(RegistryFatal, match="<html>forbidden"):
            await client.by_id(1)
        fake.reply = json_reply(200, ["no object"])
        with pytest.raises(RegistryFatal, match="no object"):
            await client.register("a", SCHEMA)
