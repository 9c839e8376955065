"""What the Dockerfile promises, as far as its text can tell; tests/integration builds and runs it."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.architecture.tracked import ROOT, text_of


@pytest.fixture
def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile with their arguments, continuation lines joined."""
    assert (ROOT / "Dockerfile").is_file()
    text = re.sub(r"^\s*#.*\n", "", text_of("Dockerfile"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [(word.upper(), rest.strip()) for word, _, rest in (line.partition(" ") for line in lines) if word]


def last_stage(instructions: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The instructions of the image that is shipped."""
    start = max(index for index, (word, _) in enumerate(instructions) if word == "FROM")
    return instructions[start:]


def test_it_is_built_in_stages(instructions: list[tuple[str, str]]) -> None:
    """What builds is not what ships: at least two stages, and the last copies from another."""
    assert len([word for word, _ in instructions if word == "FROM"]) >= 2
    assert any(word == "COPY" and "--from=" in rest for word, rest in last_stage(instructions))


def test_it_does_not_run_as_root(instructions: list[tuple[str, str]]) -> None:
    """The shipped image's last user is a number other than 0, as Kubernetes' runAsNonRoot wants it."""
    users = [rest for word, rest in last_stage(instructions) if word == "USER"]

    assert users
    assert re.fullmatch(r"[1-9]\d*(:[1-9]\d*)?", users[-1])


def test_it_says_whether_it_is_healthy(instructions: list[tuple[str, str]]) -> None:
    """HEALTHCHECK asks the liveness page."""
    checks = [rest for word, rest in last_stage(instructions) if word == "HEALTHCHECK"]

    assert len(checks) == 1
    assert "/health/live" in checks[0]


def test_it_starts_the_launcher_directly(instructions: list[tuple[str, str]]) -> None:
    """ENTRYPOINT is in exec form: a shell in between would swallow SIGTERM, and with it the staged stop."""
    entries = [rest for word, rest in last_stage(instructions) if word == "ENTRYPOINT"]

    assert len(entries) == 1
    assert entries[0].startswith("[")


def unpinned(instructions: list[tuple[str, str]]) -> list[str]:
    """Images that are fetched by something else than a digest: bases of stages, and what files are copied from."""
    defaults = dict(rest.partition("=")[::2] for word, rest in instructions if word == "ARG")
    stages = {
        rest.lower().split(" as ")[1].strip()
        for word, rest in instructions
        if word == "FROM" and " as " in rest.lower()
    }
    named = [re.sub(r"^(--\S+\s+)*", "", rest).split()[0] for word, rest in instructions if word == "FROM"]
    named += [match[1] for word, rest in instructions if word == "COPY" and (match := re.search(r"--from=(\S+)", rest))]
    images = [defaults.get(match[1], "") if (match := re.fullmatch(r"\$\{?(\w+)\}?", name)) else name for name in named]
    return [
        image
        for image in images
        if image.lower() not in stages and not re.fullmatch(r"[^@\s]+@sha256:[0-9a-f]{64}", image)
    ]


def test_every_image_it_begins_from_is_named_by_its_digest(instructions: list[tuple[str, str]]) -> None:
    """A tag is whatever its owner has put there last."""
    assert unpinned(instructions) == []


@pytest.mark.parametrize(
    "lines",
    [
        [("FROM", "debian:bookworm-slim")],
        [("ARG", "BASE=debian:bookworm-slim"), ("FROM", "${BASE} AS system")],
        [("ARG", "BASE"), ("FROM", "$BASE")],
        [("FROM", "debian@sha256:abc")],
        [("FROM", f"debian@sha256:{'a' * 64}"), ("COPY", "--from=alpine /a /b")],
    ],
)
def test_an_image_without_a_digest_is_found(lines: list[tuple[str, str]]) -> None:
    """However it is named."""
    assert len(unpinned(lines)) == 1


def test_the_image_gets_all_that_its_wheel_is_made_of() -> None:
    """What the wheel puts in from elsewhere is let through to where the image is built."""
    project = tomllib.loads(text_of("pyproject.toml"))
    put_in = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    let_in = {line.removeprefix("!") for line in text_of(".dockerignore").splitlines() if line.startswith("!")}

    assert [path for path in put_in if not {path, path.partition("/")[0]} & let_in] == []
