"""TLS of listeners and of requests to other workers: Java's keys, PEM forms only.

``listeners.https.ssl.*`` over ``ssl.*``, as in Connect: as soon as one key has the prefix, only such keys count.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fetchers.sdk import Finding

LISTENERS_PREFIX, ADMIN_PREFIX = "listeners.https.", "admin.listeners.https."
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_SECRET = ("ssl.key.password", "ssl.keystore.key", "ssl.keystore.password", "ssl.truststore.password")


@dataclass(frozen=True, slots=True)
class TlsContexts:
    """How listeners show who they are and whom they trust, and the same towards other workers."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    is_client_required: bool
    """Whether nobody connects without a certificate that is trusted."""


@dataclass(slots=True)
class TlsReader:
    """One pass over the ``ssl.*`` keys; every doubt is a finding."""

    properties: Mapping[str, str]
    prefix: str = LISTENERS_PREFIX
    findings: list[Finding] = field(default_factory=list)

    def read(self) -> TlsContexts | None:
        """The contexts, or None and findings."""
        client_auth = self._choice("ssl.client.auth", tuple(_CLIENT_AUTH), "none")
        trusted, trusted_pem = self._pem_file("ssl.truststore"), self._get("ssl.truststore.certificates")
        if client_auth != "none" and trusted is None and not trusted_pem:
            self._note("ssl.truststore.location", "a PEM file with the certificates that clients are trusted by")
        has_identity = bool(self._get("ssl.keystore.location")) or bool(self._get("ssl.keystore.certificate.chain"))
        if not has_identity:
            self._note("ssl.keystore.location", "a PEM file with the key and certificate of an https listener")
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        client = ssl.create_default_context()
        client.check_hostname = self._get("ssl.endpoint.identification.algorithm", "https") != ""
        for context in (server, client):
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._try("ssl.truststore", _trust(context, trusted, trusted_pem))
            if has_identity:
                self._try("ssl.keystore", self._identify(context))
        server.verify_mode = _CLIENT_AUTH[client_auth]
        return None if self.findings else TlsContexts(server, client, client_auth == "required")

    def _identify(self, context: ssl.SSLContext) -> Callable[[], None]:
        location = self._pem_file("ssl.keystore")
        chain, key = self._get("ssl.keystore.certificate.chain"), self._get("ssl.keystore.key")
        # Never empty: without a password the library would ask for one on the terminal.
        password = self._get("ssl.key.password") or self._get("ssl.keystore.password") or "-"

        def load() -> None:
            if location is not None:
                context.load_cert_chain(location, password=password)
            elif chain:
                # The ssl module takes a certificate from a file only.
                with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                    file.write(f"{key}\n{chain}\n")
                    file.flush()
                    context.load_cert_chain(file.name, password=password)

        return load

    def _pem_file(self, store: str) -> Path | None:
        location = self._get(f"{store}.location")
        if not location:
            return None
        kind = self._get(f"{store}.type", "JKS" if location.endswith((".jks", ".p12", ".pfx")) else "PEM")
        if kind.upper() != "PEM":
            self._note(f"{store}.type", "PEM: convert the Java keystore with keytool and openssl")
            return None
        return Path(location)

    def _try(self, key: str, load: Callable[[], None]) -> None:
        try:
            load()
        except (OSError, ssl.SSLError) as error:
            reason = error.strerror or type(error).__name__
            self._note(f"{key}.location", f"PEM that can be read ({reason})")

    def _choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        text = self._get(key, default).lower()
        if text not in choices:
            self._note(key, f"one of {', '.join(choices)}")
            return default
        return text

    def _get(self, key: str, default: str = "") -> str:
        has_own = any(name.startswith(f"{self.prefix}ssl.") for name in self.properties)
        return self.properties.get(f"{self.prefix}{key}" if has_own else key, default).strip()

    def _note(self, key: str, expected: str) -> None:
        value = "[hidden]" if key in _SECRET else self._get(key) or None
        finding = Finding(key, value, f"Invalid value {value} for configuration {key}: Expected {expected}")
        if finding not in self.findings:
            self.findings.append(finding)


def _trust(context: ssl.SSLContext, file: Path | None, text: str) -> Callable[[], None]:
    def load() -> None:
        if file is not None or text:
            context.load_verify_locations(cafile=file, cadata=text or None)

    return load
