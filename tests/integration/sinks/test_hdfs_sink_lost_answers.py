"""``HdfsSink`` on a real HDFS whose name node does what it is asked, and whose answer is lost on its way."""

from __future__ import annotations

import json
import uuid

import pytest

from service.sinks.contract import StartAnew
from service.sinks.filesystem.config import FileSystemSinkConfig
from service.sinks.filesystem.sink import FileSystemSink
from service.sinks.filesystem.stores import HdfsStore
from tests.apis.sinks.test_s3_sink import feed, running
from tests.fault_proxy import FaultProxy

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.slow, pytest.mark.timeout(600)]
CALLS_MAX = 100
STARTS_MAX = 5
ROWS = [{"n": number} for number in range(4)]
FILES = ["orders+0+0000000000+0000000001.json", "orders+0+0000000002+0000000003.json"]


@pytest.mark.parametrize("call", ["mkdirs", "create", "addBlock", "complete", "delete", "rename2"])
async def test_an_answer_that_is_lost(hdfs: str, call: str) -> None:
    """Whichever of the calls of this name it is: each record is in one file, once, and the task at most begins anew.

    The name of the method leads each request, with its length before it (``RequestHeaderProto`` of Hadoop's
    ProtobufRpcEngine2.proto).
    """
    port = int(hdfs.rpartition(":")[2])
    for spared in range(CALLS_MAX):
        folder = uuid.uuid4().hex
        proxy = FaultProxy(port, lose_after=b"\x0a%c%s\x12" % (len(call), call.encode()), spared=spared)
        async with proxy.serving():
            await fed(f"hdfs://127.0.0.1:{proxy.port}/{folder}")
        store = HdfsStore(f"{hdfs}/{folder}")
        names = sorted(store.names("topics/orders/partition=0"))
        assert names == FILES
        lines = [line for name in names for line in store.read(f"topics/orders/partition=0/{name}").splitlines()]
        assert [json.loads(line) for line in lines] == ROWS
        if not proxy.lost:
            assert spared, f"the sink has not called {call}: nothing was proven"
            return
    pytest.fail("there is no end")


async def fed(url: str) -> None:
    """All rows are put, and the task begins anew where it wants to."""
    config = FileSystemSinkConfig.parse({"hdfs.url": url, "flush.size": "2", "format.class": "JsonFormat"}).config
    assert config is not None
    for _ in range(STARTS_MAX):
        try:
            async with running(FileSystemSink(config)) as sink:
                await feed(sink, ROWS)
        except StartAnew:
            continue
        return
    pytest.fail(f"it has begun anew {STARTS_MAX} times")
