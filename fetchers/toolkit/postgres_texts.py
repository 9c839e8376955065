"""Texts of PostgreSQL: in statements, and as bytes where a database has no encoding (``SQL_ASCII``).

Where UTF-8 is asked of the server of such a database it converts nothing, and ends a whole statement, or the stream of
the log, at the first text that is none (``pg_server_to_any`` in its ``mbutils.c``, SQLSTATE 22021). So its bytes are
asked for as they are, and each text is looked at here. All other databases send UTF-8.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from fetchers.toolkit.texts import decoded, told_bytes

_ESCAPED = re.compile(r"(?:[^\\\x80-\U0010ffff]|\\\\|\\[23][0-7]{2})*")
NO_ENCODING = "SQL_ASCII"
AS_IT_IS = f"set client_encoding to {NO_ENCODING}"
"""Has the server send a session texts as the bytes that the database holds."""


KEY_ORDER = """concat_ws(' ', case b.typname when 'varchar' then 'text' else b.typname end,
  (select string_agg(e.enumlabel, ',' order by e.enumsortorder) from pg_enum e where e.enumtypid in (b.oid, b.typelem)),
  (select concat_ws(' ', l.collprovider, l.collcollate, l.collctype,
      coalesce(to_jsonb(l) ->> 'colllocale', to_jsonb(l) ->> 'colliculocale'), to_jsonb(l) ->> 'collicurules')
    from pg_collation l where l.oid = a.attcollation),
  (select concat_ws(' ', d.datcollate, d.datctype, to_jsonb(d) ->> 'datlocprovider',
      coalesce(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale'), to_jsonb(d) ->> 'daticurules')
    from pg_database d where a.attcollation = 100 and d.datname = current_database()),
  case when a.attcollation <> 0 then pg_collation_actual_version(a.attcollation) end)"""
"""SQL of what decides the order of a column's values, as a text: of ``pg_attribute`` as ``a``, and its ``pg_type``, or
that under its domain, as ``b``. 100 is ``DEFAULT_COLLATION_OID``, the database's own; columns that later versions call
otherwise, or have besides, are NULL."""


def takes_any_bytes(connection: Any) -> bool:
    """Whether the database of an ADBC connection has no encoding; then its texts come as they are from now on."""
    with connection.cursor() as cursor:
        cursor.execute("select current_setting('server_encoding')")
        has_none = bool(cursor.fetchall() == [(NO_ENCODING,)])
        if has_none:
            cursor.execute(AS_IT_IS)
    return has_none


def utf8(column: Any) -> tuple[Any, dict[int, str]]:
    """A column of texts, or of their bytes, with nulls for what is no UTF-8, and what is the matter there, by row."""
    plain = column.storage if isinstance(column, pa.ExtensionArray) else column
    held = plain.cast(pa.binary())  # Arrow looks at bytes that are to be texts, and never at what is called texts
    try:
        return held.cast(pa.string()), {}
    except pa.ArrowInvalid:
        return decoded(held, bytes.decode, _no_utf8)


def _no_utf8(value: bytes) -> str:
    return f"the bytes {told_bytes(value)} are no UTF-8: is the database's encoding SQL_ASCII?"


def text_literal(text: str) -> str:
    """A text as SQL, whatever is in it."""
    quoted = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f"E{quoted}" if "\\" in text else quoted


def key_text(text: str) -> str:
    r"""SQL that writes a text of a database without an encoding in ASCII, from which ``key_literal`` makes it again.

    ASCII stays as it is but for backslashes, which are doubled; other bytes become ``\374``, as in an ``E''`` literal.
    """
    return f"encode(convert_to({text}, '{NO_ENCODING}'), 'escape')"


def key_literal(text: str) -> str:
    r"""What ``key_text`` has written, as SQL; without a type, so that it takes the key's.

    Releases before 2026-11-28 have stored keys as they are. One that ``key_text`` cannot have written, such as ``\x61``
    of a ``bytea``, is theirs, and read so: as an escape it would be another key, and rows would be passed over.
    """
    return "E'" + text.replace("'", "''") + "'" if _ESCAPED.fullmatch(text) else text_literal(text)
