"""`python -m service.rehearsal FOLDER`: what a worker does in its first seconds, done once so that it can be kept.

Each JVM writes down as it ends which classes it has loaded (`service.setup.archives`). A class that is not in an
archive is loaded as ever, so the rehearsal goes through what every worker needs, and not through every corner.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from service.embedded.broker import BrokerJvm, embedded_kafka
from service.embedded.jars import spark_avro_jar
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.producer import TransactionalWriter
from service.kafka.reader import read_topic
from service.kafka.records import TopicRecords
from service.setup.archives import archive_arguments
from spark_batch.compiled import compile_plan
from spark_batch.convert import convert_table
from spark_batch.outcome import INPUT_SCHEMA
from spark_batch.plan import Contract, ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat, Rule
from spark_batch.session import SparkSettings, end_jvm, start_session

ENDING_SECONDS_MAX = 120.0
"""Sorting and writing an archive takes seconds of both cores."""
_TOPIC = "rehearsal"
_CONTRACT = {
    "type": "record",
    "name": "Rehearsed",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "number", "type": ["null", "double"], "default": None},
        {"name": "inner", "type": {"type": "record", "name": "Inner", "fields": [{"name": "count", "type": "long"}]}},
    ],
}
_PAYLOADS = (
    b'{"text": "proven", "number": 1.5, "inner": {"count": 1}}',
    b'{"text": "\\ud83d\\ude00 escaped", "number": null, "inner": {"count": 2}}',
    b'{"text": "no number", "inner": {"count": 3}}',
    b'{"text": "refused by the rule", "inner": {"count": -1}}',
    b'{"text": 5}',
    b"{",
)
_AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=1)
PLANS = (
    ConversionPlan(PayloadFormat.JSON, dedupe_fields=("text",)),
    ConversionPlan(PayloadFormat.TEXT, Contract(json.dumps(_CONTRACT)), value_converter=_AVRO),
    ConversionPlan(
        PayloadFormat.JSON,
        Contract(json.dumps(_CONTRACT), rules=(Rule("positive", "inner.count > 0"),)),
        key_fields=("text",),
        dedupe_fields=("text",),
        value_converter=_AVRO,
    ),
)


async def rehearse_kafka(archive: Path) -> None:
    """A broker that formats its folder, makes a topic, takes a transaction and gives it back."""
    jvm = BrokerJvm(options=archive_arguments(archive), stop_seconds_max=ENDING_SECONDS_MAX)
    with tempfile.TemporaryDirectory(prefix="headrace-") as folder:
        async with embedded_kafka(data_dir=Path(folder), jvm=jvm) as broker:
            settings = KafkaSettings(bootstrap=broker.address)
            async with KafkaAdmin.opened(settings) as admin:
                await admin.ensure_topic(_TOPIC, partitions=1, config={"cleanup.policy": "compact"})
            writer = TransactionalWriter(settings, transactional_id=_TOPIC)
            await writer.start()
            keys = pa.array([b"key"] * len(_PAYLOADS), pa.binary())
            await writer.commit([TopicRecords(_TOPIC, pa.array(_PAYLOADS, pa.binary()), keys)])
            await writer.stop()
            async for _ in read_topic(settings, _TOPIC):
                pass


def rehearse_spark(archive: Path) -> None:
    """A session that converts by each of `PLANS`."""
    session = start_session(SparkSettings(avro_jar=spark_avro_jar(), java_options=archive_arguments(archive)))
    columns = {"value": _PAYLOADS, "key": [None] * len(_PAYLOADS), "timestamp": [None] * len(_PAYLOADS)}
    page = pa.table({name: columns[name] for name in INPUT_SCHEMA.names}, schema=INPUT_SCHEMA)
    for plan in PLANS:
        convert_table(session, compile_plan(session, plan), page)
    end_jvm(session, seconds_max=ENDING_SECONDS_MAX)


async def rehearse(folder: Path) -> None:
    """Run the rehearsals of Kafka and of Spark at the same time; each leaves its archive in ``folder``."""
    async with asyncio.TaskGroup() as group:
        group.create_task(rehearse_kafka(folder / "kafka.jsa"))
        group.create_task(asyncio.to_thread(rehearse_spark, folder / "spark.jsa"))


if __name__ == "__main__":
    asyncio.run(rehearse(Path(sys.argv[1])))
