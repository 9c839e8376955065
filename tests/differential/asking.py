"""A script carried out against one worker; what is left of its answers when all that may differ is masked."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.differential.script import Ask, Lines, Script, Step, Wait
from tests.java_connect import is_to_be_asked_again

WAIT_SECONDS_MAX = 240
LOOK_SECONDS = 0.2
ANSWER_SECONDS_MAX = 95.0
_MASKED = {"worker_id", "trace", "commit", "kafka_cluster_id", "last_modified"}
_DROPPED = {"documentation", "inode", "signature"}
"""The last two tell the file source a file from its successor; Connect's has only the position."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A masked answer."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Peer:
    """A worker, and the names it is asked with."""

    url: str
    label: str
    folder: Path

    def answers(self, script: Script) -> dict[str, Answer]:
        """The masked answers by the names of their steps."""
        asking = Asking(self, f"{self.label}-{script.name}")
        try:
            return {
                step.name: answer for step in script.steps if (answer := asking.done(step)) and isinstance(step, Ask)
            }
        finally:
            asking.remove(script.connectors)


@dataclass(frozen=True, slots=True)
class Asking:
    """One script on one worker."""

    peer: Peer
    name: str

    @property
    def values(self) -> dict[str, str]:
        """What stands for the place holders. None is part of another, or of what workers say by themselves."""
        return {"{f}": str(self.peer.folder / f"{self.name}.txt"), "{t}": f"{self.name}-topic", "{c}": self.name}

    def done(self, step: Step) -> Answer | None:
        """The answer of a request, nothing of anything else."""
        match step:
            case Lines():
                with Path(self.values["{f}"]).open("a", encoding="utf-8") as file:
                    file.writelines(f"{line}\n" for line in step.lines)
            case Wait():
                self._wait(step)
            case Ask():
                return self._answer(step)
        return None

    def remove(self, connectors: tuple[str, ...]) -> None:
        """Whatever became of the script."""
        for connector in connectors:
            self._answer(Ask("remove", "DELETE", f"/connectors/{connector}"))

    def _wait(self, step: Wait) -> None:
        last = None
        for _ in range(int(WAIT_SECONDS_MAX / LOOK_SECONDS)):
            last = request(self.peer.url, "GET", self._filled(step.path))
            if step.is_so(last.status, last.body):
                return
            threading.Event().wait(LOOK_SECONDS)
        raise AssertionError(f"{self.name}: {step.path} stays {last}")

    def _answer(self, step: Ask) -> Answer:
        text = step.text if step.body is None else json.dumps(step.body)
        data = None if text is None else self._filled(text).encode()
        for _ in range(int(WAIT_SECONDS_MAX / LOOK_SECONDS)):
            answer = self._request(step, data)
            is_final = answer.status >= 300 or step.is_settled(answer.body)
            if is_final and not is_to_be_asked_again(answer.status, answer.body):
                return self._compared(step, answer)
            threading.Event().wait(LOOK_SECONDS)
        raise AssertionError(f"{self.name}: {step.name} is not to be had")

    def _request(self, step: Ask, data: bytes | None) -> Answer:
        content_type = None if data is None else step.content_type
        path = self._filled(step.path)
        return request(self.peer.url, step.method, path, data, content_type=content_type, accept=step.accept)

    def _compared(self, step: Ask, answer: Answer) -> Answer:
        picked = step.pick(self._own(step, answer.body)) if answer.status < 300 else answer.body
        return Answer(answer.status, self._masked(picked), {k: self._put_back(v) for k, v in answer.headers.items()})

    def _filled(self, text: str) -> str:
        for holder, value in self.values.items():
            text = text.replace(holder, value)
        return text

    def _put_back(self, text: str) -> str:
        for holder, value in self.values.items():
            text = text.replace(value, holder)
        return text

    def _own(self, step: Ask, body: Any) -> Any:
        """Of the list of all connectors those of this script: other tests share the worker."""
        if step.method != "GET" or step.path.partition("?")[0].rstrip("/") != "/connectors":
            return body
        if isinstance(body, list):
            return sorted(name for name in body if name.startswith(self.name))
        return {name: value for name, value in body.items() if name.startswith(self.name)}

    def _masked(self, value: Any) -> Any:
        """Connect asks the running instance for its version; one that a restart has stopped has none to tell."""
        match value:
            case dict():
                dropped = _DROPPED | {"version"} if value.get("state") == "RESTARTING" else _DROPPED
                return {
                    self._put_back(key): "…" if key in _MASKED and inner is not None else self._masked(inner)
                    for key, inner in value.items()
                    if key not in dropped
                }
            case list():
                return [self._masked(inner) for inner in value]
            case str():
                return self._put_back(value)
        return value


def request(url: str, method: str, path: str, data: bytes | None = None, **headers: str | None) -> Answer:
    """One request; blocks. The body is decoded if it can be. ``headers``: ``content_type`` for ``Content-Type``."""
    given = {name.replace("_", "-").title(): text for name, text in headers.items() if text is not None}
    asked = urllib.request.Request(f"{url}{path}", data=data, method=method, headers=given)  # noqa: S310 - a test's
    try:
        with urllib.request.urlopen(asked, timeout=ANSWER_SECONDS_MAX) as answer:  # noqa: S310 - its own server
            return Answer(answer.status, _decoded(answer.read()), _headers(answer.headers))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, _decoded(error.read()), _headers(error.headers))


def _headers(message: Message) -> dict[str, str]:
    """Those that clients look at."""
    found = {"Content-Type": (message["Content-Type"] or "").partition(";")[0]}
    if message["Location"]:
        # Connect names itself in it, we give the path: both lead a client there.
        found["Location"] = urlsplit(message["Location"]).path
    return found


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text.decode(errors="replace")
