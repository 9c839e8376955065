"""Rows of Iceberg tables on a real broker, a real REST catalogue and a real object storage; each record once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from service.sinks.contract import StartAnew
from service.sinks.iceberg.table import offsets_key
from tests.bound import bound
from tests.fault_proxy import FaultProxy
from tests.iceberg_rest import RestLake
from tests.integration.sinks.sink_runs import QUICK, Sinks, make_topic, produce, wait_until_found
from tests.object_storage import Bucket
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow]
ROOT = Path(__file__).parents[3]
RECORDS = 600


def properties_of(topic: str, **more: str) -> dict[str, str]:
    """A sink that commits twice a second, some records at a time."""
    return {
        "name": topic,
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "topics": topic,
        "iceberg.control.commit.interval-ms": "300",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "consumer.override.max.poll.records": "50",
        **more,
    }


def values(count: int, *, begin: int = 0) -> list[bytes | None]:
    """Objects with a number."""
    return [b'{"n": %d, "name": "x"}' % number for number in range(begin, begin + count)]


def numbers(lake: RestLake) -> list[int]:
    """What stands in the table; nothing while there is none."""
    try:
        return lake.numbers()
    except NoSuchTableError:
        return []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("moment", ["before", "after"])
async def test_killed_at_a_commit(kafka: KafkaStack, rest_lake: RestLake, topic_name: str, moment: str) -> None:
    """Killed -9 with data files that no table knows, and with rows that no group knows: each row is there once."""
    properties = properties_of(topic_name, **rest_lake.properties)
    await make_topic(kafka.bootstrap, topic_name)
    program = Path(__file__).with_name("iceberg_process.py")
    brought = 0

    async def bring(count: int) -> None:
        nonlocal brought
        await produce(kafka.bootstrap, topic_name, values(count, begin=brought))
        brought += count

    for number in ("1", "2"):
        told = json.dumps({**properties, **QUICK})
        command = [sys.executable, str(program), kafka.bootstrap, told, moment, number]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        run = partial(subprocess.run, bound(command), cwd=ROOT, env=environment, check=False, timeout=200)
        await bring(RECORDS)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(asyncio.to_thread(run))
            while not (await asyncio.wait([running], timeout=1))[0]:
                await bring(20)  # which another commit is of: one may hold all that was there
        assert running.result().returncode == -signal.SIGKILL
    await bring(RECORDS)
    async with Sinks(kafka.bootstrap, properties).running():
        await wait_until_found(lambda: len(numbers(rest_lake)) >= brought)
    assert numbers(rest_lake) == list(range(brought))


@pytest.mark.timeout(600)
async def test_a_commit_whose_answer_is_lost_and_a_catalogue_that_is_away(
    kafka: KafkaStack, rest_lake: RestLake, topic_name: str
) -> None:
    """The table is asked what became of the commit; while nobody can be asked, the task begins anew, none is lost."""
    proxy = FaultProxy(int(rest_lake.address.rpartition(":")[2]), lose_after=b"add-snapshot")
    await make_topic(kafka.bootstrap, topic_name)
    await produce(kafka.bootstrap, topic_name, values(RECORDS))
    async with proxy.serving():
        own = {**rest_lake.properties, "iceberg.catalog.uri": f"http://127.0.0.1:{proxy.port}"}
        sinks = Sinks(kafka.bootstrap, properties_of(topic_name, **own))
        async with sinks.running():
            await wait_until_found(lambda: len(numbers(rest_lake)) >= RECORDS)
    assert proxy.lost == 1, "no answer was lost: nothing was proven"
    assert numbers(rest_lake) == list(range(RECORDS))
    await produce(kafka.bootstrap, topic_name, values(RECORDS, begin=RECORDS))
    with pytest.RaisesGroup(StartAnew):
        async with sinks.running():
            await asyncio.Event().wait()
    async with proxy.serving(), sinks.running():
        await wait_until_found(lambda: len(numbers(rest_lake)) >= 2 * RECORDS)
    assert numbers(rest_lake) == list(range(2 * RECORDS))


@pytest.mark.timeout(600)
async def test_tasks_of_one_group_write_one_table(kafka: KafkaStack, rest_lake: RestLake, topic_name: str) -> None:
    """Partitions go from one to the other in the middle; commits meet at the catalogue."""
    properties = properties_of(topic_name, **rest_lake.properties)
    await make_topic(kafka.bootstrap, topic_name, partitions=4)
    sinks = Sinks(kafka.bootstrap, properties)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(sinks.running(0))
        await produce(kafka.bootstrap, topic_name, values(RECORDS))
        await wait_until_found(lambda: len(numbers(rest_lake)) > 0)
        await stack.enter_async_context(sinks.running(1))
        for part in range(1, 5):
            await produce(kafka.bootstrap, topic_name, values(RECORDS, begin=part * RECORDS))
        await wait_until_found(lambda: len(numbers(rest_lake)) >= RECORDS * 5)
    assert numbers(rest_lake) == list(range(RECORDS * 5))
    table = rest_lake.catalog.load_table(f"{rest_lake.namespace}.orders")
    offsets = json.loads(table.properties[offsets_key(topic_name, topic_name)])
    assert sum(offsets.values()) == RECORDS * 5


@pytest.mark.timeout(600)
async def test_a_group_that_was_forgotten(kafka: KafkaStack, rest_lake: RestLake, topic_name: str) -> None:
    """A group without offsets: the table says where to go on."""
    properties = properties_of(topic_name, **rest_lake.properties)
    await make_topic(kafka.bootstrap, topic_name)
    await produce(kafka.bootstrap, topic_name, values(RECORDS))
    async with Sinks(kafka.bootstrap, properties).running():
        await wait_until_found(lambda: len(numbers(rest_lake)) == RECORDS)
    await produce(kafka.bootstrap, topic_name, values(RECORDS, begin=RECORDS))
    another = {**properties, "consumer.override.group.id": f"another-{topic_name}"}
    async with Sinks(kafka.bootstrap, another).running():
        await wait_until_found(lambda: len(numbers(rest_lake)) >= RECORDS * 2)
    assert numbers(rest_lake) == list(range(RECORDS * 2))


@pytest.mark.timeout(600)
async def test_a_warehouse_in_object_storage(
    kafka: KafkaStack, bucket: Bucket, topic_name: str, tmp_path: Path
) -> None:
    """Data files, manifests and metadata are objects; the catalogue is a database."""
    catalog = {
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"s3://{bucket.name}/lake",
        "s3.endpoint": bucket.url,
        "s3.access-key-id": "key",
        "s3.secret-access-key": "word",
        "s3.region": "us-west-2",
    }
    properties = properties_of(
        topic_name,
        **{f"iceberg.catalog.{key}": text for key, text in catalog.items()},
        **{"iceberg.catalog.type": "sql", "iceberg.tables": "shop.orders"},
        **{"iceberg.tables.auto-create-enabled": "true", "iceberg.tables.default-partition-by": "bucket(n, 2)"},
    )

    def there() -> list[int]:
        opened = SqlCatalog("iceberg", **catalog)
        try:
            found: list[Any] = opened.load_table("shop.orders").scan().to_arrow()["n"].to_pylist()
            return sorted(found)
        except NoSuchTableError:
            return []
        finally:
            opened.close()

    await make_topic(kafka.bootstrap, topic_name)
    await produce(kafka.bootstrap, topic_name, values(RECORDS))
    async with Sinks(kafka.bootstrap, properties).running():
        await wait_until_found(lambda: len(there()) >= RECORDS)
    assert there() == list(range(RECORDS))
    assert any(name.endswith(".parquet") for name in bucket.objects("lake/"))
