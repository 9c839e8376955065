"""Connectors that hang harm no request and no other task."""

from __future__ import annotations

import asyncio
from pathlib import Path
from shutil import copy

import pytest

from tests.cluster.processes import CALM_SESSION_MS, INSTANT, RUNNING, Field
from tests.cluster.test_rolling import tasks_told
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(600)]
CALL_SECONDS_MAX = 15
MODULE = Path(__file__).with_name("hanging.py")


async def test_what_hangs_in_a_connector_harms_nobody_else(kafka: KafkaStack, tmp_path: Path) -> None:
    """In its check, its splitting or its fetch, on both workers; even one that cannot be cancelled is deleted."""
    copy(MODULE, tmp_path / "hanging_connector.py")
    more = {"session_timeout_ms": CALM_SESSION_MS, "task_shutdown_graceful_timeout_ms": "2000"}
    quick = (*INSTANT, str(CALL_SECONDS_MAX))
    async with Field.opened(kafka.bootstrap, tmp_path, command=quick, **more) as field:
        workers = await field.start(2)
        await field.load(2)
        told = tasks_told(workers)
        for number in range(2):
            for where in ("fetch", "stubborn", "task_configs"):
                await workers[number].done("POST", "/connectors", hanging(f"{where}-{number}", where))
        async with asyncio.TaskGroup() as group:
            checks = [
                group.create_task(worker.ask("POST", "/connectors", hanging("checked", "findings")), name="check")
                for worker in workers
            ]
            for worker in workers:
                await worker.wait_states("fetch-0", RUNNING)
                await worker.wait_states("stubborn-1", RUNNING)
                await worker.wait_until("task_configs-0", bool)
                name = f"brief-{worker.worker_id}".replace(":", "-")
                await worker.done("PUT", f"/connectors/{name}/config", field.idle_source(name))
                await worker.wait_states(name, RUNNING)
                await worker.done("PUT", f"/connectors/{name}/pause")
                await worker.wait_states(name, {"": "PAUSED", "0": "PAUSED"})
            await field.wait_growth()
        assert {check.result()[0] // 100 for check in checks} <= {4, 5}
        for number in range(2):
            for where in ("fetch", "stubborn", "task_configs"):
                await workers[1 - number].done("DELETE", f"/connectors/{where}-{number}")
                await workers[number].wait_states(f"{where}-{number}", {})
        await field.wait_growth()
        assert tasks_told(workers) == told
        await field.demand_all_once()
        for worker in workers:
            await worker.stop()


def hanging(name: str, where: str) -> dict[str, object]:
    """Body of a request that creates such a connector."""
    config = {"connector.class": "hanging_connector:Hanging", "topic": "never", "hang.in": where}
    return {"name": name, "config": config}
