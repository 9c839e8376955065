"""What a catalogue and its tables may make PyIceberg touch: no code, and only places that the worker allows.

Where files are is said by many: the config, the catalogue's server, properties of a table, names of dynamic tables, and
files that lead to other files. So each file is looked at when it is opened, and each set of properties before anything
is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO
from sqlalchemy.engine import URL

from fetchers.sdk.reach import ADDRESSES_KEY, AllowedAddresses, AllowedPaths
from service.sinks.bound_clients import check_host
from service.sinks.contract import Fatal
from service.sinks.filesystem.object_store import INSTANCE_ADDRESS
from service.sinks.iceberg.config import CODE_KEYS

_NESTED_KEYS = ("auth", "ssl")
"""Properties that no config can have, but the server of a REST catalogue can tell: a class, files of this machine."""
_ADDRESS_KEYS = ("s3.endpoint", "s3.proxy-uri", "glue.endpoint", "gcs.service.host")
_AUTHORITY_KEYS = ("adls.blob-storage-authority", "adls.dfs-storage-authority")
_S3, _GCS = frozenset({"s3", "s3a", "s3n", "oss"}), frozenset({"gs", "gcs"})
_AZURE, _HDFS = frozenset({"abfs", "abfss", "wasb", "wasbs"}), frozenset({"hdfs", "viewfs"})
_OWN_KEYS = {
    _S3: ("s3.access-key-id", "client.access-key-id"),
    _GCS: ("gcs.oauth2.token",),
    _AZURE: ("adls.account-key", "adls.sas-token", "adls.client-secret"),
}
"""With one of these a storage is asked with the config's identity, or with one that the catalogue lends; else with the
worker's own, if it has one."""
_GLUE_KEYS = ("glue.access-key-id", "client.access-key-id")
_LIBPQ_PLACES = ("service", "servicefile")
"""Parameters of a database's address whose files lead to another server."""
_REACH = "headrace.reach"


@dataclass(frozen=True, slots=True)
class StorageReach:
    """Bounds of one task. Raises Fatal for what is not allowed."""

    paths: AllowedPaths
    addresses: AllowedAddresses

    def check_properties(self, properties: Mapping[str, Any]) -> None:
        """Of a catalogue, a table, or both, before a client is made of them."""
        for key in CODE_KEYS:
            if properties.get(key):
                raise Fatal(f"property {key} is set, which names code to be loaded: remove it, it is not supported")
        for key in _NESTED_KEYS:
            if properties.get(key):
                raise Fatal(f"property {key} is set, which names code or files: remove it, it is not supported")
        for key in _ADDRESS_KEYS:
            if properties.get(key):
                self._check_address(str(properties[key]), key)
        for key in _AUTHORITY_KEYS:
            if properties.get(key):
                authority = str(properties[key])
                account = properties.get("adls.account-name", "") if authority.startswith(".") else ""
                self._check_address(f"{account}{authority}", key)

    def check_catalog(self, kind: str, properties: Mapping[str, Any]) -> None:
        """Before a catalogue is opened: also with whose identity it would be asked."""
        self.check_properties(properties)
        if kind == "rest":
            self._check_address(str(properties.get("uri", "")), "uri")
        signs = kind == "glue" or str(properties.get("rest.sigv4-enabled", "")).lower() == "true"
        if signs and not any(properties.get(key) for key in _GLUE_KEYS):
            self._demand_own_identity("iceberg.catalog.client.access-key-id and .client.secret-access-key")
        if kind != "rest" and properties.get("warehouse"):  # of a REST catalogue it may be a name
            self.check_location(str(properties["warehouse"]), properties)

    def check_database(self, url: URL) -> None:
        """Before a database is opened: its file, or every host that its address names, for libpq too."""
        if url.drivername == "sqlite":
            path = url.database or ""
            refusal = self.paths.refusal(path)
            if self.paths.roots is not None and path.startswith("file:"):
                refusal = "iceberg.catalog.uri is a URI within a URI, which is not allowed: give the file's path"
            if refusal is not None:
                raise Fatal(refusal)
            return
        if self.addresses.is_internal_free:
            return
        strange = [key for key in _LIBPQ_PLACES if key in url.query]
        if strange:
            raise Fatal(
                f"iceberg.catalog.uri has the parameter {strange[0]}, which is not allowed: name the host itself"
            )
        told = [url.host or "", *(one for key in ("host", "hostaddr") for one in _texts(url.query.get(key, ())))]
        hosts = [host for one in told for host in one.split(",") if host]
        if not hosts:
            raise Fatal("iceberg.catalog.uri names no host")
        for host in hosts:
            if host.startswith(("/", "@")):
                raise Fatal("iceberg.catalog.uri leads to a socket of this machine, which is not allowed: name a host")
            check_host(host.rpartition(":")[0] if host.count(":") == 1 else host, None, self.addresses)

    def dialled(self, url: URL) -> URL:
        """The address of a database that was looked at, with all numbers to be dialled in turn; names are for TLS."""
        if url.drivername == "sqlite" or self.addresses.is_internal_free or "hostaddr" in url.query:
            return url
        told = url.get_dialect()().create_connect_args(url)[1]
        ports = str(told.get("port") or "").split(",")
        places = [
            (host, number, port)
            for host, port in zip_longest(str(told["host"]).split(","), ports, fillvalue=ports[0])
            for number in self.addresses.looked_up(host, int(port or 5432))
        ]
        parts = [",".join(part) for part in zip(*places, strict=True)]
        return url.update_query_dict(dict(zip(("host", "hostaddr", "port"), parts, strict=True)))

    def check_location(self, location: str, properties: Mapping[str, Any]) -> None:
        """Before a file is opened there; as PyIceberg reads the text."""
        scheme, host, path = PyArrowFileIO.parse_location(location, dict(properties))
        if scheme == "file":
            refusal = self.paths.refusal(Path(path))
            if refusal is not None:
                raise Fatal(refusal)
        if scheme in _HDFS and not self.addresses.is_internal_free:
            self._check_address(host or str(properties.get("hdfs.host", "")), "warehouse")
        keys = next((keys for schemes, keys in _OWN_KEYS.items() if scheme in schemes), None)
        if keys is not None and not any(properties.get(key) for key in keys):
            self._demand_own_identity(" or ".join(f"iceberg.catalog.{key}" for key in keys))

    def _check_address(self, text: str, key: str) -> None:
        if self.addresses.is_internal_free:
            return
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port = "", None
        if not host:
            raise Fatal(f"property {key} is no address: correct it")
        check_host(host, port, self.addresses)

    def _demand_own_identity(self, keys: str) -> None:
        if not self.addresses.permits(INSTANCE_ADDRESS):
            raise Fatal(
                f"connectors may not use the worker's own identity: give {keys}, or list {INSTANCE_ADDRESS} in "
                f"{ADDRESSES_KEY} of the worker"
            )

    def guard(self, catalog: Catalog) -> None:
        """Let all files of a catalogue and its tables be opened within these bounds."""

        def load(properties: Mapping[str, Any] | None = None, location: str | None = None) -> CheckedFileIO:
            del location
            return CheckedFileIO({**catalog.properties, **(properties or {}), _REACH: self})

        # PyIceberg's catalogues ask this method for what opens files, or go by their properties.
        catalog._load_file_io = load  # type: ignore[method-assign] # noqa: SLF001
        catalog.properties["py-io-impl"] = _OWN_IO
        catalog.properties[_REACH] = self


_OWN_IO = f"{__name__}.CheckedFileIO"


class CheckedFileIO(PyArrowFileIO):
    """PyIceberg's files, each looked at before it is opened."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """``properties``: with the bounds among them, as ``StorageReach.guard`` gives them."""
        told = dict(properties)
        self._reach: StorageReach = told.pop(_REACH)
        if told.get("py-io-impl") == _OWN_IO:
            del told["py-io-impl"]
        self._reach.check_properties(told)
        super().__init__(told)

    def new_input(self, location: str) -> PyArrowFile:
        """To be read."""
        self._reach.check_location(location, self.properties)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        """To be written."""
        self._reach.check_location(location, self.properties)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """To be removed."""
        self._reach.check_location(location if isinstance(location, str) else location.location, self.properties)
        super().delete(location)


def _texts(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
