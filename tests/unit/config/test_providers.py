"""Config providers: what variables stand for, what may be read, and that values stay where they belong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from fetchers.sdk import Severity
from service.config.providers import BY_DEFAULT, ConfigProviders, ProviderError, Resolved, resolve_worker
from service.config.worker import WorkerConfig
from service.herder.errors import BadRequestError
from service.job import ConfigRefusedError, make_job
from service.validation.validator import Validation

PACKAGE = "org.apache.kafka.common.config.provider"
CLASSES = {"file": "FileConfigProvider", "dir": "DirectoryConfigProvider", "env": "EnvVarConfigProvider"}
FILE = {"name": "c", "connector.class": "FileStreamSource", "topic": "t", "file": "f"}


def worker(**parameters: str) -> dict[str, str]:
    """A worker with all three; parameters as ``file__allowed_paths=…``."""
    named = {f"config.providers.{name}.class": f"{PACKAGE}.{word}" for name, word in CLASSES.items()}
    keys = {
        f"config.providers.{name.replace('__', '.param.', 1).replace('_', '.')}": text
        for name, text in parameters.items()
    }
    return {"config.providers": "file, dir,env", **named, **keys}


def providers(environ: dict[str, str] | None = None, **parameters: str) -> ConfigProviders:
    """The providers of that worker, which must be right."""
    parsed, findings = ConfigProviders.parse(worker(**parameters), environ=environ or {})
    assert findings == ()
    return parsed


def resolved(text: str, environ: dict[str, str] | None = None, **parameters: str) -> str:
    """What a text becomes."""
    return providers(environ, **parameters).resolve({"key": text}).properties["key"]


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder with a properties file and a file for a single key."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "db.properties").write_text("user = anne\npassword=s3\\u00e9cret\nempty=\n", encoding="utf-8")
    (folder / "token").write_text("t0ken\n", encoding="utf-8")
    (tmp_path / "outside.properties").write_text("password=outside\n", encoding="utf-8")
    return folder


def test_a_variable_of_a_file_is_a_key_of_its_properties(secrets: Path) -> None:
    """Read by Java's rules."""
    assert resolved(f"${{file:{secrets}/db.properties:password}}") == "s3écret"


def test_a_byte_order_mark_is_not_part_of_a_files_first_key(secrets: Path) -> None:
    """Editors on Windows put one there."""
    (secrets / "windows.properties").write_text("\ufeffuser=anne\n", encoding="utf-8")
    assert resolved(f"${{file:{secrets}/windows.properties:user}}") == "anne"


def test_a_variable_of_a_folder_is_the_content_of_a_file(secrets: Path) -> None:
    """All of it, its line end too."""
    assert resolved(f"${{dir:{secrets}:token}}") == "t0ken\n"


def test_a_variable_of_the_environment_has_no_path() -> None:
    """One with a path is a mistake."""
    assert resolved("${env:DB}", {"DB": "x"}) == "x"
    with pytest.raises(ProviderError, match="Path is not supported"):
        resolved("${env:some:DB}", {"DB": "x"})


def test_several_variables_may_stand_in_one_value(secrets: Path) -> None:
    """With text around them."""
    text = f"jdbc://${{file:{secrets}/db.properties:user}}:${{env:P}}@host"
    assert resolved(text, {"P": "pw"}) == "jdbc://anne:pw@host"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$", "$"),
        ("$env:A", "$env:A"),
        ("${env:A", "${env:A"),
        ("$${env:A}", "$value"),
        ("${env:A}}", "value}"),
        ("${other:A}", "${other:A}"),
        ("${A}", "${A}"),
        ("${}", "${}"),
        ("${:A}", "${:A}"),
        ("${env:}", "${env:}"),
        ("${env:B}", "${env:A}"),
        ("${env:NOT}${env:A}", "${env:NOT}value"),
        ("", ""),
    ],
)
def test_everything_else_stays_as_it_is(text: str, expected: str) -> None:
    """Broken, foreign and unknown variables; what a value holds is not looked through again."""
    assert resolved(text, {"A": "value", "B": "${env:A}"}) == expected


def test_what_a_known_provider_does_not_know_is_warned_of(secrets: Path) -> None:
    """The text stays, as in Connect, but somebody hears of it; so it is of a provider that nobody named."""
    found = providers().resolve({"a": f"${{file:{secrets}/db.properties:nope}}", "b": "${other:x}", "c": "${1:x}"})
    assert [(each.key, each.severity) for each in found.unresolved] == [
        ("a", Severity.WARNING),
        ("b", Severity.WARNING),
    ]
    assert (
        "has no config provider 'other', but file, dir, env; name it in config.providers" in found.unresolved[1].message
    )
    assert [each.key for each in found.missing] == ["a"], "of a provider that is there"
    assert found.variables == {}


def test_a_worker_that_names_no_providers_has_three(secrets: Path) -> None:
    """A variable of the environment needs no more than itself; an empty list takes them away."""
    text = f"${{env:A}} ${{file:{secrets}/db.properties:user}} ${{directory:{secrets}:token}}"
    for properties in ({}, {"config.providers.env.param.allowlist.pattern": "A"}):
        known = resolve_worker(properties, environ={"A": "a", "B": "b"}).providers
        assert known.resolve({"key": text}).properties["key"] == "a anne t0ken\n"
        assert bool(known.resolve({"key": "${env:B}"}).unresolved) is bool(properties)
    nothing = resolve_worker({"config.providers": ""}, environ={"A": "a"}).providers.resolve({"key": "${env:A}"})
    (left,) = nothing.unresolved
    assert left.message.startswith("${env:A} is not resolved: the worker has no config provider 'env', nor any other;")
    assert left.message.endswith(
        "name it in config.providers of the worker's file (--worker FILE gives a command that file)"
    )
    assert WorkerConfig.parse({}).config.config_providers == tuple(BY_DEFAULT)  # type: ignore[union-attr]


def test_a_job_of_files_is_refused_for_a_variable_without_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its source would be sent the variable itself."""
    monkeypatch.delenv("HEADRACE_TEST_NONE", raising=False)
    with pytest.raises(ConfigRefusedError) as refusal:
        make_job({}, [{**FILE, "file": "${env:HEADRACE_TEST_NONE}"}])
    (finding,) = [each for source in refusal.value.sources for each in source.findings]
    assert (finding.key, finding.is_error) == ("file", True)
    assert "the config provider 'env' does not know it" in finding.message


def test_a_missing_file_is_an_error_without_content(tmp_path: Path) -> None:
    """As in Connect; of a missing folder the text stays."""
    with pytest.raises(ProviderError, match="Could not read properties from file"):
        resolved(f"${{file:{tmp_path}/nope.properties:a}}")
    assert resolved(f"${{dir:{tmp_path}/nope:a}}").startswith("${dir:")


def test_a_file_that_is_none_of_settings_is_an_error(tmp_path: Path) -> None:
    """Bytes, broken escapes, a folder, something huge: told without what stands in it."""
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00secret")
    (tmp_path / "escape").write_text("secret=\\u12", encoding="utf-8")
    with (tmp_path / "huge").open("wb") as huge:
        huge.truncate(2 << 20)
    for name in ("binary", "escape", "huge", "."):
        with pytest.raises(ProviderError) as error:
            resolved(f"${{file:{tmp_path}/{name}:a}}")
        assert "secret" not in str(error.value)


def test_only_allowed_paths_are_read(secrets: Path) -> None:
    """Not what is beside them, nor by dots."""
    assert (
        resolved(
            f"${{file:{secrets}/db.properties:user}}", file__allowed_paths=str(secrets), dir__allowed_paths=str(secrets)
        )
        == "anne"
    )
    assert (
        resolved(f"${{dir:{secrets}:token}}", file__allowed_paths=str(secrets), dir__allowed_paths=str(secrets))
        == "t0ken\n"
    )
    for variable in (
        f"${{file:{secrets.parent}/outside.properties:password}}",
        f"${{file:{secrets}/../outside.properties:password}}",
        f"${{dir:{secrets.parent}:outside.properties}}",
        f"${{dir:{secrets}/..:outside.properties}}",
        f"${{dir:{secrets}:../outside.properties}}",
    ):
        assert resolved(variable, file__allowed_paths=str(secrets), dir__allowed_paths=str(secrets)) == variable


def test_links_do_not_lead_out_of_allowed_paths(secrets: Path) -> None:
    """Neither a file's nor a folder's; links inside (as Kubernetes mounts secrets) do their work."""
    (secrets / "link.properties").symlink_to(secrets.parent / "outside.properties")
    (secrets / "up").symlink_to(secrets.parent)
    (secrets / "inside").symlink_to(secrets / "token")
    for variable in (
        f"${{file:{secrets}/link.properties:password}}",
        f"${{dir:{secrets}:link.properties}}",
        f"${{dir:{secrets}/up:outside.properties}}",
    ):
        assert resolved(variable, file__allowed_paths=str(secrets), dir__allowed_paths=str(secrets)) == variable
    assert (
        resolved(f"${{dir:{secrets}:inside}}", file__allowed_paths=str(secrets), dir__allowed_paths=str(secrets))
        == "t0ken\n"
    )


def test_the_environment_can_be_limited_by_a_pattern() -> None:
    """The whole name must match."""
    environ = {"APP_A": "a", "MY_APP_A": "b"}
    assert resolved("${env:APP_A}", environ, env__allowlist_pattern="APP_.*") == "a"
    assert resolved("${env:MY_APP_A}", environ, env__allowlist_pattern="APP_.*") == "${env:MY_APP_A}"


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"config.providers.file.class": "NoProvider"}, "config.providers.file.class"),
        ({"config.providers.file.class": ""}, "config.providers.file.class"),
        ({"config.providers.file.param.allowed.paths": "relative"}, "config.providers.file.param.allowed.paths"),
        ({"config.providers.dir.param.allowed.paths": "/no/such/dir"}, "config.providers.dir.param.allowed.paths"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "config.providers.env.param.allowlist.pattern"),
    ],
)
def test_a_provider_that_cannot_be_set_up_is_a_finding(changed: dict[str, str], key: str) -> None:
    """On the worker's key that is at fault."""
    _, findings = ConfigProviders.parse({**worker(), **changed}, environ={})
    assert [(finding.key, finding.is_error) for finding in findings] == [(key, True)]


def test_values_that_are_resolved_are_hidden_from_then_on() -> None:
    """By the one redactor of the worker."""
    known = providers({"A": "first-secret", "B": "other-secret"})
    known.resolve({"a": "${env:A}"})
    known.resolve({"a": "x${env:B}"})
    assert known.redactor.redact("first-secret other-secret") == "[hidden] [hidden]"


def test_a_value_of_digits_alone_turns_back() -> None:
    """A number is a password too; where its digits are part of another number they are that one's."""
    written = {"pin": "${env:PIN}"}
    found = providers({"PIN": "48151623"}).resolve(written)
    own = {"pin": "48151623", "url": "http://u:48151623@h", "other": "948151623", "limit": "48151623"}
    assert found.turned_back(own, written) == {
        "pin": "${env:PIN}",
        "url": "http://u:${env:PIN}@h",
        "other": "948151623",
        "limit": "${env:PIN}",
    }


def task_origin() -> Resolved:
    """A resolved config with a password."""
    return providers({"PW": "hunter22", "N": "10"}).resolve({"pw": "${env:PW}", "tasks.max": "${env:N}", "x": "1"})


def test_a_value_shows_in_no_other_keys_error() -> None:
    """Such as the list of topics in a text about the dead letters."""
    validation = Validation(
        {"key.converter": "string", "value.converter": "json"}, providers({"T": "hush-hush"}).resolve
    )
    sink = {"name": "s", "connector.class": "FileStreamSink", "topics": "a", "topics.regex": "hush-.*"}
    answer = validation.validate({**sink, "topics": "", "errors.deadletterqueue.topic.name": "${env:T}"}).infos
    assert answer.error_count == 1
    assert "hush-hush" not in repr(answer)


def test_task_configs_get_their_variables_back() -> None:
    """By key, and wherever else a secret's text stands."""
    written = {"pw": "${env:PW}", "tasks.max": "${env:N}", "x": "1"}
    own = {"pw": "hunter22", "url": "http://u:hunter22@h", "tasks.max": "10", "other": "10", "x": "1"}
    assert task_origin().turned_back(own, written) == {
        "pw": "${env:PW}",
        "url": "http://u:${env:PW}@h",
        "tasks.max": "${env:N}",
        "other": "10",
        "x": "1",
    }


def test_a_worker_resolves_its_own_properties() -> None:
    """By the providers it names itself."""
    found = resolve_worker({**worker(), "producer.sasl.jaas.config": "${env:J}"}, environ={"J": "jaas"})
    assert found.properties["producer.sasl.jaas.config"] == "jaas"
    failed = resolve_worker({**worker(), "group.id": "${env:x:J}"}, environ={})
    assert any(finding.is_error for finding in failed.findings)


def test_a_job_keeps_variables_and_uses_values(secrets: Path) -> None:
    """The connector's config stays as written; what is made of it has the value."""
    connector = {**FILE, "topic": f"${{file:{secrets}/db.properties:user}}"}
    job = make_job(worker(), [connector])
    assert job.connectors == (connector,)
    (definition,) = job.definitions()
    assert definition.topic == "anne"
    assert job.resolution(connector, registry_url=None).variables == {"topic": connector["topic"]}


def test_a_job_is_refused_without_telling_values(secrets: Path, tmp_path: Path) -> None:
    """A wrong value of a provider, and a provider that cannot be asked."""
    wrong = {**FILE, "tasks.max": f"${{file:{secrets}/db.properties:password}}"}
    missing = {**FILE, "name": "d", "topic": f"${{file:{tmp_path}/nope:x}}"}
    with pytest.raises(ConfigRefusedError) as refusal:
        make_job(worker(), [wrong, missing])
    found = [finding for source in refusal.value.sources for finding in source.findings if finding.is_error]
    assert "s3écret" not in str(found)
    assert len(found) == 2


def test_validation_shows_the_variable_and_not_the_value(secrets: Path) -> None:
    """An error about it is replaced, and counts one."""
    variable = f"${{file:{secrets}/db.properties:password}}"
    validation = Validation({"key.converter": "string", "value.converter": "json"}, providers().resolve)
    answer = validation.validate({**FILE, "tasks.max": variable, "topic": variable, "header.converter": variable}).infos
    assert "s3écret" not in repr(answer)
    values = {info.value.name: info.value for info in answer.configs}
    assert values["topic"].value == variable
    assert values["tasks.max"].value == variable
    assert values["header.converter"].recommended_values == ()
    assert answer.errors == tuple(
        f"Invalid value for configuration '{key}': "
        "the value resolved from the config provider reference failed validation"
        for key in ("tasks.max", "header.converter", "topic")
    )
    assert answer.error_count == 3


def test_a_workers_values_are_not_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password may look like a variable."""
    monkeypatch.setenv("HEADRACE_TEST_OUTER", "${env:HEADRACE_TEST_INNER}")
    monkeypatch.setenv("HEADRACE_TEST_INNER", "inner")
    job = make_job({**worker(), "ssl.key.password": "${env:HEADRACE_TEST_OUTER}"}, [])
    assert job.worker_with(None)["ssl.key.password"] == "${env:HEADRACE_TEST_INNER}"


OPEN_LISTENERS = {"listeners": "http://0.0.0.0:8083"}


def lent(environ: Mapping[str, str], **more: str) -> ConfigProviders:
    """What a worker with these properties lends to its connectors."""
    return resolve_worker({**worker(), **more}, environ=environ).providers


def test_beyond_ones_own_machine_connectors_read_nothing_unnamed(secrets: Path) -> None:
    """The worker itself does; whoever may write a connector's config is not the worker's user."""
    file, folder = f"${{file:{secrets}/db.properties:user}}", f"${{dir:{secrets}:token}}"
    mine = resolve_worker({**worker(), **OPEN_LISTENERS, "group.id": file, "client.id": "${env:A}"}, environ={"A": "a"})
    assert (mine.properties["group.id"], mine.properties["client.id"], mine.findings) == ("anne", "a", ())
    for variable, key in ((file, "connector.allowed.paths"), (folder, "allowed.paths"), ("${env:A}", "allowlist")):
        with pytest.raises(ProviderError, match=key):
            mine.providers.resolve({"x": variable})
        with pytest.raises(BadRequestError, match=key):
            Validation({**worker(), **OPEN_LISTENERS}, mine.providers.resolve).validate({**FILE, "topic": variable})
    assert lent({"A": "a"}).resolve({"x": f"{file} ${{env:A}}"}).properties == {"x": "anne a"}


def test_what_the_worker_names_connectors_may_read(secrets: Path) -> None:
    """By the provider's own bounds, or by those of all paths."""
    file = f"${{file:{secrets}/db.properties:user}}"
    of_all = lent({}, **OPEN_LISTENERS, **{"connector.allowed.paths": str(secrets)})
    own = lent({}, **OPEN_LISTENERS, **{"config.providers.file.param.allowed.paths": str(secrets)})
    other = lent({}, **OPEN_LISTENERS, **{"connector.allowed.paths": str(secrets / "other")})
    assert [each.resolve({"x": file}).properties["x"] for each in (of_all, own, other)] == ["anne", "anne", file]
    chosen = lent({"A": "a", "B": "b"}, **OPEN_LISTENERS, **{"config.providers.env.param.allowlist.pattern": "A"})
    assert chosen.resolve({"x": "${env:A}${env:B}"}).properties == {"x": "a${env:B}"}


def test_a_pipe_keeps_nobody_waiting(secrets: Path) -> None:
    """It is an error, like everything that is no regular file."""
    os.mkfifo(secrets / "pipe")
    with pytest.raises(ProviderError, match="is not a regular file"):
        resolved(f"${{file:{secrets}/pipe:a}}")


@pytest.mark.parametrize("text", ["${" + ":" * 20_000, "${a" * 20_000, "${b:" * 20_000 + "}", "${a}" * 20_000])
def test_texts_that_hold_no_variable_are_read_once(text: str) -> None:
    """Python's engine took the cube of their length for some, and held the interpreter meanwhile."""
    assert resolved(text) == text
