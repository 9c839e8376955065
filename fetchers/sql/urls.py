"""``jdbc:`` URLs as people have them in their configs: what they name, and what they set besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

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
