"""Why a database server lets nobody in, and what mends it: with the SQL, where there is one.

Texts: PostgreSQL's ``auth.c``, ``miscinit.c`` and ``postinit.c``, and libpq's, which has no SQLSTATE of a connection
that was not made; of a server that speaks another language than English nothing tells what mends it. Numbers: the
chapter "Server Error Message Reference" of MySQL's manual, and the page "MariaDB Error Codes".
"""

from __future__ import annotations

import re

from fetchers.sdk import Disconnected, Fatal, FetchError, Finding

_UNREACHABLE = re.compile(
    "connection to server at|could not translate host name|failed to resolve host|timeout expired"
)
_REFUSED = re.compile("authentication failed|does not exist|pg_hba|permission denied|not permitted|must be superuser")
_LISTENS = "Is a server running there, and does it listen on that address and port (its settings, a firewall)?"
_NO_TLS = "The server speaks no TLS: switch it on there, or choose a mode of this config that does without it"
_POSTGRESQL = tuple(
    (re.compile(pattern), about, mend)
    for pattern, about, mend in (
        (
            'password authentication failed for user "(.+)"',
            "password",
            "Name its password in the config, or set it by: ALTER ROLE {0} PASSWORD '…'",
        ),
        ("no password supplied", "password", "The server asks for a password: name the user's in the config"),
        ('role "(.+)" does not exist', "user", "Name another, or run: CREATE ROLE {0} LOGIN PASSWORD '…'"),
        ('role "(.+)" is not permitted to log in', "user", "Run: ALTER ROLE {0} LOGIN"),
        (
            "must be superuser or replication role|permission denied to (?:start WAL sender|use replication slots)",
            "user",
            "Run, with the name of the config's user: ALTER ROLE … REPLICATION",
        ),
        ('database "(.+)" does not exist', "database", "Name one that is there, or run: CREATE DATABASE {0}"),
        (
            'permission denied for database "(.+)"',
            "database",
            "Run, with the name of the config's user: GRANT CONNECT ON DATABASE {0} TO …",
        ),
        (
            "pg_hba",
            "server",
            "Let the user in from there by a line of the server's pg_hba.conf, then run: SELECT pg_reload_conf()",
        ),
        ("server does not support SSL", "server", _NO_TLS),
    )
)
_EXPIRED = "Its password has expired. Run: ALTER USER … IDENTIFIED BY '…', and name the new one in the config"
_LOCKED = "Run, with the name of the config's user: ALTER USER … ACCOUNT UNLOCK"
_DENIED = (
    "Name its password in the config, or set it by ALTER USER … IDENTIFIED BY '…'. SELECT user, host FROM mysql.user "
    "shows whether it may come from this address at all; CREATE USER makes it. One that must use TLS is refused so, too"
)
_MYSQL = {
    1044: ("database", "Let the user have it, as by: GRANT SELECT ON <database>.* TO …"),
    1045: ("user", _DENIED),
    1049: ("database", "Name one that is there, or run: CREATE DATABASE …"),
    1130: ("server", "No user may come from that address. Run: CREATE USER …@'<address>' IDENTIFIED BY '…'"),
    1698: ("user", _DENIED),
    1820: ("password", _EXPIRED),
    1862: ("password", _EXPIRED),
    3118: ("user", _LOCKED),
    3159: ("server", "The server lets nobody in without TLS: choose a mode of this config that uses it"),
    4151: ("user", _LOCKED),
}
CANNOT_CONNECT = {2003, 2005}
"""Numbers of the client: nothing has answered."""
_KEYS = {"user": "database.user", "password": "database.password", "database": "database.dbname"}
"""Debezium's keys by what a refusal is about; the rest is about ``database.hostname``."""


class SessionRefused(Fatal):
    """A server that answers lets this login not in, or not to this database."""

    def __init__(self, message: str, about: str) -> None:
        """``about``: what of a config it is: ``server``, ``user``, ``password`` or ``database``."""
        super().__init__(message)
        self.about = about


class Unreachable(Disconnected):
    """Nothing has answered there, which may pass; at validation it is a finding."""

    about = "server"


def unreachable(message: str) -> Unreachable:
    """With what to look at."""
    return Unreachable(f"{message}. {_LISTENS}")


def session_finding(error: Fatal | Unreachable, host: str) -> Finding:
    """At the key that it is about; ``host``: the config's."""
    about = getattr(error, "about", "")
    return Finding(_KEYS.get(about, "database.hostname"), host if about in {"", "server"} else None, str(error))


def postgresql_refusal(text: str, host: str) -> FetchError:
    """Of a connection that was not made, or was lost; ``text``: libpq's, of which one line is told."""
    lines = text.strip().splitlines() or [""]
    fatal = next((line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line), "")
    message = fatal or lines[0]
    for pattern, about, mend in _POSTGRESQL:
        if found := pattern.search(message):
            names = ['"' + name.replace('"', '""') + '"' for name in found.groups()]
            return SessionRefused(f"{host}: {message}. {mend.format(*names)}", about)
    if _REFUSED.search(message):
        return Fatal(f"{host}: {message}")
    if _UNREACHABLE.search(message) and not fatal:
        return unreachable(f"{host}: {message}")
    return Disconnected(f"{host}: {message}")


def mysql_refusal(code: int, message: str) -> FetchError | None:
    """By the error's number; None: it is of no session that begins. ``message``: as it is told."""
    if code in _MYSQL:
        about, mend = _MYSQL[code]
        return SessionRefused(f"{message}. {mend}", about)
    if code not in CANNOT_CONNECT:
        return None
    has_no_tls = "WRONG_VERSION_NUMBER" in message  # OpenSSL's word for an answer that is none of TLS
    return SessionRefused(f"{message}. {_NO_TLS}", "server") if has_no_tls else unreachable(message)
