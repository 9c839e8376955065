"""Files that are given up by an error, and then forgotten: who forgets them, such as the event loop, asks nobody."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any, cast

import hdfs_native
import pytest

from service.sinks.filesystem.object_store import ObjectStore
from service.sinks.filesystem.stores import HdfsStore

PART_BYTES = 4


class NameNode:
    """Stands in for the client of HDFS, and for what its own files ask; notes it, and is away at the end."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def create(self, _path: str) -> hdfs_native.FileWriter:
        """A file, as the client has them."""
        return hdfs_native.FileWriter(cast("Any", self))

    def write(self, data: bytes) -> int:
        """All of it."""
        self.asked.append("write")
        return len(data)

    def close(self) -> None:
        """The client tries for minutes."""
        self.asked.append("close")
        raise RuntimeError("connection refused")


class Storage:
    """Stands in for a bucket and its client; notes what is asked."""

    bucket, part_bytes = "b", PART_BYTES

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.client = self

    def key(self, path: str) -> str:
        """The path."""
        return path

    def ask(self, _path: str, work: Callable[[], Any]) -> Any:
        """Do it."""
        return work()

    def create_multipart_upload(self, **_arguments: Any) -> dict[str, str]:
        """An upload."""
        self.asked.append("create")
        return {"UploadId": "1"}

    def upload_part(self, **_arguments: Any) -> dict[str, str]:
        """A part of it."""
        self.asked.append("part")
        return {"ETag": "e"}

    def abort(self, _path: str, _upload: str) -> None:
        """The end of it."""
        self.asked.append("abort")


def hdfs(node: NameNode) -> HdfsStore:
    """A store that asks the stand-in."""
    store = HdfsStore("hdfs://127.0.0.1:1/lake")
    store._client = cast("Any", node)
    return store


def test_a_file_of_hdfs_that_is_forgotten() -> None:
    """It is not closed, which would ask the name node."""
    node = NameNode()
    file = hdfs(node).create("a")
    file.write(b"x")
    del file
    gc.collect()
    assert node.asked == ["write"]


def test_a_file_of_hdfs_that_could_not_be_closed() -> None:
    """The error is told once, and then it counts as closed: nobody asks a name node that is away once more."""
    node = NameNode()
    store = hdfs(node)
    file = store.create("a")
    with pytest.raises(OSError, match="connection refused"):
        store.finish(file)
    assert file.closed
    file.close()
    del file
    gc.collect()
    assert node.asked == ["close"]


def test_an_upload_that_is_forgotten() -> None:
    """Whoever has the partition next ends it; who gives it up by `close` does so at once."""
    storage = Storage()
    files = [ObjectStore.create(cast("ObjectStore", storage), name) for name in ("a", "b")]
    for file in files:
        file.write(b"x" * PART_BYTES)
    files.pop().close()
    assert storage.asked == ["create", "part", "create", "part", "abort"]
    del file
    files.clear()
    gc.collect()
    assert storage.asked.count("abort") == 1
