"""A real server process of Amazon's S3 interface for the whole run (moto), started when a test first asks for it."""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import boto3
import pytest
from botocore.config import Config

from service.embedded.child import GuardedJvm, JvmCommand
from service.embedded.ports import free_ports
from service.embedded.running import running
from service.embedded.server import stopped_unless_ready

START_SECONDS_MAX = 300.0
_address: list[str] = []


async def started_storage(folder: Path, port: int, *settings: str) -> GuardedJvm:
    """Its process, once it answers at the port of loopback; everything is in its memory."""
    command = JvmCommand(
        arguments=("env", *settings, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)),
        working_folder=folder,
        console=folder / "console.log",
        grace_seconds=5.0,
    )
    url = f"http://127.0.0.1:{port}"
    server = await GuardedJvm.start("object storage", command)
    async with stopped_unless_ready(server):
        await server.wait_ready(lambda: _answers(url), seconds_max=START_SECONDS_MAX)
    return server


@asynccontextmanager
async def opened_storage(folder: Path) -> AsyncIterator[str]:
    """Its address, as long as the block lasts."""
    (port,) = free_ports(1)
    server = await started_storage(folder, port)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await server.stop()


async def _answers(url: str) -> bool:
    try:
        async with aiohttp.ClientSession() as session, session.get(f"{url}/moto-api/data.json") as answer:
            return answer.ok
    except aiohttp.ClientError:
        return False


@pytest.fixture(scope="session")
def object_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the run's server; tests keep apart by the names of their buckets."""
    with running(opened_storage(tmp_path_factory.mktemp("storage")), name="storage") as server:
        _address[:] = [server.server]
        yield server.server


class Bucket:
    """A new bucket of the run's server, which some test or fixture has asked for."""

    def __init__(self, url: str | None = None) -> None:
        """``url``: of a server of the test's own."""
        self.url, self.name = url or _address[0], f"b-{uuid.uuid4().hex}"
        self.client: Any = boto3.client(
            "s3", endpoint_url=self.url, region_name="us-west-2", aws_access_key_id="key", aws_secret_access_key="word",
            config=Config(proxies={}),
        )  # fmt: skip
        place = {"LocationConstraint": "us-west-2"}
        self.client.create_bucket(Bucket=self.name, CreateBucketConfiguration=place)

    @property
    def properties(self) -> dict[str, str]:
        """Keys of ``S3Sink`` that lead to it."""
        return {
            "s3.bucket.name": self.name,
            "store.url": self.url,
            "aws.access.key.id": "key",
            "aws.secret.access.key": "word",
        }

    def names(self, prefix: str = "topics/") -> list[str]:
        """What stands below a prefix, by its whole name."""
        found = self.client.list_objects_v2(Bucket=self.name, Prefix=prefix).get("Contents", ())
        return [each["Key"] for each in found]

    def objects(self, prefix: str = "topics/") -> dict[str, bytes]:
        """What stands below a prefix, by its path there, in the order of names."""
        return {
            name.removeprefix(prefix): self.client.get_object(Bucket=self.name, Key=name)["Body"].read()
            for name in self.names(prefix)
        }

    def uploads(self) -> list[str]:
        """Objects whose upload has not ended."""
        return [each["Key"] for each in self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())]


@pytest.fixture
def bucket(object_storage: str) -> Bucket:
    """An empty bucket."""
    assert object_storage
    return Bucket()
