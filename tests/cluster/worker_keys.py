"""What the workers of one group are configured with, wherever they run."""

from __future__ import annotations

from pathlib import Path

STRING = "org.apache.kafka.connect.storage.StringConverter"


def group_properties(bootstrap: str, group: str, *, data: Path, port: int = 0) -> dict[str, str]:
    """Topics of the group's own, texts as they are."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "config.storage.topic": f"{group}-configs",
        "offset.storage.topic": f"{group}-offsets",
        "offset.storage.partitions": "3",
        "status.storage.topic": f"{group}-status",
        "status.storage.partitions": "2",
        "dedupe.storage.topic": f"{group}-dedupe",
        "data.dir": str(data),
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": STRING,
        "value.converter": STRING,
    }
