"""``jdbc:`` URLs as people have them in their configs, and the connections that they name.

For ``JdbcSource`` and ``JdbcSink``: what both read of a config, how both log in, how both take a server's refusal.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

from fetchers.sdk import Disconnected, Fatal, FetchError, Retriable, Secret
from fetchers.sdk.reach import AddressRefusedError, AllowedAddresses
from fetchers.toolkit.refusals import CANNOT_CONNECT, mysql_refusal, postgresql_refusal, unreachable

CONNECT_SECONDS_MAX = 10.0
KEPT_ALIVE = {
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""Of libpq: a server that is gone without a word, by a failover or a firewall, is noticed in a minute, not in hours."""
PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
_FORMS = "jdbc:postgresql://host:5432/db, jdbc:mysql://host:3306/db, jdbc:mariadb://host:3306/db or jdbc:sqlite:file.db"


@dataclass(frozen=True, slots=True)
class DatabaseUrl:
    """One database; for SQLite ``database`` is the file."""

    dialect: str
    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    """What stands after ``?``, besides user and password."""


def read_url(text: str) -> DatabaseUrl:
    """Raises ValueError with what was expected; the message has nothing of the text, which may hold a password."""
    scheme, _, rest = text.strip().partition(":")
    dialect, _, place = rest.partition(":")
    if scheme.lower() != "jdbc" or dialect.lower() not in {*PORTS, "sqlite"}:
        message = f"Expected a URL such as {_FORMS}"
        raise ValueError(message)
    dialect = dialect.lower()
    if dialect == "sqlite":
        file = place.removeprefix("file:").partition("?")[0]
        if not file or file == ":memory:":
            message = "Expected the file of the database after jdbc:sqlite:"
            raise ValueError(message)
        return DatabaseUrl(dialect, "", 0, file)
    if not place.startswith("//"):  # PostgreSQL's short form, jdbc:postgresql:database
        place = f"//localhost/{place}"
    try:
        parts = urlsplit(f"{dialect}:{place}")
        port = parts.port or PORTS[dialect]
    except ValueError:
        message = f"Expected one host and port, and a URL such as {_FORMS}"
        raise ValueError(message) from None
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    user, password = settings.pop("user", None), settings.pop("password", None)
    database = unquote(parts.path.removeprefix("/"))
    if not parts.hostname or not database or "," in parts.netloc:
        message = f"Expected one host and the name of a database, as in {_FORMS}"
        raise ValueError(message)
    return DatabaseUrl(dialect, parts.hostname, port, database, user or parts.username, password, settings)


def url_text(value: object) -> object:
    """For pydantic: a text must be a URL that ``read_url`` takes."""
    if isinstance(value, str):
        read_url(value)
    return value


def zone_name(value: object) -> object:
    """For pydantic: a text must name a time zone."""
    if isinstance(value, str):
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            message = "Expected an IANA time zone such as Europe/Berlin"
            raise ValueError(message) from None
    return value


@dataclass(frozen=True, slots=True)
class Login:
    """A database and who enters it; the keys ``connection.user`` and ``connection.password`` go before the URL's."""

    url: DatabaseUrl
    user: str | None = None
    secret: Secret | None = None

    @property
    def name(self) -> str | None:
        """The user's."""
        return self.user or self.url.user

    @property
    def password(self) -> str | None:
        """The user's."""
        return self.secret.get_secret_value() if self.secret is not None else self.url.password


def addresses_of(host: str, port: int, addresses: AllowedAddresses) -> list[str]:
    """The addresses to try in turn where the worker bounds them, so that they are those judged; none: the driver looks.

    Blocks. Raises ``Fatal`` for what is not allowed or can be no host, ``Unreachable`` where nobody knows the name.
    """
    if addresses.is_internal_free:
        return []
    try:
        return addresses.looked_up(host, port)
    except OSError as error:
        raise unreachable(f"{host}: the name cannot be looked up ({error})") from error
    except ValueError as error:
        raise Fatal(f"{host} is no name of a host") from error
    except AddressRefusedError as error:
        raise Fatal(str(error)) from error


def libpq_hosts(host: str, numbers: Sequence[str]) -> dict[str, str]:
    """Parameters of libpq for a host that is dialled at these addresses; with none libpq looks it up."""
    # A name for each number, for TLS: https://www.postgresql.org/docs/current/libpq-connect.html
    return {"host": ",".join([host] * len(numbers)), "hostaddr": ",".join(numbers)} if numbers else {"host": host}


def connect_postgresql(login: Login, *, addresses: AllowedAddresses, program: str, zone: str = "UTC") -> Any:
    """An ADBC connection that commits by itself; ``zone``: that of the session.

    Blocks; raises ``adbc.Error``, and what ``addresses_of`` does.
    """
    url = login.url
    mode = url.settings.get("sslmode") or ("require" if url.settings.get("ssl", "false") != "false" else None)
    path = url.settings.get("currentSchema")
    options = f"-c TimeZone={zone} -c DateStyle=ISO -c IntervalStyle=postgres -c extra_float_digits=3"
    parts = {
        **libpq_hosts(url.host, addresses_of(url.host, url.port, addresses)),
        "port": str(url.port),
        "dbname": url.database,
        "user": login.name,
        "password": login.password,
        "sslmode": mode,
        "application_name": program,
        "connect_timeout": f"{CONNECT_SECONDS_MAX:.0f}",
        "client_encoding": "UTF8",  # else the database's own, whatever Arrow takes texts for
        **KEPT_ALIVE,
        "options": options + (f" -c search_path={path}" if path else ""),
    }
    told = " ".join(f"{name}={_libpq(value)}" for name, value in parts.items() if value is not None)
    return adbc.connect(told, autocommit=True)


def batches_of(cursor: Any) -> pa.RecordBatchReader:
    """The result of what a cursor has executed, whose errors are ``adbc.Error`` with their SQLSTATE.

    Those of ``fetch_record_batch`` are ``OSError`` without one, of a lost connection and of a statement alike.
    """
    reader: pa.RecordBatchReader = cursor._results.reader  # noqa: SLF001 - https://github.com/apache/arrow-adbc/issues/1523
    return reader


def cancel_postgresql(connection: Any) -> None:
    """Ask the server to end what an ADBC connection runs, from another thread, which may close it meanwhile."""
    if connection is not None:
        with suppress(adbc.Error, RuntimeError):
            connection.adbc_cancel()


def close_postgresql(cursor: Any, connection: Any) -> None:
    """Close both, whatever state they are in; None where there is none."""
    for owned in (cursor, connection):
        if owned is not None:
            with suppress(adbc.Error, RuntimeError):
                owned.close()


class _NamedTls(ssl.SSLContext):
    """TLS with the server of a name, whatever number was dialled for it; asyncmy would ask for the number."""

    host = ""

    def wrap_bio(  # noqa: PLR0917 - of Python's own method
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,  # noqa: FBT001, FBT002 - as above
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As asyncio begins TLS."""
        del server_hostname
        return super().wrap_bio(incoming, outgoing, server_side, self.host, session)


def _tls_of(host: str) -> ssl.SSLContext:
    """As ``ssl.create_default_context`` makes one: what the system trusts, and the name."""
    made = _NamedTls(ssl.PROTOCOL_TLS_CLIENT)
    made.host = host
    made.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return made


async def connect_mysql(login: Login, *, addresses: AllowedAddresses, first_command: str) -> Any:
    """An asyncmy connection that commits by itself, values as the server's texts.

    Raises ``asyncmy.errors.Error``, and what ``addresses_of`` does.
    """
    import asyncmy.errors  # noqa: PLC0415 - it takes 10 MB, which sources of PostgreSQL do without

    url = login.url
    mode = url.settings.get("sslMode", "").upper()
    wants_tls = mode in {"REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"} or url.settings.get("useSSL") == "true"
    context = _tls_of(url.host) if wants_tls else None
    if context is not None and not mode.startswith("VERIFY"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    numbers = await asyncio.to_thread(addresses_of, url.host, url.port, addresses) or [url.host]

    async def dialled(number: str) -> Any:
        return await asyncmy.connect(
            host=number,
            port=url.port,
            user=login.name or "",
            password=login.password or "",
            database=url.database,
            charset="utf8mb4",
            autocommit=True,
            conv={255: str},
            init_command=first_command,
            connect_timeout=max(1, int(CONNECT_SECONDS_MAX) // len(numbers)),
            ssl=context,
            program_name="headrace",
        )

    for number in numbers[:-1]:
        try:
            return await dialled(number)
        except asyncmy.errors.OperationalError as error:
            if error.args[0] not in CANNOT_CONNECT:
                raise
    return await dialled(numbers[-1])


def _libpq(value: str) -> str:
    """A value of libpq's connection string."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


PASSING = ("40", "53", "55", "57", "58", "08", "72", "25P03", "25P04")
"""Classes of SQLSTATE that may pass: conflicts, resources, locks, shutdown, the system, the connection, a snapshot that
is too old; and transactions that the server has ended for their time."""
_STATEMENT_REFUSED = {1064, 1142, 1143, 1227}
"""Errors of MySQL that a person must mend: syntax and rights (server error reference)."""


@dataclass(frozen=True, slots=True)
class ServerError:
    """What a server said, in one line without the statement."""

    state: str
    """PostgreSQL's SQLSTATE, or MySQL's number; empty where there is none."""
    text: str
    failure: FetchError
    """What is done about it where nobody knows better."""


def postgresql_error(error: Any, host: str) -> ServerError:
    """By SQLSTATE; a connection that was not made has none, only libpq's text."""
    text = str(error).partition("Query was:")[0]
    message = next((part.strip() for part in text.split("ERROR:")[1:]), text).splitlines()[0]
    state = getattr(error, "sqlstate", None) or ""
    if state.startswith(PASSING):
        return ServerError(state, message, Retriable(f"{host}: {message} ({state})"))
    if state:
        return ServerError(state, message, Fatal(f"{host}: {message} ({state})"))
    return ServerError("", message, postgresql_refusal(text, host))


def mysql_error(error: BaseException, host: str) -> ServerError:
    """By the number of an ``asyncmy.errors.Error``."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1] if len(error.args) > 1 else error).splitlines()[0]
    kind = Fatal if code in _STATEMENT_REFUSED else Disconnected
    message = f"{host}: {text} ({code})"
    return ServerError(str(code), text, mysql_refusal(code, message) or kind(message))
