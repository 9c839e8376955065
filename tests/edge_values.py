"""Types of the databases with their edge values: one list for each server, by which all proofs go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Edge = tuple[str, str, Any]
"""Type, literal, what a row of ``JdbcSource`` says of it in JSON; None: the row is rejected."""
OWN = "as the database's own text"
POSTGRESQL_NAMES = ("create type mood as enum ('so so')", "create domain positive as int check (value > 0)")
"""Statements for types of the list that are no server's own."""
POSTGRESQL: list[Edge] = [
    ("smallint", "-32768", -32768),
    ("integer", "2147483647", 2147483647),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("oid", "4294967295", 4294967295),
    ("real", "'NaN'", "NaN"),
    ("double precision", "'-Infinity'", "-Infinity"),
    ("double precision", "0.1", "0.1"),
    ("boolean", "true", True),
    ("numeric(12,4)", "12345678.9000", "12345678.9000"),
    ("numeric(60,20)", "1234567890123456789012345678901234567890.12345678901234567890", OWN),
    ("numeric", "1e-30", "0." + "0" * 29 + "1"),
    ("numeric", "'NaN'", "NaN"),
    ("numeric(5,2)", "'NaN'", None),
    ("numeric(3,-2)", "12300", "12300"),
    ("char(5)", "'x'", "x    "),
    ("varchar(9)", "'ü\\\"'", 'ü\\"'),
    ("text", "E'a\\nb'", "a\nb"),
    ("bytea", "'\\x00ff'", "AP8="),
    ("bit(1)", "B'1'", True),
    ("bit(10)", "B'1010101010'", "1010101010"),
    ("date", "'2024-02-29'", "2024-02-29"),
    ("date", "'0044-03-15 BC'", -735160),
    ("date", "'infinity'", None),
    ("date", "'-infinity'", None),
    ("time", "'23:59:59.999'", "23:59:59.999"),
    ("time", "'24:00'", None),
    ("timetz", "'12:00:00+05:30'", "12:00:00+05:30"),
    ("timestamp", "'2024-03-31 02:30:00.5'", "2024-03-31T02:30:00.500Z"),
    ("timestamptz", "'2024-03-31 02:30:00.5+02'", "2024-03-31T00:30:00.500Z"),
    ("timestamptz", "'infinity'", None),
    ("timestamp", "'-infinity'", None),
    ("timestamp", "'294276-12-31 23:59:59.999999'", None),
    ("timestamp", "'4714-11-24 00:00:00 BC'", -210866803200000),
    ("interval", "'1 mon 2 days 03:04:05.6'", "1 mon 2 days 03:04:05.6"),
    ("json", "'{\"a\": 1.0}'", '{"a": 1.0}'),
    ("jsonb", "'{\"a\": 1.0}'", '{"a": 1.0}'),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("integer[]", "'{1,null,3}'", "{1,NULL,3}"),
    ("mood", "'so so'", "so so"),
    ("positive", "7", 7),
    ("inet", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("money", "12.5", "$12.50"),
]
MYSQL: list[Edge] = [
    ("tinyint", "-128", -128),
    ("tinyint unsigned", "255", 255),
    ("smallint unsigned", "65535", 65535),
    ("mediumint unsigned", "16777215", 16777215),
    ("int unsigned", "4294967295", 4294967295),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("bigint unsigned", "18446744073709551615", 18446744073709551615),
    ("boolean", "1", 1),
    ("float", "1.1", "1.100000023841858"),
    ("double", "1.1e300", "1.1e+300"),
    ("decimal(65,30)", "12345678901234567890123456789012345.000000000000000000000000000001", OWN),
    ("decimal(10,2)", "-0.05", "-0.05"),
    ("bit(1)", "b'1'", True),
    ("bit(10)", "b'1010101010'", 682),
    ("bit(64)", "b'" + "1" * 64 + "'", 18446744073709551615),
    ("year", "2024", 2024),
    ("char(5)", "'x'", "x"),
    ("varchar(9) character set latin1", "'é'", "é"),
    ("text", "'a\\nb\\\\ü'", OWN),
    ("binary(4)", "'ab'", "YWIAAA=="),
    ("varbinary(4)", "x'ff00'", "/wA="),
    ("blob", "x'00ff'", "AP8="),
    ("json", "'{\"a\": 1.0}'", '{"a": 1.0}'),
    ("enum('a','b')", "'b'", "b"),
    ("set('x','y')", "'x,y'", "x,y"),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", OWN),
    ("inet4", "'192.168.0.0'", OWN),
    ("inet6", "'1:0:2:3:4:5:6:0'", OWN),
    ("date", "'2024-02-29'", "2024-02-29"),
    ("date", "'0000-00-00'", None),
    ("date", "'2024-00-15'", None),
    ("datetime(6)", "'2024-03-31 02:30:00.5'", "2024-03-31T02:30:00.500Z"),
    ("datetime", "'0000-00-00 00:00:00'", None),
    ("datetime", "'9999-12-31 23:59:59'", "9999-12-31T23:59:59.000Z"),
    ("timestamp(3)", "'2024-03-31 02:30:00.123'", "2024-03-31T02:30:00.123Z"),
    ("time(3)", "'23:59:59.999'", "23:59:59.999"),
    ("time", "'-838:59:59'", None),
    ("point", "point(1,2)", "POINT(1 2)"),
]
SQLITE: list[Edge] = [
    # declared types: values have types of their own
    ("integer", "9223372036854775807", 9223372036854775807),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("integer", "'12'", 12),
    ("integer", "'nine'", None),
    ("integer", "2.5", None),
    ("integer", "x'00ff'", None),
    ("real", "0.1", "0.1"),
    ("double", "9e999", "Infinity"),
    ("float", "'x'", None),
    ("boolean", "1", True),
    ("boolean", "2", None),
    ("decimal(12,4)", "12345678.9", "12345678.9000"),
    ("decimal(5,2)", "7", "7.00"),
    ("decimal(5,2)", "1000", None),
    ("decimal(5,2)", "0.001", None),
    ("varchar(9)", "'ü\"\\'", OWN),
    ("text", "'a' || char(10) || 'b'", "a\nb"),
    ("clob", "''", ""),
    ("blob", "x'00ff'", "AP8="),
    ("date", "'2024-02-29'", "2024-02-29"),
    ("date", "'2023-02-29'", None),
    ("datetime", "'2024-03-31 02:30:00.5'", "2024-03-31T02:30:00.500Z"),
    ("timestamp", "'9999-12-31 23:59:59'", "9999-12-31T23:59:59.000Z"),
    ("timestamp", "1711852200500", "2024-03-31T02:30:00.500Z"),
    ("timestamp", "'soon'", None),
    ("whatever", "'23:59:59'", "23:59:59"),
]


def mysql_types(scheme: str) -> list[Edge]:
    """Of MySQL, or of MariaDB, which has three types more."""
    return [one for one in MYSQL if scheme == "mariadb" or one[0] not in {"uuid", "inet4", "inet6"}]


def table_of(types: Sequence[Edge], key: str) -> list[str]:
    """Statements for a table ``kinds`` with a column ``c0``, ``c1``… for each type, and a row for each with its value.

    The other columns of a row are null; ``key`` is the declaration of ``id``, which counts from 1.
    """
    columns = ", ".join(f"c{at} {kind} null" for at, (kind, _, _) in enumerate(types))
    inserts = [f"insert into kinds (c{at}) values ({literal})" for at, (_, literal, _) in enumerate(types)]  # noqa: S608
    return [f"create table kinds (id {key}, {columns})", *inserts]


def own_text_of_sqlite(column: str) -> str:
    """Its own text of a value, as SQL: of bytes that are no text their digits."""
    return f"case typeof({column}) when 'blob' then hex({column}) else cast({column} as text) end"
