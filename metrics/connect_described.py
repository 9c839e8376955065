"""What a task is made of, shown as Kafka Connect shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metrics.catalogue import connect_described as words
from metrics.events import TaskDescribed

if TYPE_CHECKING:
    from metrics.instruments import Instruments


def describe(event: TaskDescribed, into: Instruments) -> None:
    """Tell every word; converters, transformations and predicates come with the worker, so its version is theirs."""
    owner, built_in = (event.connector, event.task), event.worker_version
    into.tell(words.CONNECTOR_CLASS, *owner, event.connector_class)
    into.tell(words.CONNECTOR_TYPE, *owner, event.kind)
    into.tell(words.CONNECTOR_VERSION, *owner, event.version)
    into.tell(words.TASK_CLASS, *owner, event.task_class)
    into.tell(words.TASK_VERSION, *owner, event.version)
    into.tell(words.KEY_CONVERTER_CLASS, *owner, event.key_converter)
    into.tell(words.KEY_CONVERTER_VERSION, *owner, built_in)
    into.tell(words.VALUE_CONVERTER_CLASS, *owner, event.value_converter)
    into.tell(words.VALUE_CONVERTER_VERSION, *owner, built_in)
    into.tell(words.HEADER_CONVERTER_CLASS, *owner, event.header_converter)
    into.tell(words.HEADER_CONVERTER_VERSION, *owner, built_in)
    for alias, name in event.transforms:
        into.tell(words.TRANSFORM_CLASS, *owner, alias, name)
        into.tell(words.TRANSFORM_VERSION, *owner, alias, built_in)
    for alias, name in event.predicates:
        into.tell(words.PREDICATE_CLASS, *owner, alias, name)
        into.tell(words.PREDICATE_VERSION, *owner, alias, built_in)
