"""How a client proves who it is and checks who answers: Java's security keys, without keystores of Java's own.

Supported: `PLAINTEXT SSL SASL_PLAINTEXT SASL_SSL`; SASL `PLAIN SCRAM-SHA-256 SCRAM-SHA-512` with user
and password from `sasl.jaas.config`; PEM files or PEM text. JKS and PKCS#12 files are findings.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_JAAS_OPTION = re.compile(
    r"""(?<!\w)(\w++)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)(?:"|\Z)|'((?:[^'\\]|\\.)*+)(?:'|\Z)|([^\s;"']+))"""
)
"""Without two ways to read a character: over some texts these would take the square of their length."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, kw_only=True)
class KafkaSecurity:
    """Everything about identity and encryption. PEM fields hold file paths; `…_pem` fields hold text."""

    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    truststore: Path | None = None
    truststore_pem: str | None = field(default=None, repr=False)
    keystore: Path | None = None
    keystore_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    is_hostname_checked: bool = True

    def arguments(self) -> dict[str, Any]:
        """Arguments for the client library.

        Raises OSError or ssl.SSLError when a PEM file cannot be read.
        """
        arguments: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol.startswith("SASL"):
            arguments |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        if self.protocol.endswith("SSL"):
            arguments["ssl_context"] = self._ssl_context()
        return arguments

    def trouble(self) -> Iterator[tuple[str, str]]:
        """Which stores (`ssl.truststore`, `ssl.keystore`) of an encrypted connection cannot be used, and why."""
        if not self.protocol.endswith("SSL"):
            return
        for store, load in (("ssl.truststore", self._load_trusted), ("ssl.keystore", self._load_own)):
            try:
                load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
            except (OSError, ValueError, TypeError) as error:
                yield store, str(error)

    def _ssl_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(
            cafile=None if self.truststore is None else str(self.truststore), cadata=self.truststore_pem
        )
        context.check_hostname = self.is_hostname_checked
        self._load_own(context)
        return context

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        if self.truststore is not None or self.truststore_pem is not None:
            context.load_verify_locations(self.truststore, cadata=self.truststore_pem)

    def _load_own(self, context: ssl.SSLContext) -> None:
        # Never without a password: the library would ask for one at the terminal.
        password = self.key_password or ""
        if self.keystore is not None:
            context.load_cert_chain(self.keystore, password=password)
        elif self.keystore_pem is not None:
            # The ssl module takes the client's certificate from a file only.
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                file.write(self.keystore_pem)
                file.flush()
                context.load_cert_chain(file.name, password=password)


def parse_jaas(text: str) -> dict[str, str]:
    """Options of a JAAS entry such as `…PlainLoginModule required username="u" password="p";`."""
    options = {}
    for match in _JAAS_OPTION.finditer(text):
        quoted = match[2] if match[2] is not None else match[3]
        options[match[1]] = match[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    return options
