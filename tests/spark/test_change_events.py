"""Rows of change events through Spark: what the exact path gives, which is compared with Debezium's class."""

from __future__ import annotations

import json

import pytest

from service.config.transformations import read_transformations
from spark_batch.convert_exactly import convert_exactly
from spark_batch.plan import ConverterKind, ConverterSpec
from tests.differential.test_change_events_in_java import MODES, page_of_events, plan_of, properties, table_of
from tests.spark.engines import Engine

AVRO = ConverterSpec(ConverterKind.AVRO, schema_id=7)
CHAIN = {
    "transforms": "route,x0,cast",
    "transforms.route.type": "io.debezium.transforms.ByLogicalTableRouter",
    "transforms.route.topic.regex": "t",
    "transforms.route.topic.replacement": "all",
    "transforms.cast.type": "org.apache.kafka.connect.transforms.Cast$Value",
    "transforms.cast.spec": "price:string,id:int32",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_avro", [False, True])
def test_rows_of_events_are_those_of_the_exact_path(local_engine: Engine, mode: str, *, is_avro: bool) -> None:
    """Rows, tombstones and what is dropped, with another transformation behind."""
    page = page_of_events()
    config = {**properties(mode, {"add.fields": "op,source.lsn,snapshot,transaction.id"}), **CHAIN}
    more = {"transformations": read_transformations(config).steps}
    plan = plan_of(page, **more)
    if is_avro:
        plan = plan_of(page, **more, value_converter=AVRO, key_converter=AVRO)
    found = local_engine.convert(plan, table_of(page))
    exactly = convert_exactly(plan_of(page, **more), table_of(page))
    assert found["is_dropped"].to_pylist() == exactly["is_dropped"].to_pylist()
    assert found["reason"].null_count == len(page)
    if is_avro:
        assert found["value"].is_null().to_pylist() == exactly["value"].is_null().to_pylist()
        return
    kept = [not is_dropped for is_dropped in exactly["is_dropped"].to_pylist()]
    values = [
        [json.loads(text or b"null") for text in each.filter(kept)["value"].to_pylist()] for each in (found, exactly)
    ]
    assert values[0] == values[1]
    assert values[0][1]["payload"]["price"] is None
