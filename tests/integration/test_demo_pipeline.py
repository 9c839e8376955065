"""The demo of the pipeline in small, on the run's servers and with a Spark of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.bound import bound
from tests.databases import MariaDb
from tests.faults.worker_life import ROOT
from tests.stack import KafkaStack, RegistryStack


@pytest.mark.integration
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_hop_of_the_pipeline_holds_what_was_inserted(
    kafka: KafkaStack, registry: RegistryStack, *, mariadb: MariaDb, opensearch: str, tmp_path: Path
) -> None:
    """Rows, records, documents and rows of Parquet: each once, those before the column and those after it."""
    name, figures_file = f"demo-{uuid.uuid4().hex[:8]}", tmp_path / "figures.json"
    options = {
        "folder": str(tmp_path / "demo"),
        "rows": 60,
        "servers": {"bootstrap.servers": kafka.bootstrap, "schema.registry.url": registry.url, "group.id": name},
        "places": {
            "mariadb": f"127.0.0.1:{mariadb.server.port}",
            "search": opensearch,
            "database": mariadb.name,
            "prefix": f"{name}.",
        },
    }
    done = subprocess.run(
        bound(
            [sys.executable, "-m", "tests.integration.demo_process", "pipeline", json.dumps(options), str(figures_file)]
        ),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(figures_file.read_text())
    assert figures["differences"] == []
    held = [figures[each] for each in ("rows", "records", "documents", "parquet_rows", "with_the_later_column")]
    assert held == [60, 60, 60, 60, 30]
    assert figures["parquet_files"] >= 2
    assert figures["balanced"] is True
