"""Under which subject a schema is kept: the three strategies of Confluent's serializers."""

from __future__ import annotations

import json
from enum import StrEnum


class SubjectStrategy(StrEnum):
    """Values are the class names' last parts, which are accepted with or without their package."""

    TOPIC = "TopicNameStrategy"
    RECORD = "RecordNameStrategy"
    TOPIC_RECORD = "TopicRecordNameStrategy"

    @classmethod
    def parse(cls, name: str) -> SubjectStrategy:
        """Read a class name.

        Raises ValueError for an unknown one.
        """
        return cls(name.strip().rpartition(".")[2])

    def subject(self, topic: str, schema: str, *, is_key: bool) -> str:
        """Subject of a schema (Avro, JSON text) for records of a topic.

        Raises ValueError when the strategy needs a record name and the schema is not a named type.
        """
        if self is SubjectStrategy.TOPIC:
            return f"{topic}-{'key' if is_key else 'value'}"
        name = full_name(schema)
        return name if self is SubjectStrategy.RECORD else f"{topic}-{name}"


def full_name(schema: str) -> str:
    """Name of an Avro record, enum or fixed with its namespace (Avro specification, "Names").

    Raises ValueError for a schema without a name.
    """
    parsed = json.loads(schema)
    name = parsed.get("name") if isinstance(parsed, dict) else None
    if name is None:
        raise ValueError("this subject strategy needs a named schema (a record), and this schema has no name")
    namespace = parsed.get("namespace")
    return name if "." in name or not namespace else f"{namespace}.{name}"
