"""Reads Kafka client properties (Java's names) into `KafkaSettings`, collecting every doubt as a finding.

A role (`producer`, `consumer`, `admin`) sees the worker's own connection keys, over them the worker's
`<role>.<key>`, over them the connector's `<role>.override.<key>` (as in Kafka Connect). What is not
understood is reported, never silently dropped.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fetchers.sdk import Finding, Severity
from service.kafka import client
from service.kafka.compression import Compression
from service.kafka.security import MECHANISMS, PROTOCOLS, KafkaSecurity, parse_jaas

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONNECTION = (
    "bootstrap.servers", "client.id", "request.timeout.ms", "metadata.max.age.ms", "connections.max.idle.ms",
    "retry.backoff.ms", "security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.truststore.type",
    "ssl.truststore.location", "ssl.truststore.certificates", "ssl.truststore.password", "ssl.keystore.type",
    "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key", "ssl.keystore.password",
    "ssl.key.password", "ssl.endpoint.identification.algorithm",
)  # fmt: skip
_PRODUCER = (
    "compression.type", "compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
    "batch.size", "max.request.size", "transaction.timeout.ms", "delivery.timeout.ms",
)  # fmt: skip
_CONSUMER = (
    "group.id", "auto.offset.reset", "max.poll.records", "fetch.max.bytes", "max.partition.fetch.bytes",
    "fetch.min.bytes", "fetch.max.wait.ms", "session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms",
)  # fmt: skip
_OF_ROLE = {"producer": _PRODUCER, "consumer": _CONSUMER}
# Keys of the worker's own that begin as those of a role do.
_OF_NO_CLIENT = ("admin.listeners",)
_PEM_TEXTS = {"ssl.truststore": "ssl.truststore.certificates", "ssl.keystore": "ssl.keystore.certificate.chain"}
_SECRET = (
    "sasl.jaas.config",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
)
# The protocol's integers end here. As a time it means "for ever", which a commit may never wait.
_NUMBER_MAX = 2_147_483_647
_BOOTSTRAP_DEFAULT = "localhost:9092"
# Without a port it is Kafka's own, for this client as for health. `embedded` is such a name too.
_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[^\s:\[\]/,]+)(?::([0-9]{1,5}))?")
_PORT_MAX = 65_535
_RETRY_SECONDS_MIN = 0.001
"""None at all would keep a processor busy."""


def read_settings(
    worker: Mapping[str, str], *, connector: Mapping[str, str] | None = None, role: str = "producer"
) -> tuple[client.KafkaSettings, tuple[Finding, ...]]:
    """Read the keys that concern `role`; every doubt is a finding, and then its default stands in."""
    return _SettingsReader(worker, connector=connector or {}, role=role).read()


@dataclass
class _SettingsReader:
    """One pass over the properties of one client role."""

    worker: Mapping[str, str]
    connector: Mapping[str, str]
    role: str
    findings: list[Finding] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Lay the three sources over each other, the most special on top; remember where each came from."""
        self._values: dict[str, tuple[str, str]] = {}
        for key in _CONNECTION:
            if key in self.worker:
                self._values[key] = (key, self.worker[key])
        for prefix, source in ((f"{self.role}.", self.worker), (f"{self.role}.override.", self.connector)):
            for name, value in source.items():
                key = name.removeprefix(prefix)
                if name.startswith(prefix) and not key.startswith("override.") and not name.startswith(_OF_NO_CLIENT):
                    self._accept(name, key, value)

    def _accept(self, name: str, key: str, value: str) -> None:
        known = _CONNECTION + _OF_ROLE.get(self.role, ())
        if key in known:
            self._values[key] = (name, value)
        elif key in client.FIXED:
            self._note(name, value, "nothing: this setting is fixed by exactly-once delivery", is_error=False)
        elif key not in client.WITHOUT_EFFECT:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"a known key, such as {near[0]}" if near else "a known key"
            self._note(name, "[hidden]" if "password" in key else value, f"{hint}; it is ignored", is_error=False)

    def read(self) -> tuple[client.KafkaSettings, tuple[Finding, ...]]:
        """Build the settings; defaults stand in wherever there is a finding."""
        settings = client.KafkaSettings(
            bootstrap=self._bootstrap(),
            client_id=self._text("client.id", "") or "headrace",
            security=self._security(),
            producer=self._producer(),
            consumer=self._consumer(),
            request_seconds_max=self._seconds("request.timeout.ms", 40.0),
            metadata_age_seconds_max=self._seconds("metadata.max.age.ms", 300.0),
            idle_seconds_max=self._idle_seconds(),
            retry_seconds=max(_RETRY_SECONDS_MIN, self._seconds("retry.backoff.ms", 0.1, low=0)),
        )
        return settings, tuple(self.findings)

    def _bootstrap(self) -> str:
        text = self._text("bootstrap.servers", _BOOTSTRAP_DEFAULT)
        servers = [server.strip() for server in text.split(",") if server.strip()]
        if servers and all(map(_is_server, servers)):
            return text
        self._note(
            self._name("bootstrap.servers"), text, "host:port, or several with commas between; ports are 1 to 65535"
        )
        return _BOOTSTRAP_DEFAULT

    def _producer(self) -> client.ProducerSettings:
        request_bytes_max = self._number("max.request.size", client.REQUEST_BYTES_MAX, low=1024)
        transaction_seconds = self._seconds("transaction.timeout.ms", client.TRANSACTION_SECONDS_MAX)
        commit_seconds = client.COMMIT_SECONDS_MAX
        if self._number("delivery.timeout.ms", _NUMBER_MAX) < _NUMBER_MAX:
            commit_seconds = self._seconds("delivery.timeout.ms", commit_seconds)
        return client.ProducerSettings(
            compression=self._compression(),
            batch_bytes_max=min(self._number("batch.size", client.BATCH_BYTES_MAX, low=1024), request_bytes_max),
            request_bytes_max=request_bytes_max,
            transaction_seconds_max=transaction_seconds,
            commit_seconds_max=commit_seconds,
        )

    def _compression(self) -> Compression | None:
        codec = self._choice("compression.type", client.COMPRESSIONS, "none")
        levels = {name: self._level(name) for name in Compression.LEVELS}
        return None if codec == "none" else Compression(codec, levels.get(codec))

    def _level(self, codec: str) -> int:
        default, low, high = Compression.LEVELS[codec]
        key = f"compression.{codec}.level"
        level = self._number(key, default, low=min(low, default))
        if level != default and not low <= level <= high:
            self._note(self._name(key), str(level), f"a whole number of {low} to {high}")
            return default
        return level

    def _consumer(self) -> client.ConsumerSettings:
        default = client.ConsumerSettings()
        return client.ConsumerSettings(
            group_id=self._text("group.id", "") or None,
            offset_reset=self._choice("auto.offset.reset", client.OFFSET_RESETS, default.offset_reset),
            poll_records_max=self._number("max.poll.records", default.poll_records_max),
            fetch_bytes_max=self._number("fetch.max.bytes", default.fetch_bytes_max),
            partition_fetch_bytes_max=self._number("max.partition.fetch.bytes", default.partition_fetch_bytes_max),
            fetch_bytes_min=self._number("fetch.min.bytes", default.fetch_bytes_min, low=0),
            fetch_wait_seconds_max=self._seconds("fetch.max.wait.ms", default.fetch_wait_seconds_max, low=0),
            session_seconds_max=self._seconds("session.timeout.ms", default.session_seconds_max),
            heartbeat_seconds=self._seconds("heartbeat.interval.ms", default.heartbeat_seconds),
            poll_seconds_max=self._seconds("max.poll.interval.ms", default.poll_seconds_max),
        )

    def _security(self) -> KafkaSecurity:
        protocol = self._choice("security.protocol", PROTOCOLS, "PLAINTEXT")
        mechanism = self._choice("sasl.mechanism", MECHANISMS, "PLAIN")
        options = parse_jaas(self._text("sasl.jaas.config", ""))
        if protocol.startswith("SASL") and not {"username", "password"} <= options.keys():
            beside = self._name("security.protocol").replace("security.protocol", "sasl.jaas.config")
            name = self._name("sasl.jaas.config", otherwise=beside)
            self._note(name, "[hidden]", 'a login module with username="…" and password="…"')
        chain, key = self._text("ssl.keystore.certificate.chain", ""), self._text("ssl.keystore.key", "")
        security = KafkaSecurity(
            protocol=protocol,
            mechanism=mechanism,
            username=options.get("username"),
            password=options.get("password"),
            truststore=self._pem_file("ssl.truststore"),
            truststore_pem=self._text("ssl.truststore.certificates", "") or None,
            keystore=self._pem_file("ssl.keystore"),
            keystore_pem=f"{key}\n{chain}\n" if chain and key else None,
            key_password=self._text("ssl.key.password", "") or None,
            is_hostname_checked=self._text("ssl.endpoint.identification.algorithm", "https") != "",
        )
        for store, why in security.trouble():
            self._note_store(store, why)
        return security

    def _note_store(self, store: str, why: str) -> None:
        """What is wrong with a store goes to the key that says where it is, or what is in it."""
        location, text = f"{store}.location", _PEM_TEXTS[store]
        key, value = (location, self._text(location, "")) if location in self._values else (text, "[hidden]")
        self._note(self._name(key), value, f"PEM that can be used ({why})")

    def _pem_file(self, store: str) -> Path | None:
        location = self._text(f"{store}.location", "")
        if not location:
            return None
        kind = self._text(f"{store}.type", "JKS" if location.endswith((".jks", ".p12", ".pfx")) else "PEM")
        if kind.upper() != "PEM":
            beside = self._name(f"{store}.location").replace(f"{store}.location", f"{store}.type")
            name = self._name(f"{store}.type", otherwise=beside)
            self._note(name, kind, "PEM: convert the Java keystore with keytool and openssl")
            return None
        path = Path(location)
        if not path.is_file():
            self._note(self._name(f"{store}.location"), location, "a readable PEM file")
            return None
        return path

    def _text(self, key: str, default: str) -> str:
        return self._values[key][1].strip() if key in self._values else default

    def _name(self, key: str, *, otherwise: str = "") -> str:
        """The key as it was written, with the prefix of its role."""
        return self._values[key][0] if key in self._values else otherwise or key

    def _choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        text = self._text(key, default)
        found = next((choice for choice in choices if choice.lower() == text.lower()), None)
        if found is None:
            self._note(self._name(key), text, f"one of {', '.join(choices)}")
            return default
        return found

    def _idle_seconds(self) -> float:
        """-1 is for ever, as in Kafka's clients."""
        seconds = self._seconds("connections.max.idle.ms", 540.0, low=-1)
        return seconds if seconds >= 0 else _NUMBER_MAX / 1000

    def _seconds(self, key: str, default: float, *, low: int = 1) -> float:
        return self._number(key, round(default * 1000), low=low) / 1000

    def _number(self, key: str, default: int, *, low: int = 1) -> int:
        text = self._text(key, str(default))
        number = int(text) if text.removeprefix("-").isdecimal() else None
        if number is None or not low <= number <= _NUMBER_MAX:
            self._note(self._name(key), text, f"a whole number of {low} to {_NUMBER_MAX}")
            return default
        return number

    def _note(self, key: str, value: str, expected: str, *, is_error: bool = True) -> None:
        masked = "[hidden]" if key.endswith(_SECRET) and value else value
        text = f"Invalid value {masked} for configuration {key}: Expected {expected}"
        self.findings.append(Finding(key, masked, text, Severity.ERROR if is_error else Severity.WARNING))


def _is_server(text: str) -> bool:
    match = _SERVER.fullmatch(text)
    return match is not None and (match[1] is None or 1 <= int(match[1]) <= _PORT_MAX)
