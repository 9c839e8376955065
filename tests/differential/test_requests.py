"""The same requests to Kafka Connect 4.1.1 and to headrace: the same answers, but for the differences we declare."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from service.embedded.running import Running
from tests.differential import scripts_connectors, scripts_offsets, scripts_states, scripts_worker
from tests.differential.asking import Answer, Peer
from tests.differential.deliberate import DELIBERATE, Difference
from tests.differential.script import Ask, Script
from tests.java_connect import JavaConnect

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPTS = (
    *scripts_connectors.SCRIPTS,
    *scripts_states.SCRIPTS,
    *scripts_offsets.SCRIPTS,
    *scripts_worker.SCRIPTS,
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_answers_are_those_of_connect(
    script: Script, java_connect: Running[JavaConnect], headrace_worker: str, tmp_path: Path
) -> None:
    """Status, body and the headers that clients look at; a declared difference must be there, and be as declared."""
    run = uuid.uuid4().hex[:6]
    peers = (Peer(java_connect.server.url, f"java{run}", tmp_path), Peer(headrace_worker, f"ours{run}", tmp_path))

    with ThreadPoolExecutor(len(peers)) as threads:
        theirs, ours = threads.map(lambda peer: peer.answers(script), peers)

    found = [text for name in theirs if (text := difference(name, theirs[name], ours[name]))]
    assert not found, "\n".join(found)


def test_every_declared_difference_is_asked_about() -> None:
    """And every step is found by its name."""
    names = [step.name for script in SCRIPTS for step in script.steps if isinstance(step, Ask)]
    assert len(set(names)) == len(names)
    assert set(DELIBERATE) <= set(names)


def difference(name: str, theirs: Answer, ours: Answer) -> str | None:
    """What is not as it should be, if anything."""
    declared = DELIBERATE.get(name)
    is_same = theirs == ours
    is_right = is_same if declared is None else not is_same and _is_as_declared(declared, theirs, ours)
    return None if is_right else f"{name} ({declared}):\n  Connect  {theirs}\n  headrace {ours}"


def _is_as_declared(declared: Difference, theirs: Answer, ours: Answer) -> bool:
    if (theirs.status, ours.status) != (declared.connect, declared.headrace):
        return False
    if ours.status >= 400 and ours.body.keys() != {"error_code", "message"}:
        return False
    return (_text(theirs) == _text(ours)) is declared.is_same_text


def _text(answer: Answer) -> str:
    return str(answer.body.get("message")) if isinstance(answer.body, dict) else ""
