"""Workers of one group over Kafka's own protocol: sharing, forwarding, leaving, coming back, refusing."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import aiohttp
import pytest

from service.app import open_worker
from service.job import make_job
from service.kafka.admin import KafkaAdmin
from service.kafka.client import KafkaSettings
from service.kafka.errors import DeliveryFatal
from tests.rest_client import LOOK_SECONDS, WAIT_SECONDS_MAX
from tests.scenarios.cluster_workers import (
    TOPIC_LOOK_SECONDS,
    Cluster,
    ClusterWorker,
    GatedConversion,
    InstantConversion,
)
from tests.scenarios.counting import counted
from tests.stack import KafkaStack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
RUNNING = {"": "RUNNING", "0": "RUNNING"}


@pytest.fixture
def cluster(kafka: KafkaStack, tmp_path: Path) -> Cluster:
    """Names of its own; a short grace, so that tests need not wait for who does not come back."""
    return Cluster(kafka.bootstrap, tmp_path, more={"scheduled.rebalance.max.delay.ms": "500"})


async def with_connectors(cluster: Cluster, worker: ClusterWorker, count: int) -> dict[str, Path]:
    """So many file sources, all RUNNING and their files delivered."""
    files = {f"c{number}": cluster.file(["a"], name=f"f{number}.txt") for number in range(count)}
    for name, path in files.items():
        await worker.done("POST", "/connectors", {"name": name, "config": cluster.source(path)})
    for name, path in files.items():
        await worker.wait_states(name, RUNNING)
        await cluster.wait_lines(path, ["a"])
    return files


async def wait_spread(worker: ClusterWorker, names: list[str], expected: dict[str, int]) -> None:
    """Until the tasks run on so many by so many; who had to join again may get its share a moment later."""
    counts: Counter[str] = Counter()
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while counts != expected:
                counts = Counter([(await worker.states(name)).get("0", ("", ""))[1] for name in names])
                await asyncio.sleep(LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"the tasks stay spread as {dict(counts)}") from None


async def test_two_workers_share_connectors_and_one_takes_all_when_the_other_leaves(cluster: Cluster) -> None:
    """Every line once, whoever runs the task; requests may go to either of them."""
    async with cluster.worker() as first:
        async with cluster.worker() as second:
            files = await with_connectors(cluster, first, 4)
            await wait_spread(second, list(files), {first.worker_id: 2, second.worker_id: 2})
            assert await second.done("GET", "/connectors") == sorted(files)
            for name in files:
                await second.done("POST", f"/connectors/{name}/tasks/0/restart")
                await first.done("POST", f"/connectors/{name}/restart?includeTasks=true")
            for name, path in files.items():
                await first.wait_states(name, RUNNING)
                with path.open("a") as file:
                    file.write("b\n")
            for path in files.values():
                await cluster.wait_lines(path, ["a", "b"])
        for name, path in files.items():
            await first.wait_until(name, lambda states: set(states.values()) == {("RUNNING", first.worker_id)})
            with path.open("a") as file:
                file.write("c\n")
        for path in files.values():
            await cluster.wait_lines(path, ["a", "b", "c"])


async def test_changes_sent_to_any_worker_reach_the_owner(cluster: Cluster) -> None:
    """Through the leader, or by the log alone; what is deleted is forgotten by all."""
    async with cluster.worker() as first, cluster.worker() as second:
        files = await with_connectors(cluster, second, 2)
        for worker, other in ((first, second), (second, first)):
            for name in files:
                await worker.done("PUT", f"/connectors/{name}/pause")
                await other.wait_states(name, {"": "PAUSED", "0": "PAUSED"})
                await other.done("PUT", f"/connectors/{name}/resume")
                await worker.wait_states(name, RUNNING)
                await worker.done("PUT", f"/connectors/{name}/stop")
                await other.wait_states(name, {"": "STOPPED"})
                await worker.done("PUT", f"/connectors/{name}/resume")
                await worker.wait_states(name, RUNNING)
        for worker, name in ((first, "c0"), (second, "c1")):
            await worker.done("DELETE", f"/connectors/{name}")
            await first.wait_states(name, {})
            await second.wait_states(name, {})


async def test_a_cluster_that_is_started_again_goes_on_where_it_ended(cluster: Cluster) -> None:
    """Connectors, target states and offsets are in Kafka; the last worker's leaving loses nothing."""
    async with cluster.worker() as worker:
        files = await with_connectors(cluster, worker, 2)
        await worker.done("PUT", "/connectors/c1/pause")
        await worker.wait_states("c1", {"": "PAUSED", "0": "PAUSED"})
    for path in files.values():
        with path.open("a") as file:
            file.write("b\n")
    async with cluster.worker() as worker:
        await worker.wait_states("c0", RUNNING)
        await worker.wait_states("c1", {"": "PAUSED", "0": "PAUSED"})
        await cluster.wait_lines(files["c0"], ["a", "b"])
        await worker.done("PUT", "/connectors/c1/resume")
        await cluster.wait_lines(files["c1"], ["a", "b"])


async def test_a_leader_that_leaves_has_a_successor_that_can_write(cluster: Cluster) -> None:
    """The successor claims the leader's writes; requests that come too early are 409 and tried again."""
    async with cluster.worker() as first:
        await first.done("POST", "/connectors", {"name": "c", "config": cluster.source(cluster.file(["a"]))})
        await first.wait_states("c", RUNNING)
        async with cluster.worker() as second:
            await second.done("PUT", "/connectors/c/pause")
            first.running.worker.request_stop("test")
            path = cluster.file(["x"], name="new.txt")
            await second.done("POST", "/connectors", {"name": "d", "config": cluster.source(path)})
            await cluster.wait_lines(path, ["x"])
            await second.done("PUT", "/connectors/c/resume")
            await second.wait_until("c", lambda states: set(states.values()) == {("RUNNING", second.worker_id)})


async def test_fewer_and_more_tasks_are_fenced_and_started(cluster: Cluster) -> None:
    """A connector of several parts deals them among its tasks; each record is there once after every change."""
    async with cluster.worker() as first, cluster.worker() as second:
        path = cluster.folder / "counted"
        for tasks, count_to in ((2, 20), (1, 40), (2, 60)):
            more = {"connector.class": "tests.scenarios.counting:Counting", "count.to": str(count_to)}
            config = cluster.source(path, **{"tasks.max": str(tasks)}, **more)
            del config["file"]
            await second.done("PUT", "/connectors/c/config", config)
            await first.wait_states("c", {"": "RUNNING", **{str(number): "RUNNING" for number in range(tasks)}})
            await wait_sorted(cluster, path, counted(count_to))


async def test_work_that_becomes_more_gets_tasks_and_other_connectors_do_not_notice(cluster: Cluster) -> None:
    """Parts appear while their source runs: all of each is delivered once, and only its own tasks begin anew."""
    path, names, other = cluster.folder / "counted", cluster.folder / "names.txt", cluster.file(["a"])
    names.write_text("x\n", encoding="utf-8")
    async with (
        cluster.worker(session_timeout_ms="60000") as first,
        cluster.worker(session_timeout_ms="60000") as second,
    ):
        await first.done("POST", "/connectors", {"name": "other", "config": cluster.source(other)})
        more = {"connector.class": "tests.scenarios.counting:Counting", "count.to": "5", "parts.file": str(names)}
        config = cluster.source(path, **{"tasks.max": "3"}, **more)
        del config["file"]
        await first.wait_states("other", RUNNING)
        begun = await first.done("GET", "/connectors/other/status")
        await second.done("PUT", "/connectors/c/config", config)
        await wait_sorted(cluster, path, counted(5, "x"))
        for parts in ("xy", "xyzw"):
            names.write_text("".join(f"{part}\n" for part in parts), encoding="utf-8")
            await wait_sorted(cluster, path, counted(5, parts))
            tasks = {str(number): "RUNNING" for number in range(min(3, len(parts)))}
            await first.wait_states("c", {"": "RUNNING", **tasks})
        assert await first.done("GET", "/connectors/other/status") == begun
        with other.open("a") as file:
            file.write("b\n")
        await cluster.wait_lines(other, ["a", "b"])


async def test_a_stop_lets_a_task_deliver_what_it_holds(cluster: Cluster) -> None:
    """It is asked to stop, not cut off: fenced is what has let go. Then it goes on where it ended."""
    path, conversion = cluster.file(["a"]), GatedConversion()
    # However long the gate stays closed, nobody cuts it off.
    async with cluster.worker(conversion=conversion, task_shutdown_graceful_timeout_ms="300000") as worker:
        await worker.done("POST", "/connectors", {"name": "c", "config": cluster.source(path)})
        await worker.wait_states("c", RUNNING)
        await cluster.wait_lines(path, ["a"])
        conversion.gate.clear()
        with path.open("a") as file:
            file.write("b\n")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await conversion.waiting.wait()
        await worker.done("PUT", "/connectors/c/stop")
        await worker.wait_states("c", {"": "STOPPED"})
        assert await cluster.lines(path) == ["a"]
        conversion.gate.set()
        await cluster.wait_lines(path, ["a", "b"])
        assert await worker.states("c") == {"": ("STOPPED", worker.worker_id)}
        await worker.done("PUT", "/connectors/c/resume")
        with path.open("a") as file:
            file.write("c\n")
        await cluster.wait_lines(path, ["a", "b", "c"])


async def wait_sorted(cluster: Cluster, path: Path, expected: list[str]) -> None:
    """Until exactly these are there, in whatever order tasks delivered them."""
    found: list[str] = []
    try:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while (found := sorted(await cluster.lines(path))) != expected:
                assert len(found) <= len(expected), found
                await asyncio.sleep(TOPIC_LOOK_SECONDS)
    except TimeoutError:
        raise AssertionError(f"{len(found)} of {len(expected)} records") from None


async def test_a_config_topic_that_cannot_be_used_is_refused(cluster: Cluster) -> None:
    """More than one partition, or not compacted: the text says how to mend it."""
    settings = KafkaSettings(bootstrap=cluster.bootstrap)
    topic = f"{cluster.name}-wide"
    async with KafkaAdmin.opened(settings) as admin:
        await admin.ensure_topic(topic, partitions=3, config={"cleanup.policy": "compact"})
    job = make_job(cluster.properties(**{"config.storage.topic": topic}), ())
    async with open_worker(job, is_distributed=True, conversion=InstantConversion()) as running:
        with pytest.raises(DeliveryFatal, match="single partition"):
            await running.worker.run()


async def test_a_worker_that_starts_before_kafka_waits_for_it(cluster: Cluster, kafka: KafkaStack) -> None:
    """Health says that it is starting, requests are answered 503, and it starts when Kafka is there."""
    kafka.kill()
    try:
        job = make_job(cluster.properties(), ())
        async with (
            open_worker(job, is_distributed=True, conversion=InstantConversion()) as running,
            aiohttp.ClientSession() as client,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(running.worker.run())
            worker = ClusterWorker(running, client)
            await asyncio.sleep(1)
            status, body = await worker.ask("GET", "/health")
            assert (status, body["status"]) == (503, "starting")
            assert (await worker.ask("GET", "/connectors"))[0] == 503
            await asyncio.to_thread(kafka.restart)
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                while (await worker.ask("GET", "/health"))[0] != 200:
                    await asyncio.sleep(0.1)
            running.worker.request_stop("test")
    finally:
        if not kafka.is_alive():
            kafka.restart()


async def test_a_broker_that_is_away_for_longer_than_a_session_stops_nothing(
    cluster: Cluster, kafka: KafkaStack
) -> None:
    """Reads are answered from memory, changes are refused to be tried again; then everything goes on by itself."""
    path = cluster.file(["a"])
    try:
        async with cluster.worker(session_timeout_ms="6000") as worker:
            await worker.done("POST", "/connectors", {"name": "c", "config": cluster.source(path)})
            await cluster.wait_lines(path, ["a"])
            kafka.kill()
            with path.open("a") as file:
                file.write("b\n")
            await asyncio.sleep(8)
            assert (await worker.states("c"))["0"][0] in {"RUNNING", "RESTARTING"}
            status, body = await worker.ask("PUT", "/connectors/c/config", cluster.source(path))
            assert status in {409, 500, 503}, body
            assert body["error_code"] == status
            await asyncio.to_thread(kafka.restart)
            await cluster.wait_lines(path, ["a", "b"])
            await worker.done("PUT", "/connectors/c/pause")
            await worker.wait_states("c", {"": "PAUSED", "0": "PAUSED"})
    finally:
        if not kafka.is_alive():
            kafka.restart()


async def test_a_worker_can_be_stopped_while_the_broker_is_away(cluster: Cluster, kafka: KafkaStack) -> None:
    """Within bounds: what could not be told is left, the others learn of it by the group."""
    path = cluster.file(["a"])
    try:
        async with cluster.worker() as worker:
            await worker.done("POST", "/connectors", {"name": "c", "config": cluster.source(path)})
            await cluster.wait_lines(path, ["a"])
            kafka.kill()
            await asyncio.sleep(1)
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < WAIT_SECONDS_MAX
    finally:
        if not kafka.is_alive():
            kafka.restart()
