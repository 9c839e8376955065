"""The catalogue of a config, within what the worker allows its connectors to reach, and what its errors mean.

PyIceberg asks without a time limit, so the REST catalogue here has one.
"""

from __future__ import annotations

import errno
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import pydantic
import requests
from botocore.exceptions import BotoCoreError
from pyiceberg.catalog import Catalog, MetastoreCatalog, load_catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    NotInstalledError,
    OAuthError,
    RESTError,
    SignError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from requests.adapters import HTTPAdapter
from requests.utils import select_proxy
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from fetchers.sdk.reach import AddressRefusedError, AllowedAddresses, AllowedPaths
from fetchers.toolkit.databases import postgresql_error
from service.sinks.bound_clients import bind, bind_boto, check_host
from service.sinks.contract import Fatal, StartAnew
from service.sinks.iceberg.config import IcebergSinkConfig, TableKeys
from service.sinks.iceberg.reach import StorageReach
from service.sinks.jdbc.sqlite import SQLITE_MENDS

ANSWER_SECONDS_MAX = 60.0
_FATAL: dict[type[Exception], str] = {
    UnauthorizedError: "the catalogue does not know this login: correct iceberg.catalog.credential or .token",
    OAuthError: "the catalogue does not know this login: correct iceberg.catalog.credential or .token",
    ForbiddenError: "permission is denied: let the catalogue's user load, make and change the tables",
    BadRequestError: "the catalogue refuses the request",
    ValidationError: "the catalogue refuses the change",
    NotInstalledError: "a package that this catalogue needs is not installed",
    SignError: "requests to the storage are not signed: look at the catalogue's signer",
    NotImplementedError: "the catalogue cannot do what is asked of it: use one that makes, loads and changes tables",
    pydantic.ValidationError: "iceberg.catalog.uri is no REST catalogue, or of another version: correct it",
}
_CLIENT_ERRORS = range(400, 500)
_PASSING = frozenset({408, 409, 419, 423, 425, 429})
"""Of these, what waiting may mend; besides 419 (a token that has ended) they are those of RFC 9110 and its kin."""
_TEXT_MAX = 500
"""Characters that are told of what a catalogue answers, which may be a page of HTML."""
_MENDS = {
    errno.ENOSPC: "the disk is full: make room",
    errno.EDQUOT: "the quota is used up: make room",
    errno.EACCES: "permission is denied: let the worker's user write there",
    errno.EPERM: "it is not permitted: let the worker's user write there",
    errno.EROFS: "the file system is mounted read-only: mount it to be written",
}
_TRANSFORM = re.compile(r"(\w+)\(\s*([^,()]+?)\s*(?:,\s*(\d+)\s*)?\)")
_TRANSFORMS: dict[str, Callable[[int], Transform[Any, Any]]] = {
    "year": lambda _: YearTransform(),
    "month": lambda _: MonthTransform(),
    "day": lambda _: DayTransform(),
    "hour": lambda _: HourTransform(),
    "bucket": BucketTransform,
    "truncate": TruncateTransform,
    "identity": lambda _: IdentityTransform(),
}


@contextmanager
def told(config: IcebergSinkConfig) -> Iterator[None]:
    """What went wrong outside, by what is done about it: a person's work is Fatal, all else begins the task anew.

    Catalogues repeat what they were sent: whatever of it is a secret of the config is hidden.
    """
    try:
        with _classified(config):
            yield
    except (Fatal, StartAnew) as error:
        raise type(error)(config.hidden(str(error))) from error.__cause__


@contextmanager
def _classified(config: IcebergSinkConfig) -> Iterator[None]:
    try:
        yield
    except tuple(_FATAL) as error:
        raise Fatal(f"{_FATAL[_kind(error)]} ({_text(config, error)})") from error
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise StartAnew(f"a table is not there any more: {error}") from error
    except RESTError as error:
        if _status(error) in _CLIENT_ERRORS and _status(error) not in _PASSING:
            raise Fatal(
                f"iceberg.catalog.uri leads to no REST catalogue: correct it ({_text(config, error)})"
            ) from error
        raise StartAnew(f"the catalogue fails: {_text(config, error)}") from error
    except (requests.RequestException, BotoCoreError, AddressRefusedError) as error:
        raise _unreached(error) from error
    except OSError as error:
        mend = _MENDS.get(error.errno or 0)
        if mend is not None or "ACCESS_DENIED" in str(error):
            place, mend = error.filename or error, mend or "permission is denied"
            raise Fatal(f"{place}: {mend}, then restart the task") from error
        raise StartAnew(f"the storage fails: {error.strerror or error}") from error
    except SQLAlchemyError as error:
        raise _of_database(error) from error


def _unreached(error: Exception) -> Exception:
    reason = getattr(error, "kwargs", {}).get("error", error)  # Amazon's client wraps what its connections raise
    if isinstance(reason, AddressRefusedError):
        return Fatal(str(reason))
    return StartAnew(f"the catalogue does not answer: {type(error).__name__}")


def _kind(error: Exception) -> type[Exception]:
    return next(kind for kind in _FATAL if isinstance(error, kind))


def _status(error: Exception) -> int:
    """What a REST catalogue has answered with, 0 where nobody knows."""
    return getattr(getattr(error.__cause__, "response", None), "status_code", 0)


def _text(config: IcebergSinkConfig, error: Exception) -> str:
    """Cut after secrets are hidden: half of one could not be told for one."""
    return config.hidden(str(error))[:_TEXT_MAX]


def _of_database(error: SQLAlchemyError) -> Exception:
    """By what the driver says; SQLAlchemy's own text may show the address with its login."""
    origin = getattr(error, "orig", None)
    if isinstance(origin, sqlite3.Error):
        mend = SQLITE_MENDS.get(getattr(origin, "sqlite_errorcode", 0) & 0xFF)
        if mend is not None:
            return Fatal(f"the catalogue's database: {origin}; {mend}, then restart the task")
    elif origin is not None:
        failure = postgresql_error(origin, "the catalogue's database").failure
        if isinstance(failure, Fatal):
            mend = "let its user read and change the catalogue's tables, or correct iceberg.catalog.uri and the login"
            return Fatal(f"{failure}; {mend}")
    return StartAnew(f"the catalogue's database fails: {type(error).__name__}")


class _Door(HTTPAdapter):
    """Dials only what connectors may reach, and does not wait for ever."""

    def __init__(self, allowed: AllowedAddresses, signer: HTTPAdapter | None = None) -> None:
        super().__init__()
        self._allowed, self._signer = allowed, signer
        bind(self.poolmanager, allowed)

    def add_headers(self, request: Any, **kwargs: Any) -> None:
        """Called before each request."""
        if self._signer is not None:
            self._signer.add_headers(request, **kwargs)

    def send(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._allowed.is_internal_free and select_proxy(request.url, kwargs.get("proxies")):
            parts = urlsplit(request.url)  # of the worker's environment; it looks up the name by itself
            check_host(parts.hostname or "", parts.port, self._allowed)
        return super().send(request, *args, **{**kwargs, "timeout": kwargs.get("timeout") or ANSWER_SECONDS_MAX})


class _RestCatalog(RestCatalog):
    """With a time limit, and within what the worker allows."""

    reach: StorageReach

    def _create_session(self) -> requests.Session:
        # Called with the config's properties, and again with those that the server has told.
        self.reach.check_catalog("rest", self.properties)
        return super()._create_session()

    def _create_legacy_oauth2_auth_manager(self, session: requests.Session) -> Any:
        # Called for each session, before its first request.
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Door(self.reach.addresses))
        return super()._create_legacy_oauth2_auth_manager(session)

    def _init_sigv4(self, session: requests.Session) -> None:
        super()._init_sigv4(session)
        session.mount(self.uri, _Door(self.reach.addresses, cast("HTTPAdapter", session.adapters[self.uri])))


class Lake:
    """The tables of a config's catalogue. Everything blocks; raises Fatal and StartAnew."""

    def __init__(self, config: IcebergSinkConfig, paths: AllowedPaths, addresses: AllowedAddresses) -> None:
        """Ask the catalogue for its own config."""
        self._config, self._reach = config, StorageReach(paths, addresses)
        with told(config):
            self._reach.check_catalog(config.catalog_type, config.catalog)
            self._reach.check_properties(config.iceberg_tables_write_props)
            self._reach.check_properties(config.iceberg_tables_auto_create_props)
            self.catalog = self._opened()
            self._reach.check_catalog(config.catalog_type, self.catalog.properties)
            self._reach.guard(self.catalog)
            _keep_in_order(self.catalog)

    def _opened(self) -> Catalog:
        name, properties = self._config.catalog_name, self._config.catalog
        if self._config.catalog_type == "rest":
            kind = cast("type[RestCatalog]", type("Rest", (_RestCatalog,), {"reach": self._reach}))
            return kind(name, **{key: text for key, text in properties.items() if key != "type"})
        if self._config.catalog_type == "sql":
            url = make_url(properties["uri"])
            self._reach.check_database(url)
            own = {key: text for key, text in properties.items() if key != "type"}
            dialled = self._reach.dialled(url)
            if dialled is not url:
                own["uri"] = dialled.render_as_string(hide_password=False)
            try:
                return SqlCatalog(name, **own)
            except SQLAlchemyError:
                return SqlCatalog(name, **own)  # another task has made the catalogue's tables at this moment
        opened = load_catalog(name, **properties)
        if isinstance(opened, GlueCatalog):
            bind_boto(opened.glue, self._reach.addresses)
        return opened

    def load(self, keys: TableKeys) -> Table | None:
        """A table as it is now; None where there is none."""
        with told(self._config):
            try:
                table = self.catalog.load_table(keys.name)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            self._reach.check_properties(table.metadata.properties)
            self._reach.check_location(table.location(), table.io.properties)
            branch = table.metadata.refs.get(keys.branch)
            if keys.branch != "main" and branch is None and table.metadata.current_snapshot_id:
                raise Fatal(f"table {keys.name} has no branch '{keys.branch}': make it first")
            if branch is not None and branch.snapshot_ref_type is not SnapshotRefType.BRANCH:
                raise Fatal(f"'{keys.branch}' of table {keys.name} is a tag: name a branch")
            return table

    def create(self, keys: TableKeys, schema: Schema) -> None:
        """Make a table, and its namespace; another task may be doing the same."""
        namespace = keys.name.rpartition(".")[0]
        properties = dict(self._config.iceberg_tables_auto_create_props)
        with told(self._config):
            try:
                self.catalog.create_namespace(namespace)
            except (NamespaceAlreadyExistsError, IntegrityError):
                pass
            except ForbiddenError:
                self.catalog.load_namespace_properties(namespace)  # who may not make one needs none that is there
            try:
                making = self.catalog.create_table_transaction(keys.name, schema, properties=properties)
                if keys.partition_by:
                    with making.update_spec() as spec:
                        for column, transform in map(_partition, keys.partition_by):
                            spec.add_field(column, transform)
                making.commit_transaction()
            except (TableAlreadyExistsError, CommitFailedException, IntegrityError):
                pass
            except ValueError as error:
                told_by = ", ".join(keys.partition_by)
                raise Fatal(f"table {keys.name} cannot be partitioned by {told_by}: {error}") from error


def latest_ms(metadata: TableMetadata) -> int:
    """The time behind which the next change of a table is to be, in milliseconds since 1970.

    A table whose own time, or whose log of snapshots or of versions, goes back by more than a minute is read by nobody
    who uses Iceberg's Java library (its ``TableMetadata`` refuses it), nor is such a commit taken by a catalogue that
    does.
    """
    snapshots_ms = [entry.timestamp_ms for entry in metadata.snapshot_log[-1:]]
    versions_ms = [entry.timestamp_ms for entry in metadata.metadata_log[-1:]]
    return max(metadata.last_updated_ms, *snapshots_ms, *versions_ms, 0)


def _keep_in_order(catalog: Catalog) -> None:
    """Let no change of a table have a time before the last one, also where the clock was set back since.

    PyIceberg writes its own clock's time into versions that it makes itself, as of a schema; a REST catalogue's server
    makes them by its own.
    """
    if not isinstance(catalog, MetastoreCatalog):
        return
    stage = catalog._update_and_stage_table  # noqa: SLF001 - it has no door for this

    def staged(current: Table | None, *rest: Any) -> Any:
        made = stage(current, *rest)
        if current is None or made.metadata == current.metadata:
            return made
        at_ms = max(made.metadata.last_updated_ms, latest_ms(current.metadata) + 1)
        made.metadata = made.metadata.model_copy(update={"last_updated_ms": at_ms})
        return made

    catalog._update_and_stage_table = staged  # type: ignore[assignment,method-assign] # noqa: SLF001 - as above


def _partition(text: str) -> tuple[str, Transform[Any, Any]]:
    """``day(placed_at)``, ``bucket(id, 16)``, ``region``: a column and its transform. Raises ValueError."""
    found = _TRANSFORM.fullmatch(text)
    if found is None:
        return text, IdentityTransform()
    name, column, count = found.groups()
    transform = _TRANSFORMS.get(name.lower().removesuffix("s"))
    if transform is None or (count is None) is (name.lower() in {"bucket", "truncate"}):
        raise ValueError(f"'{text}' is no transform of Iceberg")
    return column, transform(int(count or 0))
