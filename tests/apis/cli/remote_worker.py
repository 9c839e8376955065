"""A small worker for commands to ask: real HTTP in a thread of its own, answers in Kafka Connect's shapes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from service.embedded.running import running
from tests.contracts.loopback import serve

STATUS = {
    "name": "orders/eu",
    "connector": {"state": "RUNNING", "worker_id": "w1:8083"},
    "tasks": [
        {"id": 0, "state": "RUNNING", "worker_id": "w1:8083"},
        {"id": 1, "state": "FAILED", "worker_id": "w2:8083", "trace": "Traceback\n  Fatal: the file is gone\n"},
    ],
    "type": "source",
}


@dataclass
class FakeWorker:
    """Answers by (method, path); everything asked is kept."""

    answers: dict[tuple[str, str], list[tuple[int, Any]]] = field(default_factory=dict)
    """The last of a list is repeated."""
    asked: list[tuple[str, str, str, Any]] = field(default_factory=list)
    """Method, raw path, Authorization, body."""
    url: str = ""

    def answer(self, method: str, path: str, *answers: tuple[int, Any]) -> None:
        """Give these answers, one after the other."""
        self.answers[method, path] = list(answers)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer by the table; 404 with Connect's error body for everything else."""
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.raw_path, request.headers.get("Authorization", ""), body))
        answers = self.answers.get((request.method, request.raw_path.partition("?")[0]))
        if answers is None:
            return web.json_response({"error_code": 404, "message": "Connector not found"}, status=404)
        status, found = answers[0] if len(answers) == 1 else answers.pop(0)
        return web.Response(status=status) if found is None else web.json_response(found, status=status)


@contextmanager
def served(worker: FakeWorker) -> Iterator[FakeWorker]:
    """Serve it while the block runs."""
    with running(serve(worker.handle), name="fake-worker") as serving:
        worker.url = serving.server
        yield worker
