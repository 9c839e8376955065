"""Chapter 7 of *Kafka: The Definitive Guide*, on: a table of MySQL through Kafka into Elasticsearch, as it is printed.

Only addresses are replaced. Ids of documents end with the records' offsets; the marks of transactions take offsets too,
so that they have holes where the book's have none.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord, read_topic
from tests.clients.conftest import COMMAND_SECONDS_MAX, Shell
from tests.databases import MariaDb
from tests.faults.worker_life import wait_until
from tests.java_connect import asked

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
TOPIC = "mysql.login"
SCHEMA = (
    '{"type":"struct","fields":[{"type":"string","optional":true,"field":"username"},'
    '{"type":"int64","optional":true,"name":"org.apache.kafka.connect.data.Timestamp","version":1,'
    '"field":"login_time"}],"optional":false,"name":"login"}'
)
ROWS = [("gwenshap", 1476423962000), ("tpalino", 1476423981000), ("nnarkede", 1476672246000)]


def create(shell: Shell, example: str, address: str) -> tuple[int, Any]:
    """The printed request, with another address."""
    printed = json.loads((EXAMPLES / example).read_text(encoding="utf-8"))
    printed["config"]["connection.url"] = address
    post = "curl -X POST -d @- http://localhost:8083/connectors --header 'content-Type:application/json'"
    return shell.run(f"echo '{json.dumps(printed)}' | {post}")


async def records_of(shell: Shell) -> list[StoredRecord]:
    """Everything in the table's topic."""
    return [record async for batch in read_topic(KafkaSettings(bootstrap=shell.bootstrap), TOPIC) for record in batch]


def documents(address: str) -> dict[str, Any]:
    """What the search server finds in the topic's index, by id."""
    asked(address, "POST", f"/{TOPIC}/_refresh")
    status, found = asked(address, "GET", f"/{TOPIC}/_search?pretty=true")
    return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]} if status == 200 else {}


async def test_the_login_table_goes_through_kafka_into_the_index(
    shell: Shell, mariadb: MariaDb, opensearch: str
) -> None:
    """The record of each row, the document of each record, and those of a row that comes later."""
    await mariadb.rows(
        "create table login (username varchar(30), login_time datetime)",
        "insert into login values ('gwenshap', '2016-10-14 05:46:02'), ('tpalino', '2016-10-14 05:46:21')",
    )
    status, answer = create(shell, "databases/mysql-login.json", mariadb.url.replace("mariadb", "mysql", 1))
    assert (status, answer["config"]["validate.non.null"]) == (201, "false")
    shell.wait_states("mysql-login-connector", "RUNNING", "RUNNING")
    status, answer = create(shell, "seeds/elastic-login-connector.json", opensearch)
    assert (status, answer["config"]["key.ignore"]) == (201, "true")
    assert wait_until(lambda: len(documents(opensearch)) == 2, seconds_max=COMMAND_SECONDS_MAX)
    await mariadb.rows("insert into login values ('nnarkede', '2016-10-17 02:44:06')")
    assert wait_until(lambda: len(documents(opensearch)) == 3, seconds_max=COMMAND_SECONDS_MAX)
    records = await records_of(shell)
    printed = [f'{{"schema":{SCHEMA},"payload":{{"username":"{user}","login_time":{at}}}}}' for user, at in ROWS]
    assert [(record.value or b"").decode() for record in records] == printed
    assert documents(opensearch) == {
        f"{TOPIC}+0+{record.offset}": {"username": user, "login_time": at}
        for record, (user, at) in zip(records, ROWS, strict=True)
    }
    for name in ("elastic-login-connector", "mysql-login-connector"):
        assert asked(shell.url, "DELETE", f"/connectors/{name}")[0] == 204
