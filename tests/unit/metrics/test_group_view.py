"""Kafka Connect's figures of the group of workers, and its words on tasks, from events."""

from __future__ import annotations

from metrics.events import GroupRoundBegan, GroupRoundEnded, TaskDescribed, TaskEvents, TaskRemoved, TaskStateChanged
from metrics.prometheus import PrometheusObserver
from tests.unit.metrics.exposition import Exposition

REBALANCE = "kafka_connect_worker_rebalance"
TASK = {"connector": "c", "task": "0"}


class Scene:
    """An observer and a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.observer = PrometheusObserver(clock=lambda: self.now, wall_clock=lambda: 0.0)

    def round_ended(self, *, generation: int, seconds: float, leader: str = "http://a:8083") -> None:
        """One more round."""
        self.observer(
            GroupRoundEnded(group_id="g", generation=generation, leader=leader, members=2, absent=0, seconds=seconds)
        )

    def shown(self, name: str, **labels: str) -> float | None:
        """A sample."""
        return Exposition(self.observer.render()).value(name, **labels)


def test_a_worker_of_no_group_shows_none_of_it() -> None:
    """A standalone worker has no rebalances, not zero of them."""
    names = Exposition(Scene().observer.render()).names()
    assert [name for name in names if name.startswith(REBALANCE)] == []


def test_rounds_are_counted_and_timed() -> None:
    """While one goes on, and after it; times in milliseconds over the recent past."""
    scene = Scene()
    scene.observer(GroupRoundBegan(group_id="g"))
    assert scene.shown(f"{REBALANCE}_rebalancing") == 1
    assert scene.shown(f"{REBALANCE}_completed_rebalances_total") == 0
    scene.round_ended(generation=4, seconds=1.0)
    scene.round_ended(generation=5, seconds=3.0)
    scene.now += 2.5
    assert scene.shown(f"{REBALANCE}_rebalancing") == 0
    assert scene.shown(f"{REBALANCE}_completed_rebalances_total") == 2
    assert scene.shown(f"{REBALANCE}_epoch") == 5
    assert scene.shown(f"{REBALANCE}_rebalance_avg_time_ms") == 2000
    assert scene.shown(f"{REBALANCE}_rebalance_max_time_ms") == 3000
    assert scene.shown(f"{REBALANCE}_time_since_last_rebalance_ms") == 2500


def test_only_the_newest_leader_is_shown() -> None:
    """An info metric says one thing."""
    scene = Scene()
    scene.round_ended(generation=1, seconds=0.1, leader="http://a:8083")
    scene.round_ended(generation=2, seconds=0.1, leader="http://b:8083")
    assert scene.shown(f"{REBALANCE}_leader_name", leader="http://a:8083") is None
    assert scene.shown(f"{REBALANCE}_leader_name", leader="http://b:8083") == 1


def described(scene: Scene, *, value_converter: str = "json") -> None:
    """Tell what the task is made of."""
    TaskEvents(scene.observer, "c", 0)(
        TaskDescribed,
        kind="source",
        connector_class="FileStreamSource",
        task_class="org.apache.kafka.connect.file.FileStreamSourceTask",
        version="4.1.1",
        key_converter="string",
        value_converter=value_converter,
        header_converter="simple",
        worker_version="0.1.0",
        transforms=(("route", "org.apache.kafka.connect.transforms.RegexRouter"),),
        predicates=(("isFoo", "org.apache.kafka.connect.transforms.predicates.TopicNameMatches"),),
    )


def test_a_task_is_described_in_connects_words() -> None:
    """Classes and versions of the task, its converters, transformations and predicates."""
    scene = Scene()
    described(scene)
    task, part = "kafka_connect_connector_task", "kafka_connect_connector"
    router = "org.apache.kafka.connect.transforms.RegexRouter"
    assert scene.shown(f"{task}_connector_type", **TASK, type="source") == 1
    assert scene.shown(f"{task}_task_version", **TASK, version="4.1.1") == 1
    assert scene.shown(f"{task}_value_converter_class", **TASK, **{"class": "json"}) == 1
    assert scene.shown(f"{part}_transform_transform_class", **TASK, transform="route", **{"class": router}) == 1
    assert scene.shown(f"{part}_predicate_predicate_version", **TASK, predicate="isFoo", version="0.1.0") == 1


def test_another_config_replaces_the_words_and_a_removed_task_takes_them_along() -> None:
    """No series of what is no more."""
    scene = Scene()
    described(scene)
    described(scene, value_converter="avro")
    name = "kafka_connect_connector_task_value_converter_class"
    assert scene.shown(name, **TASK, **{"class": "json"}) is None
    assert scene.shown(name, **TASK, **{"class": "avro"}) == 1
    TaskEvents(scene.observer, "c", 0)(TaskRemoved)
    names = Exposition(scene.observer.render()).names()
    assert [name for name in names if name.startswith(("kafka_connect_connector_t", "kafka_connect_connector_p"))] == []


def test_a_failed_task_shows_on_its_connector() -> None:
    """One gauge to alert on, whatever the number of tasks; back to 0 when the task runs again."""
    scene = Scene()
    for number in (0, 1):
        TaskEvents(scene.observer, "c", number)(TaskStateChanged, state="RUNNING")
    assert scene.shown("headrace_connector_has_failed_task", connector="c") == 0
    TaskEvents(scene.observer, "c", 0)(TaskStateChanged, state="FAILED")
    assert scene.shown("headrace_connector_has_failed_task", connector="c") == 1
    TaskEvents(scene.observer, "c", 0)(TaskStateChanged, state="RUNNING")
    assert scene.shown("headrace_connector_has_failed_task", connector="c") == 0
