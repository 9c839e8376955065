"""Spark is started with the classes that set-up has archived: really mapped, not only named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spark_batch.plan import ConversionPlan, ConverterKind, ConverterSpec, PayloadFormat
from spark_batch.session import jvm_pid
from tests.spark.engines import LocalEngine, table


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has mapped is read from Linux's /proc")
def test_spark_maps_its_archive(local_engine: LocalEngine) -> None:
    """Beside all the options that a session is launched with."""
    plan = ConversionPlan(PayloadFormat.TEXT, value_converter=ConverterSpec(ConverterKind.STRING))
    local_engine.convert(plan, table([b"x"]))
    pid = jvm_pid()
    assert pid is not None
    assert "/spark.jsa\n" in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")
