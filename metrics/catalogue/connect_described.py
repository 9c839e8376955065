"""What Kafka Connect says of a task in words: its classes and their versions (4.1)."""

from __future__ import annotations

from metrics.catalogue.declaration import TASK, Kind, Metric

CONNECTOR_TASK = "kafka_connect_connector_task"
TRANSFORM = "kafka_connect_connector_transform"
PREDICATE = "kafka_connect_connector_predicate"


def _task(attribute: str, label: str, text: str) -> Metric:
    return Metric(f"{CONNECTOR_TASK}_{attribute}", Kind.INFO, text, (*TASK, label))


CONNECTOR_CLASS = _task("connector_class", "class", "Class of the task's connector.")
CONNECTOR_TYPE = _task("connector_type", "type", "Source or sink.")
CONNECTOR_VERSION = _task("connector_version", "version", "Version of the connector's class.")
TASK_CLASS = _task("task_class", "class", "Class of the task.")
TASK_VERSION = _task("task_version", "version", "Version of the task's class.")
KEY_CONVERTER_CLASS = _task("key_converter_class", "class", "Converter of keys.")
KEY_CONVERTER_VERSION = _task("key_converter_version", "version", "Its version.")
VALUE_CONVERTER_CLASS = _task("value_converter_class", "class", "Converter of values.")
VALUE_CONVERTER_VERSION = _task("value_converter_version", "version", "Its version.")
HEADER_CONVERTER_CLASS = _task("header_converter_class", "class", "Converter of headers.")
HEADER_CONVERTER_VERSION = _task("header_converter_version", "version", "Its version.")

TRANSFORM_CLASS = Metric(
    f"{TRANSFORM}_transform_class", Kind.INFO, "Class of a transformation.", (*TASK, "transform", "class")
)
TRANSFORM_VERSION = Metric(f"{TRANSFORM}_transform_version", Kind.INFO, "Its version.", (*TASK, "transform", "version"))
PREDICATE_CLASS = Metric(
    f"{PREDICATE}_predicate_class", Kind.INFO, "Class of a predicate.", (*TASK, "predicate", "class")
)
PREDICATE_VERSION = Metric(f"{PREDICATE}_predicate_version", Kind.INFO, "Its version.", (*TASK, "predicate", "version"))
