"""The worker's keys of the REST interface: what is understood, and every finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.config.listeners import Listener
from service.config.worker import WorkerConfig
from service.job import make_job
from service.rest.authentication import Proof, Role
from service.rest.browsers import HeaderRule
from service.rest.settings import RestSettings, read_rest_settings
from tests.apis.rest.certificates import Authority


def read(**keys: str) -> tuple[RestSettings | None, list[str]]:
    """Settings, and the keys of findings; ``_`` in a name stands for a dot."""
    properties = {key.replace("_", "."): value for key, value in keys.items()}
    config = WorkerConfig.parse(properties).config
    assert config is not None
    settings, findings = read_rest_settings(config, properties)
    assert (settings is None) == bool(findings)
    return settings, [finding.key for finding in findings]


def valid(**keys: str) -> RestSettings:
    """Settings without findings."""
    settings, findings = read(**keys)
    assert findings == []
    assert settings is not None
    return settings


def test_by_default_the_worker_listens_to_its_own_machine() -> None:
    """Without proof, with Connect's limits."""
    settings = valid()

    assert settings.listeners == (Listener("http", "127.0.0.1", 8083),)
    assert (settings.proofs, settings.admin_listeners) == ((), None)
    assert (settings.request_bytes_max, settings.request_seconds_max) == (1_048_576, 90.0)
    assert settings.cross_origin.origins == ()


@pytest.mark.parametrize(
    ("text", "listeners"),
    [
        ("http://localhost:0", [Listener("http", "localhost", 0)]),
        ("HTTP://127.0.0.2", [Listener("http", "127.0.0.2", 8083)]),
        ("http://[::1]:1, http://127.0.0.1:2", [Listener("http", "::1", 1), Listener("http", "127.0.0.1", 2)]),
    ],
)
def test_listeners(text: str, listeners: list[Listener]) -> None:
    """Several, in any spelling."""
    assert valid(listeners=text).listeners == tuple(listeners)


@pytest.mark.parametrize(
    "text", ["", ",", "ftp://x:1", "8083", "http://x:99999", "http://x:y", "http://x/path", "http://a@b:1"]
)
def test_what_is_no_listener_is_a_finding(text: str) -> None:
    """Before anything listens."""
    assert read(listeners=text)[1] == ["listeners"]


def test_the_old_form_of_listeners() -> None:
    """``rest.host.name`` and ``rest.port``."""
    assert valid(rest_host_name="localhost", rest_port="1234").listeners == (Listener("http", "localhost", 1234),)
    assert valid(rest_port="1234").listeners == (Listener("http", "127.0.0.1", 1234),)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.1.2.3", "connect.example.org", "[::]"])
@pytest.mark.parametrize("key", ["listeners", "admin_listeners", "rest_host_name"])
def test_others_may_not_reach_a_worker_that_asks_for_no_proof(key: str, host: str) -> None:
    """Unless that is said in so many words."""
    if key == "rest_host_name" and not host:
        return
    keys = {key: host.strip("[]") if key == "rest_host_name" else f"http://{host}:8083"}
    if key == "rest_host_name" and ":" in host:
        keys[key] = host

    assert read(**keys)[1] == ["rest.auth"]
    assert valid(**keys, rest_auth="none").proofs == ()
    assert valid(**keys, rest_auth="basic", rest_auth_users_anne="admin:x").proofs == (Proof.BASIC,)


def test_a_certificate_is_proof_enough(tmp_path: Path) -> None:
    """Where it is required."""
    authority = Authority(tmp_path)
    keys = {
        "listeners": "https://0.0.0.0:8443",
        "ssl_keystore_location": str(authority.sign("localhost")),
        "ssl_truststore_location": str(authority.certificate),
    }

    assert valid(**keys, ssl_client_auth="required").tls is not None
    assert read(**keys, ssl_client_auth="requested")[1] == ["rest.auth"]
    assert read(**keys)[1] == ["rest.auth"]


@pytest.mark.parametrize(
    ("keys", "finding"),
    [
        ({}, "ssl.keystore.location"),
        ({"ssl_keystore_location": "/nowhere.pem"}, "ssl.keystore.location"),
        ({"ssl_keystore_location": "/nowhere.jks"}, "ssl.keystore.type"),
        ({"ssl_keystore_location": "/nowhere", "ssl_keystore_type": "PKCS12"}, "ssl.keystore.type"),
        ({"ssl_client_auth": "maybe"}, "ssl.client.auth"),
        ({"ssl_client_auth": "required"}, "ssl.truststore.location"),
        ({"ssl_truststore_location": "/nowhere.pem"}, "ssl.truststore.location"),
    ],
)
def test_what_is_wrong_with_certificates_is_a_finding(keys: dict[str, str], finding: str) -> None:
    """Files that are not there, forms that are not ours, words that are none."""
    assert finding in read(listeners="https://127.0.0.1:0", **keys)[1]


def test_users_and_tokens(tmp_path: Path) -> None:
    """From the worker's own keys and from a file."""
    file = tmp_path / "auth.properties"
    file.write_text("users.rita=read:r\ntokens.robot=admin:t\n", encoding="utf-8")
    settings = valid(rest_auth="basic,bearer", rest_auth_users_anne="admin:a", rest_auth_file=str(file))

    assert {name: held.role for name, held in settings.users.items()} == {"anne": Role.ADMIN, "rita": Role.READ}
    assert {name: held.role for name, held in settings.tokens.items()} == {"robot": Role.ADMIN}
    assert set(settings.secrets) == {"a", "r", "t"}


@pytest.mark.parametrize(
    ("keys", "finding"),
    [
        ({"rest_auth": "kerberos"}, "rest.auth"),
        ({"rest_auth": "none,basic"}, "rest.auth"),
        ({"rest_auth": "basic"}, "rest.auth"),
        ({"rest_auth": "bearer", "rest_auth_users_anne": "admin:a"}, "rest.auth"),
        ({"rest_auth_users_anne": "root:a"}, "rest.auth.users.anne"),
        ({"rest_auth_tokens_robot": "secret"}, "rest.auth.tokens.robot"),
        ({"rest_auth_file": "/nowhere"}, "rest.auth.file"),
        ({"rest_auth_open": "everything"}, "rest.auth.open"),
        ({"response_http_headers_config": "delete X: y"}, "response.http.headers.config"),
        ({"admin_listeners": "nonsense"}, "admin.listeners"),
    ],
)
def test_what_is_wrong_is_a_finding(keys: dict[str, str], finding: str) -> None:
    """With the key it stands in."""
    assert read(**keys)[1] == [finding]


def test_findings_show_no_secret() -> None:
    """Neither as a value nor in their text."""
    config = WorkerConfig.parse({"rest.auth.users.anne": "hunter2"}).config
    assert config is not None
    _, (finding,) = read_rest_settings(config, {})

    assert "hunter2" not in f"{finding}"


def test_no_log_line_shows_a_credential() -> None:
    """They are among the secrets that logs are cleared of."""
    job = make_job({"rest.auth.users.anne": "admin:hunter2", "rest.auth.tokens.robot": "read:hunter3"}, ())

    assert {"hunter2", "hunter3"} <= set(job.secrets())


def test_cross_origin_and_headers() -> None:
    """In Connect's forms."""
    settings = valid(
        access_control_allow_origin="https://a.example, https://b.example",
        access_control_allow_methods="get,put",
        response_http_headers_config='add X-A: 1; mode=block,"set Cache-Control: no-cache, no-store", setDate X: 60000',
    )

    assert settings.cross_origin.origins == ("https://a.example", "https://b.example")
    assert settings.cross_origin.methods == ("GET", "PUT")
    assert settings.header_rules == (
        HeaderRule("add", "X-A", "1; mode=block"),
        HeaderRule("set", "Cache-Control", "no-cache, no-store"),
        HeaderRule("setDate", "X", "60000"),
    )


def test_admin_listeners() -> None:
    """None where the key is empty."""
    assert valid(admin_listeners="").admin_listeners == ()
    assert valid(admin_listeners="http://localhost:1").admin_listeners == (Listener("http", "localhost", 1),)


def test_where_a_listener_can_be_reached() -> None:
    """From the worker's own machine."""
    urls = [Listener("http", host, 0).url(1) for host in ("", "0.0.0.0", "::", "::1", "x.example")]

    assert urls == [
        "http://127.0.0.1:1",
        "http://127.0.0.1:1",
        "http://[::1]:1",
        "http://[::1]:1",
        "http://x.example:1",
    ]


def test_names_of_proxies_are_hosts() -> None:
    """With a port or without; anything else is a finding."""
    settings = valid(rest_allowed_hosts="proxy.example, [::1]:80", rest_advertised_host_name="w1")

    assert [(each.host, each.port) for each in settings.allowed_hosts] == [("proxy.example", None), ("::1", 80)]
    assert (settings.advertised_host, settings.is_any_host_allowed) == ("w1", False)
    assert valid(rest_allowed_hosts="*").is_any_host_allowed
    assert read(rest_allowed_hosts="http://proxy.example")[1] == ["rest.allowed.hosts"]
