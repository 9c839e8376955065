"""Chapter 7 of *Kafka: The Definitive Guide*, on: a table of MySQL through Kafka into Elasticsearch, as it is printed.

Only addresses are replaced. Ids of documents end with the records' offsets; the marks of transactions take offsets too,
so that they have holes where the book's have none.
"""

from __future__ import annotations

from typing import Any

import pytest

from service.config.files import read_properties
from service.kafka.client import KafkaSettings
from service.kafka.reader import StoredRecord, read_topic
from tests.clients.conftest import COMMAND_SECONDS_MAX, SEEDS, Shell, printed
from tests.databases import MariaDb
from tests.faults.worker_life import wait_until
from tests.integration.sinks.sink_runs import make_topic, produce
from tests.java_connect import asked

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

*_, JDBC, SEARCH, ELASTIC, INDICES, FOUND = printed("definitive-guide.sh")
TOPIC = "mysql.login"
SCHEMA = (
    '{"type":"struct","fields":[{"type":"string","optional":true,"field":"username"},'
    '{"type":"int64","optional":true,"name":"org.apache.kafka.connect.data.Timestamp","version":1,'
    '"field":"login_time"}],"optional":false,"name":"login"}'
)
ROWS = [("gwenshap", 1476423962000), ("tpalino", 1476423981000), ("nnarkede", 1476672246000)]


async def records_of(shell: Shell) -> list[StoredRecord]:
    """Everything in the table's topic."""
    return [record async for batch in read_topic(KafkaSettings(bootstrap=shell.bootstrap), TOPIC) for record in batch]


def documents(shell: Shell, address: str) -> dict[str, Any]:
    """What the search server finds in the topic's index, by id."""
    asked(address, "POST", f"/{TOPIC}/_refresh")
    status, found = shell.run(at(FOUND, address))
    return {hit["_id"]: hit["_source"] for hit in found["hits"]["hits"]} if status == 200 else {}


def at(command: str, address: str) -> str:
    """The printed command, with the search server's address."""
    return command.replace("localhost:9200", address.removeprefix("http://"))


async def make_table(mariadb: MariaDb) -> None:
    """The printed statements, in this test's database and at the times of the book's evening."""
    printed_statements = (SEEDS / "login.sql").read_text(encoding="utf-8").replace("test;", f"{mariadb.name};")
    statements = [each.strip() for each in printed_statements.split(";") if each.strip()]
    times = iter(ROWS)
    timed = [
        step
        for each in statements
        for step in ([f"set timestamp = {next(times)[1] // 1000}"] if each.startswith("insert") else []) + [each]
    ]
    await mariadb.rows(f"drop database {mariadb.name}", *timed, database=None)


async def test_the_login_table_goes_through_kafka_into_the_index(
    shell: Shell, mariadb: MariaDb, opensearch: str
) -> None:
    """The record of each row, the document of each record, and those of a row that comes later."""
    await make_table(mariadb)
    status, answer = shell.run(JDBC.replace("127.0.0.1:3306/test", f"127.0.0.1:{mariadb.server.port}/{mariadb.name}"))
    assert (status, answer["config"]["validate.non.null"]) == (201, "false")
    shell.wait_states("mysql-login-connector", "RUNNING", "RUNNING")
    assert shell.run(at(SEARCH, opensearch))[0] == 200
    status, answer = shell.run(at(ELASTIC, opensearch))
    assert (status, answer["config"]["key.ignore"]) == (201, "true")
    assert wait_until(lambda: len(documents(shell, opensearch)) == 2, seconds_max=COMMAND_SECONDS_MAX)
    await mariadb.rows("insert into login values ('nnarkede', '2016-10-17 02:44:06')")
    assert wait_until(lambda: len(documents(shell, opensearch)) == 3, seconds_max=COMMAND_SECONDS_MAX)
    assert TOPIC in shell.run(at(INDICES, opensearch))[1].split()
    records = await records_of(shell)
    values = [f'{{"schema":{SCHEMA},"payload":{{"username":"{user}","login_time":{at_ms}}}}}' for user, at_ms in ROWS]
    assert [(record.value or b"").decode() for record in records] == values
    assert documents(shell, opensearch) == {
        f"{TOPIC}+0+{record.offset}": {"username": user, "login_time": at_ms}
        for record, (user, at_ms) in zip(records, ROWS, strict=True)
    }
    for name in ("elastic-login-connector", "mysql-login-connector"):
        assert asked(shell.url, "DELETE", f"/connectors/{name}")[0] == 204


async def test_the_quickstart_of_the_search_sink(shell: Shell, opensearch: str) -> None:
    """Its one topic becomes its index."""
    config = read_properties(SEEDS / "quickstart-elasticsearch.properties") | {"connection.url": opensearch}
    schema = '{"type":"struct","optional":false,"fields":[{"type":"int64","optional":false,"field":"n"}]}'
    await make_topic(shell.bootstrap, config["topics"])
    await produce(shell.bootstrap, config["topics"], [f'{{"schema":{schema},"payload":{{"n":1}}}}'.encode()])
    status, answer = asked(shell.url, "PUT", f"/connectors/{config['name']}/config", config)
    assert status == 201, answer

    def is_found() -> bool:
        asked(opensearch, "POST", f"/{config['topics']}/_refresh")
        status, found = asked(opensearch, "GET", f"/{config['topics']}/_search")
        hits = found["hits"]["hits"] if status == 200 else []
        return [(hit["_id"], hit["_source"]) for hit in hits] == [(f"{config['topics']}+0+0", {"n": 1})]

    assert wait_until(is_found, seconds_max=COMMAND_SECONDS_MAX)
    assert asked(shell.url, "DELETE", f"/connectors/{config['name']}")[0] == 204
