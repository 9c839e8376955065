"""What a task tells of texts that were taken for values."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest

from metrics.events import RecordsCoerced
from spark_batch.coercion import Coerce
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import Contract, ConversionPlan, PayloadFormat
from tests.unit.pipeline.fake_kafka import LETTERS, TOPIC
from tests.unit.pipeline.fakes import FakeConversion, World, numbers, running, wait_until

pytestmark = pytest.mark.looptime


class _ExactConversion(FakeConversion):
    """Converts as a worker without Spark would."""

    async def __call__(self, plan: ConversionPlan, records: pa.Table, /, *, is_alone: bool = False) -> pa.Table:
        """The outcome of the exact path."""
        del is_alone
        return convert_exactly(plan, records)


async def test_coerced_records_are_counted_by_field_once_they_are_delivered() -> None:
    """A text that is no number is a dead letter and counts nowhere; what is written has the numbers."""
    fields = [{"name": "id", "type": "long"}, {"name": "share", "type": ["null", "double"], "default": None}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    plan = ConversionPlan(PayloadFormat.JSON, Contract(schema, coerce=frozenset({Coerce.NUMBERS, Coerce.EMPTY})))
    rows = [b'{"id":"1"}', b'{"id":2,"share":""}', b'{"id":"0x3"}', b'{"id":"4","share":"0.5"}']
    world = World(conversion=_ExactConversion())
    async with running(world.task(numbers(rows), plan=plan)):
        await wait_until(lambda: len(world.kafka.values(TOPIC)) == 3)
    assert [json.loads(value or b"") for value in world.kafka.values(TOPIC)] == [
        {"id": 1, "share": None},
        {"id": 2, "share": None},
        {"id": 4, "share": 0.5},
    ]
    assert world.kafka.values(LETTERS) == [b'{"id":"0x3"}']
    counts: Counter[str] = Counter()
    for event in world.told(RecordsCoerced):
        counts[event.field] += event.count
    assert counts == {"id": 2, "share": 2}
