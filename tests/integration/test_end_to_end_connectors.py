"""From source to topic, through the real worker, broker and registry: one run, looked at from all sides."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest

from tests import journal
from tests.integration.end_to_end_job import (
    BROKEN,
    ITEMS,
    ORDER_LINES,
    ORDER_SCHEMA,
    ORDERS,
    TEXT_LINES,
    WRONG,
    FinishedRun,
    finished_run,
)
from tests.stack import KafkaStack, RegistryStack

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def run(kafka: KafkaStack, registry: RegistryStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FinishedRun]:
    """The job, run to its end."""
    folder, prefix = tmp_path_factory.mktemp("end-to-end"), f"e2e-{uuid.uuid4().hex[:8]}"
    with finished_run(folder, prefix=prefix, bootstrap=kafka.bootstrap, registry_url=registry.url) as finished:
        yield finished


def test_an_idle_job_ends_cleanly(run: FinishedRun) -> None:
    """``--until-idle`` ends by itself with exit code 0, every task stopped complete and nothing failed."""
    assert run.exit_code == 0, run.life.log_text()[-4000:]
    assert run.life.events("task_failed") == []
    stops = run.life.events("stop_reported")
    assert len(stops) == 11
    assert all(stop["is_complete"] for stop in stops)


def test_file_to_avro_with_contract(run: FinishedRun) -> None:
    """Good lines are Avro by the registered schema, in order; a repeated one is dropped, bad ones are elsewhere."""
    expected = [json.loads(line) for line in ORDERS]
    found = run.decoded("orders")
    assert [(order["number"], order["customer"], order["note"]) for order in found] == [
        (order["number"], order["customer"], None) for order in expected
    ]
    assert [round(order["at"].timestamp() * 1000) for order in found] == [order["at"] for order in expected]
    assert {(value or b"")[:1] for value in run.values("orders")} == {b"\0"}


def test_dead_letters_say_everything(run: FinishedRun) -> None:
    """A dead letter has the original bytes and all headers: Connect's, and where the record came from."""
    letters = run.records("orders-dead-letters")
    assert [letter.value for letter in letters] == [BROKEN, WRONG]
    for letter, reason, index in zip(
        letters, ("malformed_json", "wrong_type"), (20, len(ORDER_LINES) - 1), strict=True
    ):
        headers = journal.headers_of(letter)
        position = sum(len(line) + 1 for line in ORDER_LINES[:index])
        offset = json.loads(headers.pop("__headrace.errors.source.offset"))
        message = headers.pop("__connect.errors.exception.message")
        assert offset["position"] == position
        assert message
        assert "custom" not in message
        assert headers == {
            "__connect.errors.topic": run.name("orders"),
            "__connect.errors.connector.name": run.name("orders"),
            "__connect.errors.task.id": "0",
            "__connect.errors.stage": "VALUE_CONVERTER",
            "__connect.errors.class.name": "io.confluent.connect.avro.AvroConverter",
            "__connect.errors.exception.class.name": "org.apache.kafka.connect.errors.DataException",
            "__headrace.errors.reason": reason,
            "__headrace.errors.source.partition": json.dumps(
                {"filename": str(run.folder / "orders.jsonl")}, separators=(",", ":")
            ),
        }


def test_json_with_and_without_envelope(run: FinishedRun) -> None:
    """Both forms of JsonConverter hold the same payload; the envelope holds the contract as a Connect schema."""
    payloads = [json.loads(value or b"") for value in run.values("plain")]
    assert payloads == [{**json.loads(line), "note": None} for line in ORDERS]
    enveloped = [json.loads(value or b"") for value in run.values("enveloped")]
    assert [envelope["payload"] for envelope in enveloped] == payloads
    schema = enveloped[0]["schema"]
    assert (schema["type"], schema["name"], schema["optional"]) == ("struct", "shop.Order", False)
    assert [part["field"] for part in schema["fields"]] == [part["name"] for part in ORDER_SCHEMA["fields"]]
    assert [part["type"] for part in schema["fields"]] == ["int64", "string", "int64", "string"]


def test_text_and_bytes_are_the_lines_themselves(run: FinishedRun) -> None:
    """String and bytes converters deliver every line byte for byte, the empty one too."""
    assert run.values("text") == TEXT_LINES
    assert run.values("raw") == TEXT_LINES


def test_key_and_timestamp_come_from_fields(run: FinishedRun) -> None:
    """Records carry key and timestamp of their fields, and one key always goes to one partition."""
    records = run.records("keyed")
    numbers = {json.loads(record.value or b"")["number"]: record for record in records}
    assert len(records) == len(numbers) == len(ORDERS)
    for line in ORDERS:
        order = json.loads(line)
        record = numbers[order["number"]]
        assert json.loads(record.key or b"") == {"number": order["number"]}
        assert record.timestamp == order["at"]
    assert len({record.partition for record in records}) == 3


def test_at_least_once_uses_no_transactions(run: FinishedRun) -> None:
    """Without transactions there are records and nothing else in the log; a quiet run repeats none."""
    assert len(run.values("loose")) == len(ORDERS)
    assert journal.log_end(run.bootstrap, run.name("loose")) == len(ORDERS)
    assert journal.log_end(run.bootstrap, run.name("plain")) > len(ORDERS)


def test_an_offset_that_connect_wrote_is_honoured(run: FinishedRun) -> None:
    """Reading goes on where Kafka Connect stood."""
    assert run.values("resumed") == TEXT_LINES[1:]


def test_offsets_are_records_of_kafka_connect(run: FinishedRun) -> None:
    """Keys and values of the offset topic, to the byte."""
    last = {record.key: record.value for record in run.records("offsets")}
    assert last[f'["{run.name("own")}",{{}}]'.encode()] == b'{"left":0}'
    file = run.folder / "text.txt"
    value = last[f'["{run.name("text")}",{{"filename":"{file}"}}]'.encode()] or b""
    offset = json.loads(value)
    assert value == json.dumps(offset, separators=(",", ":")).encode()
    assert (offset["position"], offset["inode"]) == (file.stat().st_size, file.stat().st_ino)


def test_own_connector_from_python_path(run: FinishedRun) -> None:
    """A class named ``module:Class`` runs like any other."""
    assert run.values("own") == [b'{"left":%d}' % left for left in (3, 2, 1, 0)]


def test_http_reads_every_page_once(run: FinishedRun) -> None:
    """Pages follow their cursor; what later rounds show again is not delivered again."""
    assert [json.loads(value or b"")["id"] for value in run.values("http")] == list(range(ITEMS))


def test_mixpanel_days_arrive_once(run: FinishedRun) -> None:
    """Three days, a cut and a 429 in between: each event once, each bad line once."""
    truth = run.truth
    assert truth.delivered == 600
    assert truth.dead_lettered == 15
    events = run.decoded("mixpanel")
    keys = {
        (
            event["event"],
            event["properties"]["distinct_id"],
            event["properties"]["time"],
            event["properties"]["insert_id"],
        )
        for event in events
    }
    assert len(events) == len(keys) == truth.delivered
    assert len(set(run.values("mixpanel-dead-letters"))) == len(run.values("mixpanel-dead-letters")) == 15


def test_health_and_metrics_can_be_asked_while_it_runs(run: FinishedRun) -> None:
    """First not ready, with what is missing; then ready with every task; metrics count what was delivered."""
    assert run.healths[0][0] == 503
    assert json.loads(run.healths[0][1])["components"]["spark"]["ready"] is False
    assert run.is_running_seen
    assert run.delivered("orders", "http") == {"orders": len(ORDERS), "http": ITEMS}


def test_no_secret_is_logged(run: FinishedRun) -> None:
    """The secret of the service account shows nowhere."""
    assert "simulated-secret" not in run.life.log_text() + run.metrics + json.dumps(run.healths)
