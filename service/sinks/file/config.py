"""Config of ``FileStreamSink``: Kafka Connect's one key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from service.sinks.contract import Importance, Key, SinkConfig


class FileStreamSinkConfig(SinkConfig):
    """Appends each value and a line feed to a file; without a file, to standard output."""

    file: Annotated[Path | None, Key(importance=Importance.HIGH, is_path=True)] = None
    """File that lines are appended to; made if it is missing. Standard output when not given."""
