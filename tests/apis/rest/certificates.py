"""Certificates for tests: one authority, and what it has signed; made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from shutil import which

import pytest


@dataclass(frozen=True)
class Authority:
    """Signs; everything lies in one folder."""

    folder: Path
    name: str = "authority"

    def __post_init__(self) -> None:
        """Make its own certificate; skips the test where the program is not there."""
        if which("openssl") is None:
            pytest.skip("makes its certificates with the openssl program")
        self._openssl("req", "-x509", *self._new_key(self.name), "-days", "2", "-out", f"{self.name}.crt")

    @property
    def certificate(self) -> Path:
        """What to trust."""
        return self.folder / f"{self.name}.crt"

    def sign(self, name: str, names: str = "DNS:localhost,IP:127.0.0.1") -> Path:
        """A PEM file with a new key and its certificate: for this machine, or what else goes by these names."""
        self._openssl("req", *self._new_key(name), "-out", f"{name}.csr")
        (self.folder / "names").write_text(f"subjectAltName={names}\n", encoding="utf-8")
        signer = ("-CA", f"{self.name}.crt", "-CAkey", f"{self.name}.key", "-CAcreateserial")
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", *signer, "-days", "2", "-extfile", "names", "-out", f"{name}.crt"
        )
        file = self.folder / f"{name}.pem"
        file.write_text("".join((self.folder / f"{name}.{part}").read_text() for part in ("key", "crt")))
        return file

    def _new_key(self, name: str) -> tuple[str, ...]:
        return (
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-keyout",
            f"{name}.key",
            "-subj",
            f"/CN={name}",
        )

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, capture_output=True, check=True, timeout=300)
