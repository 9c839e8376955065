"""Which statement gives a right that the user lacks, by what the server says of it.

Texts are those of PostgreSQL's ``aclchk.c`` and ``namespace.c``, and of ``ER_TABLEACCESS_DENIED_ERROR`` and
``ER_DBACCESS_DENIED_ERROR`` of MariaDB and MySQL. A server that speaks another language is answered in general words.
"""

from __future__ import annotations

import re

_ROWS = "SELECT, INSERT, UPDATE, DELETE"
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_POSTGRESQL = tuple(
    (re.compile(pattern), mend)
    for pattern, mend in (
        (
            "permission denied for schema (.+)",
            "run: GRANT USAGE ON SCHEMA {0} TO {user}, and to make tables: GRANT CREATE ON SCHEMA {0} TO {user}",
        ),
        (
            "must be owner of (?:table|relation) (.+)",
            "run: ALTER TABLE {0} OWNER TO {user}, or make the user a member of its owner: GRANT <owner> TO {user}",
        ),
        (
            'permission denied to create temporary tables in database "(.+)"',
            "run: GRANT TEMPORARY ON DATABASE {0} TO {user}",
        ),
        ("permission denied for (?:table|relation|view) (.+)", f"run: GRANT {_ROWS} ON {{0}} TO {{user}}"),
        ("permission denied for sequence (.+)", "run: GRANT USAGE ON SEQUENCE {0} TO {user}"),
    )
)
_MYSQL = re.compile(r"(.+) command denied to user .+ for table (?:`(?P<other>.+)`\.`(?P<there>.+)`|'(?P<table>.+)')")
_MYSQL_RIGHTS = {"CREATE": "CREATE", "ALTER": "ALTER, CREATE, INSERT", "DROP": "DROP"}


def postgresql_mend(text: str, user: str) -> str:
    """What gives the user of a config the right whose lack is SQLSTATE 42501; ``text``: the server's."""
    name = _quoted(user)
    for pattern, mend in _POSTGRESQL:
        if found := pattern.fullmatch(text.strip()):
            return mend.format(_quoted(found[1]), user=name)
    return f"run: GRANT {_ROWS} ON <table> TO {name}"


def mysql_mend(text: str, user: str, database: str) -> str:
    """The same of MariaDB and MySQL; ``database``: the config's."""
    found = _MYSQL.search(text)
    rights, place = _ROWS, f"`{database}`.*"
    if found is not None:
        rights = _MYSQL_RIGHTS.get(found[1], _ROWS)
        there = found["other"] or database
        place = f"`{there}`.*" if rights == "CREATE" else f"`{there}`.`{found['there'] or found['table']}`"
    return f"run, with the account that SELECT CURRENT_USER() shows: GRANT {rights} ON {place} TO {user}"


def _quoted(name: str) -> str:
    """A name as SQL; quotes only where it needs them."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'
