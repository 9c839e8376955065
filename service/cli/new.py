"""``headrace new``: writes a source or a sink of one's own that runs and passes the contract suite, to begin from."""

from __future__ import annotations

import keyword
import re
import sys
from importlib.util import find_spec
from pathlib import Path

INSTALLED = "headrace"
NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


class NewRefusedError(ValueError):
    """A name that cannot be taken, or a folder that is there already; the message says what to do."""


def run_new(kind: str, name: str, parent: Path) -> int:
    """Write it and say what to do next; the exit code: 2 where the name cannot be taken. ``kind``: of `TEMPLATES`."""
    try:
        files = written(kind, name, parent)
    except (NewRefusedError, OSError) as error:
        print(f"headrace: {error}", file=sys.stderr)
        return 2
    folder = files[0].parent
    print("\n".join(f"written: {file}" for file in files))
    launcher = _launcher()
    tested = "./headrace test FOLDER in a clone of headrace" if launcher == INSTALLED else f"{launcher} test {folder}"
    command = "validate" if kind == "sink" else "preview"
    print(f"test it:    {tested}")
    print(f"look at it: PYTHONPATH={folder} {launcher} {command} {folder / name}.properties")
    return 0


def _launcher() -> str:
    """How whoever stands in the working directory calls headrace: of a wheel, by its name on the path."""
    clone = Path(__file__).resolve().parents[2]
    if not (clone / "headrace").is_file():
        return INSTALLED
    return "./headrace" if Path.cwd() == clone else str(clone / "headrace")


def written(kind: str, name: str, parent: Path) -> list[Path]:
    """Write the folder ``name`` under ``parent``; gives its files. Raises ``NewRefusedError``, OSError."""
    if not NAME.match(name) or keyword.iskeyword(name):
        message = f"{name!r} cannot be the name of a module: take small letters, digits and _, such as my_things"
        raise NewRefusedError(message)
    folder = parent / name
    if folder.exists():
        message = f"{folder} is there already: take another name, or remove it"
        raise NewRefusedError(message)
    if find_spec(name) is not None:
        message = f"there is a Python module {name} already, which would be imported instead: take another name"
        raise NewRefusedError(message)
    files = {file.replace("@name@", name): text for file, text in TEMPLATES[kind].items()}
    folder.mkdir(parents=True)
    for file, text in files.items():
        (folder / file).write_text(_filled(text, name), encoding="utf-8")
    return [folder / file for file in files]


def _filled(template: str, name: str) -> str:
    """The template for a module of that name, and a class named like it."""
    class_name = "".join(part.capitalize() for part in name.split("_"))
    return template.lstrip("\n").replace("@name@", name).replace("@NAME@", name.upper()).replace("@Name@", class_name)


PROPERTIES = """
name=@name@
connector.class=@name@:@Name@
topic=@name@
contract.schema=file:@name@.avsc
"""
HTTP_KEYS = f"""{PROPERTIES}\
key.fields=id
timestamp.field=updated_at
url=https://api.example.com/v1/items
# Better from the environment, or a file: token=${{env:@NAME@_TOKEN}}
token=your-access-token
"""
KEYS = f"""{PROPERTIES}\
database=/path/to/your.db
"""
HTTP_CONTRACT = """
{"type": "record", "name": "@Name@", "fields": [
  {"name": "id", "type": "long"},
  {"name": "updated_at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
]}
"""
CONTRACT = """
{"type": "record", "name": "@Name@", "fields": [
  {"name": "number", "type": "long"}
]}
"""
HTTP_SOURCE = '''
from fetchers.sdk import FetcherConfig, HttpUrl, Secret, SourceConnector
from fetchers.toolkit.auth import BearerAuth
from fetchers.toolkit.ordered_list import OrderedList
from fetchers.toolkit.pagination import CursorInBody
from fetchers.toolkit.rate_limits import RateWindow, shared_budget


class @Name@Config(FetcherConfig):
    url: HttpUrl
    """List to read, oldest first."""
    token: Secret
    """Access token."""
    poll_interval_ms: int = 60_000


class @Name@(SourceConnector[@Name@Config]):
    def fetch(self, context):
        token = self.config.token.get_secret_value()
        budget = shared_budget(token, [RateWindow(count=10, seconds=1)], clock=context.clock)
        return OrderedList(
            url=self.config.url, query={"sort": "updated_at", "per_page": "20"}, records="items",
            sorted_by="updated_at", begin_at="since", next_pages=CursorInBody("next"),
            every_seconds=self.config.poll_interval, options={"auth": BearerAuth(token), "budget": budget},
        ).pages(context)  # fmt: skip
'''
HTTP_TEST = """
from aiohttp import web

from fetchers.catalog import shared_http
from fetchers.sdk.testing import BadConfig, FetcherContract, HttpCase
from @name@ import @Name@


class @Name@Case(HttpCase):
    connector = @Name@
    properties = {"topic": "@name@", "token": "tok-5fd0c2e9b7"}
    bad_configs = (BadConfig({"url": "nowhere", "token": None}, frozenset({"url", "token"})),)

    def record(self, number):
        return {"id": number, "updated_at": f"2026-01-01T00:00:{number // 30:02}Z"}  # 30 ties, 20 a page

    def answer(self, request, records):
        if request.headers.get("Authorization") != "Bearer tok-5fd0c2e9b7":
            return web.Response(status=401)
        found = [record for record in records if record["updated_at"] >= request.query.get("since", "")]
        begin = int(request.query.get("cursor", "0"))
        return {"items": found[begin : begin + 20], "next": str(begin + 20) if found[begin + 20 :] else None}


class Test@Name@(FetcherContract):
    case = @Name@Case()
    open_http = staticmethod(shared_http)
"""
SOURCE = '''
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from functools import partial

from fetchers.sdk import Fatal, FetchContext, FetcherConfig, Page, SourceConnector

PAGE_RECORDS = 20


class @Name@Config(FetcherConfig):
    database: str
    """SQLite file with a table ``records``, read in the order of ``id``: put your own system in its place."""


class @Name@(SourceConnector[@Name@Config]):
    async def fetch(self, context: FetchContext) -> AsyncIterator[Page]:
        last = context.offset.get("id", 0)
        while True:
            rows = await context.run_blocking(partial(self.rows_after, last), subject="database")
            if rows:
                last = rows[-1][0]
                yield Page([payload for _, payload in rows], offset={"id": last})
            else:
                context.finish_round()
                await context.clock.sleep(self.config.poll_interval)

    def rows_after(self, last):
        """Number and payload of the next records; runs in a thread, so it may block."""
        query = "select id, payload from records where id > ? order by id limit ?"
        try:
            with closing(sqlite3.connect(f"file:{self.config.database}?mode=ro", uri=True)) as database:
                return database.execute(query, (last, PAGE_RECORDS)).fetchall()
        except sqlite3.OperationalError as error:
            raise Fatal(f"the database cannot be read: {error}") from error
'''
TEST = '''
import asyncio
import sqlite3
from contextlib import asynccontextmanager, closing

from fetchers.sdk.testing import BadConfig, FetcherCase, FetcherContract, ScriptedSource
from @name@ import @Name@


class Database(ScriptedSource):
    """A small database of the test's own; put what your system needs in its place."""

    def __init__(self, folder):
        self.path, self.count = folder / "@name@.db", 0
        self.execute("create table records (id integer primary key, payload blob)")
        self.insert(45)

    @property
    def properties(self):
        return {"topic": "@name@", "database": str(self.path)}

    @property
    def expected(self):
        return [self.payload(number) for number in range(self.count)]

    async def add(self):
        self.insert(5)

    async def hang(self):
        """A database without new rows gives none."""

    async def wait_until_asked(self):
        await asyncio.sleep(0.1)  # nothing tells when somebody reads a file

    async def refuse(self):
        self.execute("drop table records")

    def payload(self, number):
        return b'{"number": %d}' % number

    def insert(self, count):
        for number in range(self.count, self.count + count):
            self.execute("insert into records (payload) values (?)", self.payload(number))
        self.count += count

    def execute(self, statement, *values):
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(statement, values)


class @Name@Case(FetcherCase):
    connector = @Name@
    bad_configs = (BadConfig({"database": None, "topic": None}, frozenset({"database", "topic"})),)

    @asynccontextmanager
    async def source(self, folder):
        yield Database(folder)


class Test@Name@(FetcherContract):
    case = @Name@Case()
'''
SINK_KEYS = """
name=@name@
connector.class=@name@:@Name@
topics=@name@
url=https://hooks.example.com/records
value.converter=org.apache.kafka.connect.json.JsonConverter
value.converter.schemas.enable=false
"""
SINK = '''
from fetchers.sdk import HttpUrl
from service.sinks.contract import Form, SinkBatch, SinkConfig, SinkConnector, SinkContext


class @Name@Config(SinkConfig):
    """Posts records to a web address."""

    url: HttpUrl
    """Where to post: a JSON document a line."""


class @Name@(SinkConnector[@Name@Config]):
    """Posts each batch as JSON lines."""

    accepts = frozenset({Form.JSON})

    async def start(self, context: SinkContext) -> None:
        self.http = context.http

    async def put(self, batch: SinkBatch) -> None:
        documents = batch.records.column("value").drop_null().to_pylist()
        await self.http.request("POST", self.config.url, body="\\n".join([*documents, ""]).encode())
'''
SINK_TEST = '''
import json
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer
from service.sinks.converters import JsonReader
from service.sinks.testing import SinkCase, SinkContract, Target
from @name@ import @Name@


class Hook(Target):
    """A web server of the test's own that keeps what is posted; put what your system needs in its place."""

    def __init__(self):
        self.texts, self.url = {}, ""

    @property
    def properties(self):
        return {"url": self.url}

    async def written(self):
        return list(self.texts)

    async def take(self, request):
        lines = (await request.text()).splitlines()
        self.texts |= {json.loads(line)["text"]: None for line in lines}  # what comes twice is there once
        return web.Response()


class @Name@Case(SinkCase):
    connector = @Name@
    values = JsonReader()
    bad_configs = (({"url": "ftp://here"}, frozenset({"url"})),)

    def payload(self, value):
        return json.dumps({"text": value}).encode()

    @asynccontextmanager
    async def target(self, folder):
        hook, app = Hook(), web.Application()
        app.router.add_post("/", hook.take)
        async with TestServer(app) as server:
            hook.url = str(server.make_url("/"))
            yield hook


class Test@Name@(SinkContract):
    case = @Name@Case()
'''
_CODE, _TEST, _KEYS, _CONTRACT = "@name@.py", "test_@name@.py", "@name@.properties", "@name@.avsc"
TEMPLATES = {
    "source": {_CODE: SOURCE, _TEST: TEST, _KEYS: KEYS, _CONTRACT: CONTRACT},
    "http source": {_CODE: HTTP_SOURCE, _TEST: HTTP_TEST, _KEYS: HTTP_KEYS, _CONTRACT: HTTP_CONTRACT},
    "sink": {_CODE: SINK, _TEST: SINK_TEST, _KEYS: SINK_KEYS},
}
"""By kind: the files, by their names."""
