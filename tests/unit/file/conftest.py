"""What tests of file reading share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fetchers.file.disk import PlainFile
from fetchers.file.fetcher import FileStreamSource
from fetchers.file.followed import FollowedFile
from fetchers.file.reading import Reading, ReadResult
from fetchers.sdk import Page


@pytest.fixture
def reading() -> Callable[..., Reading]:
    """Make a ``Reading`` of small pages."""

    def make(**changes: object) -> Reading:
        values: dict[str, object] = {
            "connector": "test",
            "task": 0,
            "opener": PlainFile,
            "page_bytes": 64,
            "page_lines": 1,
            "line_bytes_max": 10_000,
            "rotate_wait_seconds": 1.0,
            "last_line_idle_seconds": None,
        }
        return Reading(**{**values, **changes})  # type: ignore[arg-type]

    return make


@pytest.fixture
def source() -> Callable[..., FileStreamSource]:
    """Make a connector from config keys, with ``_`` for ``.``."""

    def make(**keys: object) -> FileStreamSource:
        texts = {key.replace("_", "."): str(value) for key, value in keys.items()}
        parsed = FileStreamSource.config_class.parse({"topic": "lines", **texts})
        assert parsed.config is not None, parsed.findings
        return FileStreamSource(parsed.config)  # type: ignore[arg-type]

    return make


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Where the file that is followed stands."""
    return tmp_path / "app.log"


@pytest.fixture
def read_all() -> Callable[..., list[ReadResult]]:
    """Read a file until there is nothing more now."""

    def take(followed: FollowedFile, now: float = 0.0) -> list[ReadResult]:
        results = [followed.read_once(now)]
        while results[-1].has_more:
            results.append(followed.read_once(now))
        return results

    return take


@pytest.fixture
def lines_of() -> Callable[..., list[bytes]]:
    """The payloads of pages, or of what reads gave."""

    def lines(items: list[Page] | list[ReadResult]) -> list[bytes]:
        pages = [item.page if isinstance(item, ReadResult) else item for item in items]
        return [payload for page in pages if page is not None for payload in page.values() if payload is not None]

    return lines
