"""Keys of ``HttpSink``: those of Confluent's connector that say what is sent, and our own of everything on HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field

from fetchers.sdk import (
    Authorizer,
    BackOff,
    Boolean,
    Clock,
    Finding,
    HttpUrl,
    Importance,
    Key,
    NameList,
    Secret,
    Severity,
)
from fetchers.sdk.config import AnyCase
from fetchers.toolkit.access import HttpAccessKeys, HttpPaceKeys, plain
from fetchers.toolkit.auth import BasicAuth, ClientCredentials, OAuth2Auth
from service.sinks.contract import PutLimits, SinkConfig

_HIGH, _LOW = Importance.HIGH, Importance.LOW
_REQUEST, _BATCHES, _RETRIES = Key(group="Request"), Key(group="Batches"), Key(group="Retries", importance=_LOW)
_AUTH = Key(group="Authentication", importance=_LOW)
_STATUSES = re.compile(r"([45]\d\d)(?:(-)([45]\d\d)?)?", re.ASCII)
_STATUS_MAX = 599
_TEMPLATE = re.compile(r"\$\{([^}]*)\}")
_KNOWN = {"topic", "key"}


class HttpSinkConfig(HttpPaceKeys, HttpAccessKeys, SinkConfig):
    """Brings records to an address, one by one or in batches."""

    foreign_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {"regex.patterns": (), "regex.replacements": ()}

    http_api_url: Annotated[HttpUrl, Key(_HIGH, group="Request", example="https://hooks.example.com/orders")]
    """Where records go; ``${topic}`` and ``${key}`` stand for the record's own, encoded as a part of a URL."""
    request_method: Annotated[Literal["POST", "PUT", "PATCH", "DELETE"], AnyCase, _REQUEST] = "POST"
    """Method of requests. A DELETE has no body."""
    header_list: Annotated[Secret | None, Field(alias="headers"), _REQUEST] = None
    """Header fields, ``Name:Value`` with ``header.separator`` between; ``http.header.<name>`` does the same."""
    header_separator: Annotated[str, Field(min_length=1), _REQUEST] = "|"
    """What divides the fields of ``headers``."""
    request_body_format: Annotated[Literal["json", "string"], AnyCase, _REQUEST] = "json"
    """``json``: values as JSON, texts as they are; ``string``: the text form that ``FileStreamSink`` writes."""
    behavior_on_null_values: Annotated[Literal["ignore", "log", "fail", "delete"], AnyCase, _REQUEST] = "ignore"
    """What a null value does: nothing (``log`` as well), be refused as ``errors.tolerance`` says, or ask by DELETE
    (with ``${key}``)."""
    idempotency_header: Annotated[str, _REQUEST] = ""
    """Header field, such as ``Idempotency-Key``, that names each request by topic, partition and offsets of its
    records: a server that knows it takes a request that comes twice once. For single records it is always the same."""

    batch_max_size: Annotated[int, Field(ge=1, le=100_000), _BATCHES] = 1
    """Records of one request, at most. Those of one request are of one partition and one URL."""
    batch_prefix: Annotated[str, _BATCHES] = ""
    r"""What stands before the records of a batch; here and in the next two keys ``\n`` is a line end, ``\t`` a tab."""
    batch_suffix: Annotated[str, _BATCHES] = ""
    """What stands behind them."""
    batch_separator: Annotated[str, _BATCHES] = ","
    """What stands between them."""
    batch_json_as_array: Annotated[Boolean, _BATCHES] = False
    """Whether a batch is a JSON array, in place of prefix, suffix and separator."""
    batch_key_pattern: Annotated[str, _BATCHES] = "${key}"
    """Accepted; the records of a request are always of one partition and one URL, in their order."""
    batch_refused: Annotated[Literal["halve", "refuse"], _BATCHES] = "halve"
    """What is done where the server takes a batch not (400, 413, 422): send each half of it, until the bad record is
    found, or refuse all of its records, for servers that may have taken some of a batch before they said no."""

    auth_type: Annotated[Literal["NONE", "BASIC", "OAUTH2"], AnyCase, _AUTH] = "NONE"
    """Confluent's word for ``http.auth.type``, which has more."""
    connection_user: Annotated[str | None, _AUTH] = None
    """User for BASIC."""
    connection_password: Annotated[Secret | None, _AUTH] = None
    """Password for BASIC."""
    oauth2_token_url: Annotated[HttpUrl | None, _AUTH] = None
    """Token server for OAUTH2."""
    oauth2_client_id: Annotated[str | None, _AUTH] = None
    """Client's id for OAUTH2."""
    oauth2_client_secret: Annotated[Secret | None, _AUTH] = None
    """Client's secret for OAUTH2."""
    oauth2_client_scope: Annotated[str, _AUTH] = "any"
    """Scope to ask for with OAUTH2."""

    max_retries: Annotated[int, Field(ge=0), _RETRIES] = 10
    """How often in a row a put is tried again; then the task fails. A server that takes some of it begins the count
    anew."""
    retry_backoff_ms: Annotated[int, Field(ge=0), _RETRIES] = 3000
    """Milliseconds before the first retry, doubled with each, 60,000 at most; longer where ``Retry-After`` says so."""
    retry_on_status_codes: Annotated[NameList, _RETRIES] = ()
    """Further statuses to try again, such as ``409``, ``420-450`` or ``400-`` for all from there on. (By default 408,
    425, 429 and 5xx; Confluent's default ``400-`` would also try what no retry mends.)"""
    behavior_on_error: Annotated[Literal["fail", "ignore", "log"], AnyCase, _RETRIES] = "fail"
    """Accepted; what becomes of a record that the server refuses says ``errors.tolerance``."""
    report_errors_as: Annotated[str, _RETRIES] = "error_string"
    """Accepted; dead letters name the status, and never what the server says, which may repeat the record."""
    reporter_error_topic_name: Annotated[str, _RETRIES] = ""
    """Accepted; records that the server refuses go to ``errors.deadletterqueue.topic.name``."""
    reporter_result_topic_name: Annotated[str, _RETRIES] = ""
    """Accepted; answers of the server are not kept. Records it refuses are dead letters."""

    @property
    def has_key(self) -> bool:
        """Whether each record has a URL of its own."""
        return "${key}" in self.http_api_url

    @property
    def retried_statuses(self) -> set[int]:
        """What ``retry.on.status.codes`` names."""
        found: set[int] = set()
        for text in self.retry_on_status_codes:
            if match := _STATUSES.fullmatch(text.replace(" ", "")):
                first, dash, last = match.groups()
                found |= set(range(int(first), int(last or (_STATUS_MAX if dash else first)) + 1))
        return found

    @property
    def put_bounds(self) -> PutLimits:
        """Bounds of puts."""
        waits = BackOff(first_seconds=self.retry_backoff_ms / 1000, jitter_seconds=0)
        return PutLimits(records_max=max(500, self.batch_max_size), retries_max=self.max_retries, waits=waits)

    def sent_headers(self) -> dict[str, str]:
        """Header fields of every request."""
        own = (each.partition(":") for each in plain(self.header_list).split(self.header_separator) if each.strip())
        kind = "application/json" if self.request_body_format == "json" else "text/plain; charset=utf-8"
        given = {name.strip(): value.strip() for name, _, value in own}
        given |= {name: value.get_secret_value() for name, value in self.http_header.items()}
        is_typed = any(name.lower() == "content-type" for name in given) or self.request_method == "DELETE"
        return given if is_typed else {"Content-Type": kind, **given}

    def login(self, *, clock: Clock) -> Authorizer | None:
        """Who brings the records, by Confluent's keys or by ours."""
        if self.auth_type == "BASIC":
            return BasicAuth(self.connection_user or "", plain(self.connection_password))
        if self.auth_type == "OAUTH2":
            client = ClientCredentials(
                token_url=self.oauth2_token_url or "",
                client_id=self.oauth2_client_id or "",
                client_secret=plain(self.oauth2_client_secret),
                scope=self.oauth2_client_scope,
            )
            return OAuth2Auth(client, clock=clock, tls=self.tls())
        return self.auth(clock=clock)

    def secrets(self) -> tuple[str, ...]:
        """Texts that must show up in no message."""
        own = [plain(self.connection_password), plain(self.oauth2_client_secret)]
        own += [value for name, value in self.sent_headers().items() if name.lower() != "content-type"]
        return (*self.access_secrets(), *filter(None, own))

    def own_findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        yield from self.access_findings()
        yield from self.pace_findings()
        for name in sorted({*_TEMPLATE.findall(self.http_api_url)} - _KNOWN):
            yield Finding("http.api.url", self.http_api_url, f"Unknown ${{{name}}}: there are ${{topic}} and ${{key}}")
        if "${" in urlsplit(self.http_api_url).netloc:
            yield Finding(
                "http.api.url", self.http_api_url, "No record says which host is asked: only path and query may"
            )
        if self.behavior_on_null_values == "delete" and not self.has_key:
            yield Finding("behavior.on.null.values", "delete", "Needs ${key} in http.api.url")
        yield from self._login_findings()
        if any(":" not in each for each in plain(self.header_list).split(self.header_separator) if each.strip()):
            yield Finding("headers", None, "Expected Name:Value")
        for text in self.retry_on_status_codes:
            if not _STATUSES.fullmatch(text.replace(" ", "")):
                yield Finding("retry.on.status.codes", text, "Expected statuses such as 409, 420-450 or 400-")
        yield from self._report_findings()
        if self.idempotency_header and self.batch_max_size > 1:
            message = "After a restart batches may be cut otherwise, and then have other names: at least once."
            yield Finding("idempotency.header", self.idempotency_header, message, Severity.WARNING)

    def _report_findings(self) -> Iterator[Finding]:
        message = (
            "Has no effect: records that the server refuses fail the task, or are dead letters. For those set "
            "errors.tolerance=all and errors.deadletterqueue.topic.name"
        )
        given = {"behavior.on.error": self.behavior_on_error.removeprefix("fail")}
        given |= {"reporter.error.topic.name": self.reporter_error_topic_name}
        given |= {"reporter.result.topic.name": self.reporter_result_topic_name}
        for key, text in given.items():
            if text:
                yield Finding(key, text, message, Severity.WARNING)

    def _login_findings(self) -> Iterator[Finding]:
        needed = {"BASIC": ("connection.user", "connection.password"), "NONE": ()}
        oauth = ("oauth2.token.url", "oauth2.client.id", "oauth2.client.secret")
        for key in needed.get(self.auth_type, oauth):
            if getattr(self, key.replace(".", "_")) is None:
                yield Finding(key, None, f"Missing: auth.type={self.auth_type} needs it.")
        if self.auth_type != "NONE" and self.http_auth_type != "none":
            yield Finding("auth.type", self.auth_type, "Give auth.type or http.auth.type")
