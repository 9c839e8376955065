"""The REST interface as configured: everything that can be found wrong is found before anything listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fetchers.sdk import Finding
from service.config.files import ConfigFileError, read_properties
from service.config.listeners import Listener, listeners_text, parse_listeners
from service.config.worker import WorkerConfig
from service.rest.authentication import Credential, Proof, parse_password, parse_token
from service.rest.browsers import (
    METHODS_BY_DEFAULT,
    Authority,
    CrossOrigin,
    HeaderRule,
    OwnNames,
    parse_allowed_hosts,
    parse_header_rules,
)
from service.rest.connections import ConnectionLimits
from service.rest.tls import ADMIN_PREFIX, LISTENERS_PREFIX, TlsContexts, TlsReader

_NO_PROOF = (
    "A listener that other machines can reach needs rest.auth=basic or bearer, or ssl.client.auth=required; "
    "rest.auth=none lets everyone who reaches it do everything"
)
_OPEN_PAGES = frozenset({"health", "metrics"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """Where to listen, whom to answer, within which limits."""

    listeners: tuple[Listener, ...]
    admin_listeners: tuple[Listener, ...] | None = None
    """None: ``listeners`` serve ``/admin`` too; empty: nobody does."""
    tls: TlsContexts | None = None
    """There where a listener speaks https."""
    admin_tls: TlsContexts | None = None
    proofs: tuple[Proof, ...] = ()
    """None: everyone may do everything."""
    users: Mapping[str, Credential] = field(default_factory=dict)
    tokens: Mapping[str, Credential] = field(default_factory=dict)
    open_pages: frozenset[str] = _OPEN_PAGES
    is_config_hidden: bool = False
    """Whether administrators too are not shown secrets in configs."""
    config_providers: frozenset[str] = frozenset()
    """Names of the worker's config providers."""
    advertised_host: str | None = None
    """The name under which the other workers of the group ask this one."""
    allowed_hosts: tuple[Authority, ...] = ()
    """Further names under which clients may ask, such as those of proxies."""
    is_any_host_allowed: bool = False
    cross_origin: CrossOrigin = field(default_factory=CrossOrigin)
    header_rules: tuple[HeaderRule, ...] = ()
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    request_bytes_max: int = 1024 * 1024
    request_seconds_max: float = 90.0
    health_seconds_max: float = 10.0

    def own_names(self, machine: Sequence[str]) -> OwnNames:
        """What a request's ``Host`` may be. ``machine``: what this machine is called."""
        return OwnNames(
            (*self.listeners, *(self.admin_listeners or ())),
            tuple(filter(None, (self.advertised_host, *machine))),
            self.allowed_hosts,
            self.is_any_host_allowed,
        )

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must be shown nowhere."""
        return tuple(held.secret for held in (*self.users.values(), *self.tokens.values()))


def read_rest_settings(
    config: WorkerConfig, properties: Mapping[str, str]
) -> tuple[RestSettings | None, tuple[Finding, ...]]:
    """Read the worker's keys; None with findings where one of them is an error."""
    return _Reading(config, properties).read()


class _Reading:
    def __init__(self, config: WorkerConfig, properties: Mapping[str, str]) -> None:
        self._config = config
        self._properties = properties
        self._findings: list[Finding] = []

    def read(self) -> tuple[RestSettings | None, tuple[Finding, ...]]:
        config = self._config
        listeners = self._listeners(
            "listeners", listeners_text(config.listeners, config.rest_host_name, config.rest_port)
        )
        admin = None if config.admin_listeners is None else self._listeners("admin.listeners", config.admin_listeners)
        tls = self._tls(listeners, LISTENERS_PREFIX)
        admin_tls = self._tls(admin or (), ADMIN_PREFIX)
        users, tokens = self._credentials()
        allowed_hosts, is_any_host_allowed = self._allowed_hosts()
        settings = RestSettings(
            listeners=listeners,
            admin_listeners=admin,
            tls=tls,
            admin_tls=admin_tls,
            proofs=self._proofs(),
            users=users,
            tokens=tokens,
            open_pages=self._open_pages(),
            is_config_hidden=config.rest_config_secrets == "hide",
            config_providers=frozenset(config.config_providers),
            advertised_host=config.rest_advertised_host_name,
            allowed_hosts=allowed_hosts,
            is_any_host_allowed=is_any_host_allowed,
            cross_origin=CrossOrigin(
                _items(config.access_control_allow_origin),
                _items(config.access_control_allow_methods.upper()) or METHODS_BY_DEFAULT,
            ),
            header_rules=self._header_rules(),
            connections=ConnectionLimits(
                config.rest_connections_max,
                config.rest_connections_per_address_max,
                config.rest_connection_timeout_ms / 1000,
            ),
            request_bytes_max=config.rest_request_bytes_max,
            request_seconds_max=config.rest_request_timeout_ms / 1000,
        )
        self._demand_proof(settings)
        return (None if self._findings else settings), tuple(self._findings)

    def _listeners(self, key: str, text: str) -> tuple[Listener, ...]:
        try:
            found = parse_listeners(text)
        except ValueError as error:
            self._note(key, text, str(error))
            return ()
        if not found and key == "listeners":
            self._note(key, text, "Expected at least one address")
        return found

    def _tls(self, listeners: tuple[Listener, ...], prefix: str) -> TlsContexts | None:
        if not any(listener.scheme == "https" for listener in listeners):
            return None
        reader = TlsReader(self._properties, prefix)
        contexts = reader.read()
        self._findings.extend(reader.findings)
        return contexts

    def _proofs(self) -> tuple[Proof, ...]:
        words = self._config.rest_auth
        strangers = [word for word in words if word not in list(Proof)]
        if strangers or (Proof.NONE in words and len(words) > 1):
            self._note("rest.auth", ",".join(words), "Expected none, or basic, bearer, or both")
            return ()
        return tuple(Proof(word) for word in words if word != Proof.NONE)

    def _open_pages(self) -> frozenset[str]:
        pages = frozenset(self._config.rest_auth_open)
        if not pages <= _OPEN_PAGES:
            self._note("rest.auth.open", ",".join(sorted(pages)), "Expected health, metrics, or both")
        return pages

    def _allowed_hosts(self) -> tuple[tuple[Authority, ...], bool]:
        items = self._config.rest_allowed_hosts
        try:
            return parse_allowed_hosts(items)
        except ValueError as error:
            self._note("rest.allowed.hosts", ",".join(items), str(error))
            return (), False

    def _header_rules(self) -> tuple[HeaderRule, ...]:
        text = self._config.response_http_headers_config
        try:
            return parse_header_rules(text)
        except ValueError as error:
            self._note("response.http.headers.config", text, str(error))
            return ()

    def _credentials(self) -> tuple[dict[str, Credential], dict[str, Credential]]:
        config = self._config
        users = {f"rest.auth.users.{name}": value.get_secret_value() for name, value in config.rest_auth_users.items()}
        tokens = {
            f"rest.auth.tokens.{name}": value.get_secret_value() for name, value in config.rest_auth_tokens.items()
        }
        for key, text in self._credential_file().items():
            if key.startswith("users."):
                users[f"rest.auth.{key}"] = text
            elif key.startswith("tokens."):
                tokens[f"rest.auth.{key}"] = text
            else:
                self._note("rest.auth.file", str(config.rest_auth_file), f"Expected users.NAME or tokens.NAME: '{key}'")
        return (
            self._parsed(users, "rest.auth.users.", parse_password),
            self._parsed(tokens, "rest.auth.tokens.", parse_token),
        )

    def _credential_file(self) -> Mapping[str, str]:
        path = self._config.rest_auth_file
        if path is None:
            return {}
        try:
            return read_properties(path)
        except ConfigFileError as error:
            self._note("rest.auth.file", str(path), str(error))
            return {}

    def _parsed(
        self, texts: Mapping[str, str], prefix: str, parse: Callable[[str], Credential]
    ) -> dict[str, Credential]:
        found = {}
        for key, text in texts.items():
            try:
                found[key.removeprefix(prefix)] = parse(text)
            except ValueError as error:
                self._note(key, "[hidden]", str(error))
        return found

    def _demand_proof(self, settings: RestSettings) -> None:
        if self._config.rest_auth:
            self._demand_credentials(settings)
            return
        served = [(each, settings.tls) for each in settings.listeners]
        served += [(each, settings.admin_tls) for each in settings.admin_listeners or ()]
        for listener, tls in served:
            is_proven = listener.scheme == "https" and tls is not None and tls.is_client_required
            if not listener.is_loopback and not is_proven:
                self._note("rest.auth", None, f"{_NO_PROOF} ({listener.scheme}://{listener.host}:{listener.port})")

    def _demand_credentials(self, settings: RestSettings) -> None:
        held = {Proof.BASIC: ("users", settings.users), Proof.BEARER: ("tokens", settings.tokens)}
        for proof in settings.proofs:
            word, credentials = held[proof]
            if not credentials:
                self._note("rest.auth", proof.value, f"Expected at least one rest.auth.{word}.NAME: nobody could ask")

    def _note(self, key: str, value: str | None, expected: str) -> None:
        self._findings.append(Finding(key, value, f"Invalid value {value} for configuration {key}: {expected}"))


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())
