"""Secrets in connectors' configs: who sees them, and what becomes of hidden values that come back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from metrics.events import RetryScheduled, TaskStateChanged
from metrics.redaction import HIDDEN
from service.rest.authentication import Proof
from tests.apis.rest.fake_herder import Kept
from tests.apis.rest.serving import Answer, Served, served, settings
from tests.apis.rest.test_proof import TOKENS, bearer

ADMIN, READER = bearer("t-admin"), bearer("t-read")
CONFIG = {
    "connector.class": "x",
    "db.password": "hunter2",
    "other.password": "${vault:db:password}",
    "literal.password": "${nobody:x}",
    "empty.password": "",
    "http.url": "https://anne:hunter2@example.org/x",
    "topic": "t",
}
SHOWN_TO_READERS = {
    **CONFIG,
    "db.password": HIDDEN,
    "literal.password": HIDDEN,
    "http.url": f"https://anne:{HIDDEN}@example.org/x",
}


def proven(*, is_config_hidden: bool = False) -> dict[str, object]:
    """Settings with a reader and an administrator."""
    return {
        "proofs": (Proof.BEARER,),
        "tokens": TOKENS,
        "config_providers": frozenset({"vault"}),
        "is_config_hidden": is_config_hidden,
    }


@pytest_asyncio.fixture(params=[False, True])
async def worker(request: pytest.FixtureRequest) -> AsyncIterator[Served]:
    """With a connector and its task, showing secrets to administrators and hiding them from all."""
    async with served(rest=settings(**proven(is_config_hidden=request.param))) as serving:
        serving.herder.connectors["c"] = Kept(dict(CONFIG), tasks=[{**CONFIG, "task.id": "0"}])
        yield serving


def configs_in(answer: Answer) -> list[dict[str, str]]:
    """Every config that an answer shows."""
    body = answer.body
    match body:
        case {"config": dict(config)}:
            return [config]
        case {"c": {"info": {"config": dict(config)}}}:
            return [config]
        case [{"config": dict(config)}]:
            return [{key: value for key, value in config.items() if key != "task.id"}]
        case _:
            return [body]


@pytest.mark.parametrize(
    "path", ["/connectors/c", "/connectors/c/config", "/connectors/c/tasks", "/connectors?expand=info&expand=status"]
)
async def test_readers_see_no_secrets_and_administrators_see_them_as_in_connect(worker: Served, path: str) -> None:
    """But for ``rest.config.secrets=hide``; variables of the worker's providers are no secrets."""
    is_hidden = await hides(worker)
    shown = {
        ADMIN["Authorization"]: SHOWN_TO_READERS if is_hidden else CONFIG,
        READER["Authorization"]: SHOWN_TO_READERS,
    }
    for proof, config in shown.items():
        (seen,) = configs_in(await worker.ask("GET", path, headers={"Authorization": proof}))
        assert {key: seen[key] for key in config} == config


async def hides(worker: Served) -> bool:
    """Whether it hides secrets from administrators too."""
    config = await worker.ask("GET", "/connectors/c/config", headers=ADMIN)
    return bool(config.body["db.password"] == HIDDEN)


async def test_what_comes_back_hidden_keeps_the_stored_value(worker: Served) -> None:
    """A tool reads a config, changes it and puts it back; so does one whose user copied what a reader is shown."""
    changed = {**SHOWN_TO_READERS, "topic": "u"}
    answer = await worker.ask("PUT", "/connectors/c/config", changed, headers=ADMIN)

    assert answer.status == 200
    kept = worker.herder.connectors["c"].config
    assert {key: kept[key] for key in CONFIG} == {**CONFIG, "topic": "u"}
    (seen,) = configs_in(answer)
    assert (seen["db.password"] == HIDDEN) == await hides(worker)


async def test_a_patch_keeps_stored_values_too(worker: Served) -> None:
    """A null still removes, a new value still changes."""
    patch = {"db.password": HIDDEN, "literal.password": "new", "other.password": None}
    assert (await worker.ask("PATCH", "/connectors/c/config", patch, headers=ADMIN)).status == 200

    kept = worker.herder.connectors["c"].config
    assert (kept["db.password"], kept["literal.password"]) == ("hunter2", "new")
    assert "other.password" not in kept


async def test_validation_of_a_hidden_value_is_that_of_the_stored_one(worker: Served) -> None:
    """Tools validate before they put."""
    given = {**SHOWN_TO_READERS, "name": "c"}
    await worker.ask("PUT", "/connector-plugins/x/config/validate", given, headers=ADMIN)

    assert worker.plugins.validated == [("x", {**CONFIG, "name": "c"})]


@pytest.mark.parametrize(
    ("asked", "body", "key"),
    [
        ("PUT /connectors/new/config", {"connector.class": "x", "db.password": HIDDEN}, "db.password"),
        (
            "POST /connectors",
            {"name": "new", "config": {"connector.class": "x", "db.password": HIDDEN}},
            "db.password",
        ),
        ("PATCH /connectors/c/config", {"new.password": HIDDEN}, "new.password"),
        ("PATCH /connectors/c/config", {"http.url": f"https://anne:{HIDDEN}@evil.example/x"}, "http.url"),
    ],
)
async def test_a_hidden_value_for_which_none_is_stored_is_refused(
    worker: Served, asked: str, body: object, key: str
) -> None:
    """It would become a password of that text; and a stored one goes to no other host."""
    method, _, path = asked.partition(" ")
    answer = await worker.ask(method, path, body, headers=ADMIN)

    assert answer.error[0] == 400
    assert f"configuration {key}: it stands for the stored value" in answer.error[1]
    assert worker.herder.connectors["c"].config == CONFIG
    assert "new" not in worker.herder.connectors


async def test_a_value_that_only_looks_hidden_is_a_value() -> None:
    """Such as what a transformation puts in the place of a field."""
    async with served() as worker:
        config = {"connector.class": "x", "transforms.mask.replacement": HIDDEN}
        assert (await worker.ask("PUT", "/connectors/c/config", config)).status == 201
        assert worker.herder.connectors["c"].config["transforms.mask.replacement"] == HIDDEN


async def test_reasons_of_ill_health_are_for_those_who_may_read() -> None:
    """Without proof the page says what is ready; and to nobody what is known to be a secret."""
    async with served(rest=settings(**proven())) as worker:
        worker.surface.health.hide = lambda text: text.replace("hunter2", HIDDEN)
        failed = TaskStateChanged("c", 0, state="FAILED", reason="Fatal: hunter2 at db.internal")
        retried = RetryScheduled("d", 0, stage="fetch", error_class="E", message="hunter2", attempt=1, wait_seconds=1.0)
        for event in (failed, retried):
            worker.surface.health(event)
        anyone = await worker.ask("GET", "/health/ready")
        guess = await worker.ask("GET", "/health/ready", headers=bearer("guess"))
        reader = await worker.ask("GET", "/health/ready", headers=READER)

    assert anyone.body["tasks"]["c-0"] == {"state": "FAILED"}
    assert "db.internal" not in anyone.text + guess.text
    assert reader.body["tasks"]["c-0"]["reason"] == f"Fatal: {HIDDEN} at db.internal"
    assert reader.body["tasks"]["d-0"]["retrying"][0]["message"] == HIDDEN
    assert "hunter2" not in reader.text
    assert anyone.status == reader.status == 503
