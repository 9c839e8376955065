# ruff: noqa: S608 - statements of tests
"""``MySqlCdcSource`` on a real MySQL: binary JSON, GTIDs, another server, refusals."""

from __future__ import annotations

import pytest

from fetchers.sdk import Retriable, SystemClock
from fetchers.sdk.testing.context import FakeContext
from tests.databases import MySql
from tests.integration.mysql_cdc.test_binlog import has_row, read, rows_of, source

pytestmark = pytest.mark.integration
DOCUMENTS = (
    "'null'",
    "'true'",
    "'-1'",
    "'65535'",
    "'-2147483648'",
    "'4294967295'",
    "'9223372036854775807'",
    "'18446744073709551615'",
    "'1.5'",
    "'1e300'",
    "'-1e-7'",
    "'0.1'",
    "'[1e14, 1e15, 1e16, 1e-14, 1e-15, 1e-16, 123456789012345.5, 1.25e-20, -0.0, 0.0, 5e-324]'",
    "'123456789012345680000'",
    '\'"ü€😀 \\\\" \\\\\\\\ \\\\u0007 \\\\n"\'',
    "'[]'",
    "'{}'",
    '\'[1, [2, [3, {"a": [null, false, "x"]}]]]\'',
    '\'{"b": 1, "aa": 2, "a": {"c": 70000, "d": -70000}}\'',
    "json_object('long', repeat('ü', 40000), 'list', json_array(1, 70000, 5000000000, 1.25))",
    "json_object('a', cast('-123.4500' as decimal(20,4)), 'b', cast('0' as decimal(65,30)))",
    "cast(cast('2024-02-29' as date) as json)",
    "json_array(cast('2024-02-29 01:02:03.000004' as datetime(6)), cast('1000-01-01 00:00:00' as datetime))",
    "json_array(cast('-838:59:59' as time), cast('00:00:01.5' as time(6)), cast('-00:00:01.25' as time(6)))",
    "json_array(timestamp'2024-02-29 01:02:03', year('2024-01-01'), x'00ff', b'101')",
)
"""Every form that binary JSON has, opaque values of other types among them."""


async def test_heartbeats_move_the_offset_of_a_quiet_table(mysql: MySql) -> None:
    """While only others change: each is a record with a newer place, and its statement is run before it."""
    await mysql.rows("create table busy (id int)", "create table beats (id int primary key auto_increment)")
    keys = {
        "snapshot.mode": "no_data",
        "table.include.list": f"{mysql.name}.beats",
        "heartbeat.interval.ms": "1",
        "heartbeat.action.query": f"insert into {mysql.name}.beats values ()",
    }
    context = FakeContext(clock=SystemClock())  # type: ignore[arg-type]
    (first,) = await read(source(mysql, **keys), context, until=bool)
    await mysql.rows("insert into busy values (1), (2)")
    pages = await read(source(mysql, **keys), context, until=has_row("beats", 2))
    beats = [page for page in pages if page.topic == "__debezium-heartbeat.shop"]
    assert {key for topic, key, _ in rows_of(beats)} == {'{"serverName":"shop"}'}
    places = [int(str(page.offset["pos"])) for page in (first, *beats)]
    assert places == sorted(set(places))
    assert [key for topic, key, _ in rows_of(pages) if topic.endswith(".beats")] == ['{"id":1}', '{"id":2}']


async def test_json_from_the_log_is_the_servers_own_text(mysql: MySql) -> None:
    """Byte by byte as a SELECT shows it, opaque values and documents over 64 KiB too."""
    await mysql.rows("create table t (id int primary key, j json)")
    context = FakeContext()
    await read(source(mysql, **{"snapshot.mode": "no_data"}), context, until=bool)
    inserts = [f"insert into t values ({at}, {document})" for at, document in enumerate(DOCUMENTS)]
    await mysql.rows(*inserts, "insert into t values (999, null)")
    pages = await read(source(mysql, **{"event.form": "row"}), context, until=has_row("t", 999))
    found = [value["j"] for _, _, value in rows_of(pages)]
    own = [row[0] for row in await mysql.rows("select cast(j as char) from t order by id")]
    assert found == own


async def test_a_lock_that_has_to_wait_is_given_up(mysql: MySql) -> None:
    """Writers wait behind it no longer than the key says; once nothing is in its way, the snapshot is read."""
    await mysql.rows("create table t (id int primary key)", "create table u (id int primary key)")
    await mysql.rows("insert into t values (1)")
    keys = {"snapshot.lock.timeout.ms": "1000", "event.form": "row"}
    holder = await mysql.connect()
    async with holder.cursor() as cursor:
        await cursor.execute("lock tables t write")
        with pytest.raises(Retriable, match="1205"):
            await read(source(mysql, **keys), FakeContext(), until=bool)
        await mysql.rows("set lock_wait_timeout = 60", "insert into u values (1)")
        await cursor.execute("unlock tables")
    await holder.ensure_closed()
    pages = await read(source(mysql, **keys), FakeContext(), until=has_row("u", 1))
    assert [key for topic, key, _ in rows_of(pages) if topic.endswith((".t", ".u"))] == ['{"id":1}', '{"id":1}']
