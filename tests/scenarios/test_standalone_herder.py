"""A standalone worker's connectors through their lives, over REST, on a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from service.app import open_worker
from service.job import ConfigRefusedError, make_job
from spark_batch.plan import ConversionPlan, PlanFinding
from tests.rest_client import LOOK_SECONDS
from tests.scenarios.cluster_workers import Cluster, InstantConversion
from tests.stack import KafkaStack

pytestmark = pytest.mark.integration


@pytest.fixture
def cluster(kafka: KafkaStack, tmp_path: Path) -> Cluster:
    """Names of its own."""
    return Cluster(kafka.bootstrap, tmp_path)


async def test_a_connector_through_its_life(cluster: Cluster) -> None:
    """Create, pause, resume, stop, resume, restart, reconfigure, delete: every line once, whatever happens between."""
    first = cluster.file(["a", "b"])
    async with cluster.worker(is_distributed=False) as worker:
        config = cluster.source(first)
        assert (await worker.ask("POST", "/connectors", {"name": "c", "config": config}))[0] == 201
        await worker.wait_states("c", {"": "RUNNING", "0": "RUNNING"})
        await cluster.wait_lines(first, ["a", "b"])
        assert (await worker.ask("PUT", "/connectors/c/pause"))[0] == 202
        await worker.wait_states("c", {"": "PAUSED", "0": "PAUSED"})
        with first.open("a") as file:
            file.write("c\n")
        assert (await worker.ask("PUT", "/connectors/c/resume"))[0] == 202
        await worker.wait_states("c", {"": "RUNNING", "0": "RUNNING"})
        await cluster.wait_lines(first, ["a", "b", "c"])
        assert (await worker.ask("PUT", "/connectors/c/stop"))[0] == 204
        await worker.wait_states("c", {"": "STOPPED"})
        [offset] = (await worker.done("GET", "/connectors/c/offsets"))["offsets"]
        assert offset["partition"] == {"filename": str(first)}
        assert offset["offset"]["position"] == 6
        assert await worker.done("GET", "/connectors/c/topics") == {"c": {"topics": [f"{cluster.name}-lines"]}}
        await worker.done("PUT", "/connectors/c/resume")
        await worker.wait_states("c", {"": "RUNNING", "0": "RUNNING"})
        assert (await worker.ask("POST", "/connectors/c/restart?includeTasks=true"))[0] == 202
        with first.open("a") as file:
            file.write("d\n")
        await cluster.wait_lines(first, ["a", "b", "c", "d"])
        # A commit is read by others before its task has heard of it, and told of the topic: a paused one has.
        await worker.done("PUT", "/connectors/c/pause")
        await worker.wait_states("c", {"": "PAUSED", "0": "PAUSED"})
        assert (await worker.ask("PUT", "/connectors/c/topics/reset"))[0] == 202
        assert await worker.done("GET", "/connectors/c/topics") == {"c": {"topics": []}}
        await worker.done("PUT", "/connectors/c/resume")
        with first.open("a") as file:
            file.write("e\n")
        await cluster.wait_lines(first, ["a", "b", "c", "d", "e"])
        while await worker.done("GET", "/connectors/c/topics") != {"c": {"topics": [f"{cluster.name}-lines"]}}:
            await asyncio.sleep(LOOK_SECONDS)
        second = cluster.file(["x"], name="other.txt")
        assert (await worker.ask("PUT", "/connectors/c/config", cluster.source(second)))[0] == 200
        await cluster.wait_lines(second, ["x"])
        await worker.wait_states("c", {"": "RUNNING", "0": "RUNNING"})
        assert (await worker.ask("DELETE", "/connectors/c"))[0] == 204
        assert (await worker.ask("GET", "/connectors/c/status"))[0] == 404
        assert await worker.done("GET", "/connectors") == []
    assert await cluster.lines(first) == ["a", "b", "c", "d", "e"]


async def test_offsets_changed_by_hand_are_where_the_source_goes_on(cluster: Cluster) -> None:
    """Set back: lines come again from there; reset: all of them."""
    path = cluster.file(["a", "b", "c"])
    async with cluster.worker({"name": "c", **cluster.source(path)}, is_distributed=False) as worker:
        await cluster.wait_lines(path, ["a", "b", "c"])
        await worker.done("PUT", "/connectors/c/stop")
        await worker.wait_states("c", {"": "STOPPED"})
        entry = {"partition": {"filename": str(path)}, "offset": {"position": 4}}
        assert await worker.done("PATCH", "/connectors/c/offsets", {"offsets": [entry]}) == {
            "message": "The offsets for this connector have been altered successfully"
        }
        await worker.done("PUT", "/connectors/c/resume")
        await cluster.wait_lines(path, ["a", "b", "c", "c"])
        await worker.done("PUT", "/connectors/c/stop")
        await worker.wait_states("c", {"": "STOPPED"})
        assert await worker.done("DELETE", "/connectors/c/offsets") == {
            "message": "The offsets for this connector have been reset successfully"
        }
        assert await worker.done("GET", "/connectors/c/offsets") == {"offsets": []}
        await worker.done("PUT", "/connectors/c/resume")
        await cluster.wait_lines(path, ["a", "b", "c", "c", "a", "b", "c"])


async def test_connectors_of_files_come_back_and_those_of_clients_do_not(cluster: Cluster) -> None:
    """With their offsets: a line that was delivered is not delivered again."""
    path, other = cluster.file(["a"]), cluster.file(["x"], name="other.txt")
    of_file = {"name": "of-file", **cluster.source(path)}
    async with cluster.worker(of_file, is_distributed=False) as worker:
        await worker.done("POST", "/connectors", {"name": "of-client", "config": cluster.source(other)})
        await cluster.wait_lines(path, ["a"])
        await cluster.wait_lines(other, ["x"])
    with path.open("a") as file:
        file.write("b\n")
    async with cluster.worker(of_file, is_distributed=False) as worker:
        assert await worker.done("GET", "/connectors") == ["of-file"]
        await cluster.wait_lines(path, ["a", "b"])


async def test_a_failed_task_is_told_and_restarted_by_hand(cluster: Cluster) -> None:
    """With its trace; what was missing is there the second time."""
    path = cluster.folder / "folder"
    path.mkdir()
    async with cluster.worker(is_distributed=False) as worker:
        config = {**cluster.source(path), "errors.restart.max": "0"}
        await worker.done("POST", "/connectors", {"name": "c", "config": config})
        # It runs for a moment before it fails.
        await worker.wait_until("c", lambda states: states.get("0", ("",))[0] == "FAILED")
        status = await worker.done("GET", "/connectors/c/tasks/0/status")
        assert "is not a regular file" in status["trace"]
        path.rmdir()
        path.write_text("a\n")
        await worker.done("POST", "/connectors/c/tasks/0/restart")
        await cluster.wait_lines(path, ["a"])
        await worker.wait_states("c", {"": "RUNNING", "0": "RUNNING"})


async def test_a_wrong_rule_is_refused_before_any_connector_begins(cluster: Cluster) -> None:
    """What only Spark can tell is told like the rest of a wrong config: source, key, value, reason."""
    path = cluster.file(["{}"])
    contract = {
        "contract.schema": '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}',
        "contract.rules.x": "a >",
    }
    connectors = [{"name": "right", **cluster.source(path)}, {"name": "wrong", **cluster.source(path), **contract}]
    job = make_job(cluster.properties(), connectors)
    async with open_worker(job, conversion=NoRule()) as running:
        with pytest.raises(ConfigRefusedError) as refusal:
            await running.worker.run(idle_seconds=0.5)
    (source,) = refusal.value.sources
    assert source.source == "wrong"
    assert [(finding.key, finding.value) for finding in source.findings] == [("contract.rules.x", "a >")]
    assert "no rule at all" in source.findings[0].message
    assert await cluster.lines(path) == []


async def test_a_wrong_rule_of_a_request_is_a_mistake_of_the_request(cluster: Cluster) -> None:
    """HTTP 400 before anything is written, for who creates as for who changes; who validates sees it at its key."""
    path = cluster.file(["{}"])
    contract = {
        "contract.schema": '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}',
        "contract.rules.x": "a > 1",
    }
    right = cluster.source(path)
    wrong = {**right, **contract}
    job = make_job(cluster.properties(), [{"name": "right", **right}])
    async with open_worker(job, conversion=NoRule()) as running, asyncio.TaskGroup() as group:
        group.create_task(running.worker.run(), name="worker")
        await cluster.wait_lines(path, ["{}"])
        async with aiohttp.ClientSession(running.addresses.rest) as client:
            for method, url, body in (
                ("POST", "/connectors", {"name": "wrong", "config": wrong}),
                ("PUT", "/connectors/wrong/config", wrong),
                ("PUT", "/connectors/right/config", wrong),
                ("PATCH", "/connectors/right/config", contract),
            ):
                async with client.request(method, url, json=body) as answer:
                    assert (answer.status, "no rule at all" in await answer.text()) == (400, True), url
            named = {"name": "wrong", **wrong}
            async with client.put("/connector-plugins/FileStreamSource/config/validate", json=named) as answer:
                configs = (await answer.json())["configs"]
            assert [each["value"]["name"] for each in configs if each["value"]["errors"]] == ["contract.rules.x"]
            async with client.get("/connectors") as answer:
                assert await answer.json() == ["right"]
        running.worker.request_stop("asked")


async def test_a_worker_that_waits_for_spark_to_look_at_rules_can_be_stopped(cluster: Cluster) -> None:
    """And answers meanwhile."""
    rules = {
        "contract.schema": '{"type":"record","name":"R","fields":[{"name":"a","type":"long"}]}',
        "contract.rules.x": "a > 1",
    }
    job = make_job(cluster.properties(), [{"name": "c", **cluster.source(cluster.file(["{}"])), **rules}])
    conversion = NoSparkYet()
    async with open_worker(job, conversion=conversion) as running, asyncio.TaskGroup() as group:
        group.create_task(running.worker.run(), name="worker")
        await conversion.asked.wait()
        async with aiohttp.ClientSession(running.addresses.rest) as client, client.get("/connectors") as answer:
            assert await answer.json() == []
        running.worker.request_stop("asked")


class NoRule(InstantConversion):
    """Takes no rule."""

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """One finding for each."""
        rules = plan.contract.rules if plan.contract else ()
        return [PlanFinding(f"contract.rules.{rule.name}", rule.expression, "no rule at all") for rule in rules]


class NoSparkYet(InstantConversion):
    """Never there to look at rules."""

    is_ready = False

    def __init__(self) -> None:
        """Not asked yet."""
        self.asked = asyncio.Event()

    async def check(self, plan: ConversionPlan) -> Sequence[PlanFinding]:
        """No answer."""
        del plan
        self.asked.set()
        await asyncio.Event().wait()
        return ()


async def test_until_idle_ends_when_all_connectors_have_done_their_work(cluster: Cluster) -> None:
    """And says whether one of them was FAILED; clients hear that it stops."""
    path = cluster.file([str(number) for number in range(1000)])
    job = make_job(cluster.properties(), [{"name": "c", **cluster.source(path)}])
    async with open_worker(job, conversion=InstantConversion()) as running:
        await running.worker.run(idle_seconds=0.5)
        assert not running.worker.has_failed
        assert await cluster.lines(path) == [str(number) for number in range(1000)]
        async with aiohttp.ClientSession(running.addresses.rest) as client, client.get("/connectors") as answer:
            assert await answer.json() == {"error_code": 500, "message": "Worker is shutting down"}
        await running.new_worker().run(idle_seconds=0.5)
    assert len(await cluster.lines(path)) == 1000
