"""What is said of a sample: by the exact path, by Spark where there are rules, and by the fetcher itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from fetchers.sdk import Page
from fetchers.sdk.page import DedupeScope, Rejection
from service.config.definition import ConnectorDefinition, read_definition
from service.config.worker import with_defaults
from service.preview import judging
from service.preview.judging import (
    SHOWN_BYTES_MAX,
    Judged,
    PreviewParts,
    PreviewRefusedError,
    field_of,
    judge,
    plan_to_judge_by,
)
from service.preview.sampling import Sample, SampleEnd
from service.reading.decoding import plain
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import Contract, ConversionPlan, PlanFinding

SCHEMA = json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
RULES = {"contract.schema": SCHEMA, "contract.rules.positive": "id > 0"}


def defined(**keys: str) -> ConnectorDefinition:
    """A connector with these keys besides those it must have."""
    properties = {"name": "c", "connector.class": "FileStreamSource", "file": "in.txt", "topic": "t", **keys}
    definition = read_definition(properties, worker=with_defaults({})).definition
    assert definition is not None
    return definition


class FakeSpark:
    """Converts like Spark where there are no rules, and rejects nothing for them; remembers what it was asked."""

    def __init__(self, *found: PlanFinding) -> None:
        self.found = found
        self.plans: list[ConversionPlan] = []

    async def convert(self, plan: ConversionPlan, batch: pa.Table, *, is_alone: bool = False) -> pa.Table:
        """The exact outcome."""
        del is_alone
        self.plans.append(plan)
        assert plan.contract is not None
        ruleless = Contract(plan.contract.schema)
        return convert_exactly(
            ConversionPlan(plan.payload_format, ruleless, value_converter=plan.value_converter), batch
        )

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """What it was made with."""
        del plan
        return self.found


def parts(spark: FakeSpark | None = None) -> PreviewParts:
    """Without a registry; Spark is asked only where the test gives one."""
    spark = spark or FakeSpark(PlanFinding("spark", "", "not to be asked"))

    async def contract_of(definition: ConnectorDefinition) -> str | None:
        return definition.contract_source.text if definition.contract_source else None

    return PreviewParts(contract_of, spark.convert, spark.check)


async def judged(definition: ConnectorDefinition, *pages: Page, spark: FakeSpark | None = None) -> Judged:
    """The verdicts on a sample of these pages."""
    asked = parts(spark)
    plan = await plan_to_judge_by(definition, asked)
    return await judge(definition, plan, Sample(pages, SampleEnd.SOURCE), asked)


def page(*payloads: bytes | None, **options: Any) -> Page:
    """A page of the one source partition."""
    return Page(list(payloads), {}, **options)


async def test_a_contract_without_rules_is_judged_without_spark() -> None:
    """A tombstone is valid and has no value."""
    found = await judged(defined(**{"contract.schema": SCHEMA}), page(b'{"id":1}', None, b"{}"))
    assert [record.verdict for record in found.records] == ["valid", "valid", "rejected"]
    assert [record.value for record in found.records] == [{"id": 1}, None, None]
    assert not found.is_by_spark


async def test_a_contract_with_rules_is_judged_by_spark() -> None:
    """By the plan as it is, rules and all."""
    spark = FakeSpark()
    found = await judged(defined(**RULES), page(b'{"id":1}', b"no"), spark=spark)
    assert found.is_by_spark
    assert [plan.contract.rules[0].name for plan in spark.plans if plan.contract] == ["positive"]
    assert found.reasons == {"malformed_json": 1}


async def test_rules_that_spark_finds_wrong_refuse_the_preview() -> None:
    """With the key of the config, before anything is fetched."""
    spark = FakeSpark(PlanFinding("contract.rules.positive", "id >", "an expression"))
    with pytest.raises(PreviewRefusedError) as caught:
        await plan_to_judge_by(defined(**RULES), parts(spark))
    assert [finding.key for finding in caught.value.findings] == ["contract.rules.positive"]


async def test_what_the_fetcher_cannot_vouch_for_is_rejected_whatever_it_holds() -> None:
    """As in a task, where it becomes a dead letter with the fetcher's own reason."""
    rejected = page(b"{}", b"{}", rejections=(Rejection(1, "too_large", "a line of 9 MB"),))
    _, second = (await judged(defined(), rejected)).records
    assert (second.verdict, second.stage, second.reason) == ("rejected", "TASK_POLL", "too_large")
    assert (second.message, second.field, second.value) == ("a line of 9 MB", None, None)


async def test_equal_records_are_duplicates_in_their_own_window_only() -> None:
    """And a rejected record does not stand in the way of a valid one."""
    definition = defined(**{"contract.schema": SCHEMA, "dedupe.fields": "id"})
    monday, tuesday = DedupeScope("mon", "mon"), DedupeScope("tue", "mon")
    pages = (page(b'{"id":1}', b'{"id":1,"x":2}', dedupe=monday), page(b'{"id":1}', dedupe=tuesday))
    found = await judged(definition, *pages)
    assert [record.verdict for record in found.records] == ["valid", "duplicate", "valid"]


async def test_records_go_where_their_pages_and_routers_say() -> None:
    """Every topic by its own way through the transformations."""
    router = {
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": "(.*)",
        "transforms.r.replacement": "$1-raw",
    }
    found = await judged(defined(**router), page(b"a"), page(b"b", topic="other"))
    assert [(record.topic, record.value) for record in found.records] == [("t-raw", "a"), ("other-raw", "b")]


async def test_a_key_of_a_number_is_shown_as_one() -> None:
    """And not as the bytes that it is in Kafka."""
    definition = defined(**{"contract.schema": SCHEMA, "key.fields": "id", "key.converter": "long"})
    found = await judged(definition, page(b'{"id":258}'))
    assert [record.key for record in found.records] == [258]


async def test_no_records_are_no_verdicts() -> None:
    """Nothing is converted for them."""
    assert (await judged(defined())).records == ()


@pytest.mark.parametrize("converter", ["json", "string", "avro"])
async def test_what_is_long_is_judged_whole_and_not_decoded(converter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its beginning is all that is shown of it; decoding some megabytes takes seconds. Avro may be longer."""
    monkeypatch.setattr(judging, "AVRO_BYTES_MAX", SHOWN_BYTES_MAX + 1000)
    registry = {"value.converter.schema.registry.url": "http://127.0.0.1:9"}
    schema = SCHEMA.replace("long", "string")
    definition = defined(**{"contract.schema": schema, "value.converter": converter}, **registry)
    rest = judging.AVRO_BYTES_MAX if converter == "avro" else SHOWN_BYTES_MAX
    long, short = (b'{"id":"%s"}' % (b"x" * (length - 100)) for length in (rest + 200, rest))
    first, second = (await judged(definition, page(long, short))).records
    assert (first.verdict, isinstance(first.value, bytes)) == ("valid", True)
    assert not isinstance(second.value, bytes)


async def test_keys_and_values_are_decoded_outside_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is that of the worker's connectors, where a client asks for the preview."""
    threads: set[threading.Thread] = set()

    def decoded(data: bytes) -> Any:
        threads.add(threading.current_thread())
        return plain(data)

    monkeypatch.setattr(judging, "plain", decoded)
    assert [
        record.value for record in (await judged(defined(**{"contract.schema": SCHEMA}), page(b'{"id":1}'))).records
    ]
    assert threads
    assert threading.current_thread() not in threads


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("order.lines[2].sku: expected text", "order.lines[2].sku"),
        ("record: expected at most 10 bytes", None),
        ("key: expected UTF-8", None),
        ("rule positive: expected to be true", None),
        ("transformation x: expected an object", None),
        ("not JSON at character 3", None),
        (None, None),
    ],
)
def test_the_field_to_blame_is_taken_from_the_message(message: str | None, field: str | None) -> None:
    """Only where one is."""
    assert field_of(message) == field
