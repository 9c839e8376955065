"""Task configs as they go to the config topic, and as tasks read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from fetchers.sdk import WorkContext
from service.config.providers import Resolved
from service.domain.ids import TaskId
from service.worker.kinds import Confirm, ConnectorRefusedError, ConnectorTraits, MakeTask, UseTopic
from service.worker.splitting import task_class, task_configs, with_task

JAVA_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
JAVA_TASK = "org.apache.kafka.connect.file.FileStreamSourceTask"


@dataclass(frozen=True)
class Defined:
    """A connector that splits as it is told."""

    parts: Sequence[Mapping[str, str]] = ({},)
    class_name: str = "Fake"
    class_aliases: Sequence[str] = ()

    @property
    def traits(self) -> ConnectorTraits:
        """Of a source with two tasks at most."""
        return ConnectorTraits(
            kind="source",
            class_name=self.class_name,
            class_aliases=self.class_aliases,
            version="1",
            converter_classes=("string", "json"),
            tasks_max=2,
        )

    def split(self) -> Sequence[Mapping[str, str]]:
        """As told."""
        return self.parts

    async def work_changed(self, context: WorkContext) -> None:
        """Never."""
        await context.clock.sleep(float("inf"))

    def prepare_task(self, task_id: TaskId, use_topic: UseTopic, confirm: Confirm) -> MakeTask:
        """Splitting the work makes no task: whoever calls this has a bug."""
        message = f"a task was made of {task_id} with {use_topic}, {confirm} while the work was split"
        raise AssertionError(message)


@pytest.mark.parametrize(
    ("class_name", "aliases", "expected"),
    [
        ("FileStreamSource", (JAVA_SOURCE,), JAVA_TASK),
        ("MixpanelSource", ("org.apache.kafka.connect.mixpanel.MixPanelConnector",), "MixpanelSourceTask"),
        ("HttpSource", (), "HttpSourceTask"),
        ("my.package:Quakes", (), "my.package:QuakesTask"),
    ],
)
def test_the_task_class_is_javas_where_java_has_the_task(
    class_name: str, aliases: Sequence[str], expected: str
) -> None:
    """Ours are named after the plugin."""
    assert task_class(class_name, aliases) == expected


def test_a_task_config_is_the_connectors_with_the_tasks_own_keys() -> None:
    """As Java's file connector writes it."""
    config = {"name": "c", "connector.class": "FileStreamSource", "file": "/a", "topic": "t"}
    defined = Defined(({}, {"file": "/b"}), class_name="FileStreamSource", class_aliases=(JAVA_SOURCE,))
    assert task_configs(config, Resolved(config), defined) == (
        {**config, "task.class": JAVA_TASK},
        {**config, "file": "/b", "task.class": JAVA_TASK},
    )


def test_values_of_variables_never_get_into_a_task_config() -> None:
    """Not under their own key, not under another, not within a text; what the connector changed stays changed."""
    config = {"name": "c", "password": "${env:PW}", "tables": "${env:TABLES}", "registry": "embedded"}
    resolved = Resolved(
        {"name": "c", "password": "hush", "tables": "a,b", "registry": "http://127.0.0.1:1"},
        variables={key: config[key] for key in ("password", "tables")},
        secrets={"hush": "${env:PW}", "a,b": "${env:TABLES}"},
    )
    own = {"password": "hush", "login": "hush", "url": "db://u:hush@h", "tables": "a", "registry": "http://127.0.0.1:1"}
    (made,) = task_configs(config, resolved, Defined((own,)))
    assert made == {
        "name": "c",
        "password": "${env:PW}",
        "login": "${env:PW}",
        "url": "db://u:${env:PW}@h",
        "tables": "a",
        "registry": "embedded",
        "task.class": "FakeTask",
    }


def test_more_tasks_than_allowed_are_refused() -> None:
    """With Connect's text; unless the limit is not enforced."""
    config = {"name": "c"}
    with pytest.raises(ConnectorRefusedError, match="The connector c has generated 3 tasks, which is greater than 2"):
        task_configs(config, Resolved(config), Defined(({}, {}, {})))
    lenient = {**config, "tasks.max.enforce": "False"}
    assert len(task_configs(lenient, Resolved(lenient), Defined(({}, {}, {})))) == 3


def test_a_task_reads_its_own_config_over_its_connectors() -> None:
    """Java's class is none of its keys, and its name is never another connector's."""
    task = {"file": "/b", "task.class": JAVA_TASK, "name": "stranger"}
    assert with_task({"file": "/a", "x": "y"}, task, name="c") == {"file": "/b", "x": "y", "name": "c"}
