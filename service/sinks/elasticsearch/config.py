"""Keys of ``ElasticsearchSink``: those of Confluent's connector, under its names and with its defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field

from fetchers.sdk import BackOff, Boolean, Finding, Importance, Key, NameList, Secret, Severity, TlsSettings
from fetchers.sdk.config import AnyCase
from service.sinks.contract import PutLimits, SinkConfig, unknown_names

_DAY_MS = 86_400_000
_CONNECTOR, _CONVERSION = Key(group="Connector"), Key(group="Data Conversion", importance=Importance.LOW)
_STREAM, _SECURITY = Key(group="Data Stream", importance=Importance.LOW), Key(group="Security")
_TLS_FILE = Key(group="Security", is_path=True)
_LOW = Key(group="Connector", importance=Importance.LOW)
_UNSUPPORTED = ("proxy.host", "kerberos.user.principal", "kerberos.keytab.path")
NAME_BYTES_MAX = 255
PART_CHARACTERS_MAX = 100
"""Of the dataset and of the namespace in a data stream's name."""
_SIGNS = frozenset('\\/*?"<>| ,#:')
PUTS_MAX = 12
"""Bulks of one task at once, whatever ``max.in.flight.requests`` says: the http client has 16 places for a task."""

Resource = Literal["DISABLED", "INDEX", "DATASTREAM", "ALIAS_INDEX", "ALIAS_DATASTREAM"]


class ElasticsearchSinkConfig(SinkConfig):
    """Writes records as documents of Elasticsearch or OpenSearch."""

    foreign_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {"topic.index.map": ()}

    connection_url: Annotated[
        NameList,
        Field(min_length=1),
        Key(group="Connector", importance=Importance.HIGH, example="http://localhost:9200"),
    ]
    """Addresses of the server, such as ``http://localhost:9200``; the next one is asked where one does not answer."""
    connection_username: Annotated[str | None, _CONNECTOR] = None
    """User, for HTTP Basic; together with ``connection.password``."""
    connection_password: Annotated[Secret | None, _CONNECTOR] = None
    """The user's password."""
    batch_size: Annotated[int, Field(ge=1, le=1_000_000), _CONNECTOR] = 2000
    """Records in a bulk, at most."""
    bulk_size_bytes: Annotated[int, Field(ge=-1), _LOW] = 5_242_880
    """Bytes of a bulk's body, at most; a single larger document is sent alone. -1: no limit."""
    max_in_flight_requests: Annotated[int, Field(ge=1, le=1000), _CONNECTOR] = 5
    """Bulks that may be under way at once, of one task; more than 12 are 12, and with ``write.method=UPSERT`` it is 1,
    because partial updates have no version and so need their order."""
    max_buffered_records: Annotated[int, Field(ge=1), _LOW] = 20_000
    """Accepted; what a task holds is bounded by ``max.poll.records`` and the bulks under way."""
    linger_ms: Annotated[int, Field(ge=0, le=7 * _DAY_MS), _LOW] = 1
    """Accepted; a bulk is made of what one poll has brought, at once."""
    flush_timeout_ms: Annotated[int, Field(ge=1000, le=7 * _DAY_MS), _LOW] = 180_000
    """Milliseconds that one put may take before it is tried again with half of its records."""
    flush_synchronously: Annotated[Boolean, _LOW] = False
    """Accepted; transformations may change the topic in any case."""
    max_retries: Annotated[int, Field(ge=0), _LOW] = 5
    """How often in a row a bulk, or what is left of it, is sent again; then the task fails. A server that is restarted
    takes longer than the default's few seconds: give 20 to wait for about a day."""
    retry_backoff_ms: Annotated[int, Field(ge=0, le=_DAY_MS), _LOW] = 100
    """Milliseconds before the first retry, at most; doubled with each, a random share of it is waited (full jitter)."""
    connection_timeout_ms: Annotated[int, Field(ge=1), _LOW] = 1000
    """Milliseconds until a connection stands."""
    read_timeout_ms: Annotated[int, Field(ge=1), _LOW] = 3000
    """Milliseconds until the server answers, and between two pieces of its answer."""
    max_connection_idle_time_ms: Annotated[int, Field(ge=-1), _LOW] = 60_000
    """Accepted; the worker's http client closes idle connections after 30 seconds."""
    connection_compression: Annotated[Boolean, _LOW] = False
    """Whether bodies are sent as gzip."""

    key_ignore: Annotated[Boolean, Key(group="Data Conversion", importance=Importance.HIGH)] = False
    """Whether ids are ``topic+partition+offset`` in place of the record's key; in a data stream they always are."""
    topic_key_ignore: Annotated[NameList, _CONVERSION] = ()
    """Topics for which ``key.ignore`` is true."""
    schema_ignore: Annotated[Boolean, _CONVERSION] = False
    """Whether the mapping is left to the server, and not made from the records' schema."""
    topic_schema_ignore: Annotated[NameList, _CONVERSION] = ()
    """Topics for which ``schema.ignore`` is true."""
    compact_map_entries: Annotated[Boolean, _CONVERSION] = True
    """Whether maps with texts for keys are objects, and not lists of ``key`` and ``value``."""
    drop_invalid_message: Annotated[Boolean, _CONVERSION] = False
    """Whether records that make no document (no id, say) are passed over; else ``errors.tolerance`` decides."""
    behavior_on_null_values: Annotated[Literal["IGNORE", "DELETE", "FAIL"], AnyCase, _CONVERSION] = "FAIL"
    """What a null value does: nothing, delete the document of its key, or be refused as ``errors.tolerance`` says."""
    behavior_on_malformed_documents: Annotated[Literal["IGNORE", "WARN", "FAIL"], AnyCase, _CONVERSION] = "FAIL"
    """After the server has refused a document, and it went where ``errors.tolerance`` sends it: go on, or fail."""
    write_method: Annotated[Literal["INSERT", "UPSERT"], AnyCase, _CONVERSION] = "INSERT"
    """INSERT replaces documents, UPSERT changes the fields that a record has."""
    external_version_header: Annotated[str, _CONVERSION] = ""
    """Header whose number, as ``header.converter`` reads it, is the document's version; where this is empty,
    ``external.version`` says it. One of more than 1,024 bytes is no version."""
    external_version: Annotated[Literal["offset", "timestamp"], _CONVERSION] = "offset"
    """What the version of a document is whose id is the record's key. ``offset``: that of the record, so the last
    record of a partition wins. ``timestamp``: the record's time and then its offset, so that the newest record of a key
    wins also over partitions, and over topics that go to one index. A key of headrace."""
    use_autogenerated_ids: Annotated[Boolean, _CONVERSION] = False
    """Whether the server makes ids: what is sent again after a crash is then there twice."""

    external_resource_usage: Annotated[Resource, AnyCase, _STREAM] = "DISABLED"
    """Which existing resources ``topic.to.external.resource.mapping`` names; DISABLED: indices by the topics' names."""
    topic_to_external_resource_mapping: Annotated[NameList, _STREAM] = ()
    """``topic:resource``, separated by commas."""
    data_stream_type: Annotated[Literal["NONE", "LOGS", "METRICS"], AnyCase, _STREAM] = "NONE"
    """First part of the data stream's name; NONE: documents go to indices."""
    data_stream_dataset: Annotated[str, _STREAM] = ""
    """Second part of the data stream's name."""
    data_stream_namespace: Annotated[str, _STREAM] = "${topic}"
    """Third part of the data stream's name; ``${topic}`` is the topic's."""
    data_stream_timestamp_field: Annotated[NameList, _STREAM] = ()
    """Fields for ``@timestamp``, the first that is there counts; else it is the record's own time."""

    elastic_security_protocol: Annotated[Literal["PLAINTEXT", "SSL"], AnyCase, _SECURITY] = "PLAINTEXT"
    """SSL: the keys of ``elastic.https.ssl`` are used; addresses must then begin with ``https://``."""
    elastic_https_ssl_truststore_location: Annotated[str | None, _TLS_FILE] = None
    """PEM file of authorities to trust, in place of the system's."""
    elastic_https_ssl_keystore_location: Annotated[str | None, _TLS_FILE] = None
    """PEM file of our own certificate and its key."""

    proxy_host: Annotated[str, _LOW] = ""
    """Not supported: refused where it is given."""
    kerberos_user_principal: Annotated[str | None, _SECURITY] = None
    """Not supported: refused where it is given."""
    kerberos_keytab_path: Annotated[str | None, _SECURITY] = None
    """Not supported: refused where it is given."""
    type_name: Annotated[str, _LOW] = ""
    """Type of documents in servers before version 7; accepted and not used."""

    @property
    def is_data_stream(self) -> bool:
        """Whether documents are only ever created."""
        return self.data_stream_type != "NONE" or self.external_resource_usage.endswith("DATASTREAM")

    @property
    def has_resources(self) -> bool:
        """Whether documents go to resources that exist under names of their own."""
        return self.external_resource_usage != "DISABLED"

    @property
    def is_versioned_by_offset(self) -> bool:
        """Whether versions of documents are offsets, which mean nothing beside those of another partition."""
        return self.write_method == "INSERT" and not self.external_version_header and self.external_version == "offset"

    @property
    def limits(self) -> PutLimits:
        """Bounds of puts."""
        is_ordered = self.write_method == "UPSERT"
        return PutLimits(
            records_max=self.batch_size,
            bytes_max=self.bulk_size_bytes if self.bulk_size_bytes > 0 else PutLimits().bytes_max,
            seconds_max=self.flush_timeout_ms / 1000,
            puts_max=1 if is_ordered else min(self.max_in_flight_requests, PUTS_MAX),
            retries_max=self.max_retries,
            waits=BackOff(first_seconds=0, cap_seconds=_DAY_MS / 1000, jitter_seconds=self.retry_backoff_ms / 1000),
        )

    def tls(self) -> TlsSettings:
        """The files of TLS."""
        if self.elastic_security_protocol == "PLAINTEXT":
            return TlsSettings()
        keystore = self.elastic_https_ssl_keystore_location
        return TlsSettings(
            ca_file=self.elastic_https_ssl_truststore_location, certificate_file=keystore, key_file=keystore
        )

    def resources(self) -> dict[str, str]:
        """Resource by topic."""
        return dict(self._pairs())

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Topics and resources as they are given; a text that is no pair has an empty one."""
        for each in self.topic_to_external_resource_mapping:
            topic, _, resource = each.rpartition(":")
            yield topic.strip(), resource.strip()

    def own_findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        yield from self._address_findings()
        for key in _UNSUPPORTED:
            if getattr(self, key.replace(".", "_")):
                yield Finding(key, None, f"{key} is not supported")
        if (self.connection_username is None) is not (self.connection_password is None):
            missing = "connection.username" if self.connection_username is None else "connection.password"
            yield Finding(missing, None, "Both connection.username and connection.password must be set, or neither")
        yield from self._resource_findings()
        yield from self._stream_findings()
        yield from self._id_findings()

    def _address_findings(self) -> Iterator[Finding]:
        text = ",".join(self.connection_url)
        schemes = {urlsplit(url).scheme for url in self.connection_url}
        if not schemes <= {"http", "https"} or not all(urlsplit(url).hostname for url in self.connection_url):
            yield Finding("connection.url", None, "Expected URLs that start with http:// or https://")
        elif len(schemes) > 1:
            yield Finding("connection.url", text, "All connection URLs must have the same scheme")
        elif self.elastic_security_protocol == "SSL" and schemes != {"https"}:
            yield Finding("connection.url", text, "elastic.security.protocol=SSL needs https:// URLs")

    def _resource_findings(self) -> Iterator[Finding]:
        key, pairs = "topic.to.external.resource.mapping", list(self._pairs())
        given = ",".join(self.topic_to_external_resource_mapping)
        if self.has_resources is not bool(pairs):
            yield Finding(key, given or None, f"{key} and external.resource.usage need each other")
        if any(not topic or not resource for topic, resource in pairs):
            yield Finding(key, given, "Expected topic:resource")
            return
        topics = [topic for topic, _ in pairs]
        if len(set(topics)) < len(topics):
            yield Finding(key, given, "A topic goes to one resource, and one is named twice")
        for _, resource in pairs:
            fault = fault_of(resource, is_alias=self.external_resource_usage.startswith("ALIAS"))
            if fault is not None:
                yield Finding(key, given, f"Servers have no such resource: the name '{resource}' {fault}")

    def _part_findings(self) -> Iterator[Finding]:
        for part, text in (("dataset", self.data_stream_dataset), ("namespace", self.data_stream_namespace)):
            fault = _signs_of(text, more="-")
            if len(text) > PART_CHARACTERS_MAX:
                fault = f"has {len(text)} characters, and {PART_CHARACTERS_MAX} are the most"
            if fault is not None:
                yield Finding(f"data.stream.{part}", text, f"A part of a data stream's name that {fault}")

    def _stream_findings(self) -> Iterator[Finding]:
        yield from self._part_findings()
        found = unknown_names(self.data_stream_namespace)
        if found:
            yield Finding("data.stream.namespace", self.data_stream_namespace, found)
        if self.data_stream_timestamp_field and not self.is_data_stream:
            text = ",".join(self.data_stream_timestamp_field)
            yield Finding("data.stream.timestamp.field", text, "Only documents of data streams have @timestamp")
        if self.data_stream_type != "NONE" and self.has_resources:
            yield Finding("data.stream.type", self.data_stream_type, "Cannot be used with external.resource.usage")
        if (self.data_stream_type != "NONE") is not bool(self.data_stream_dataset):
            message = "data.stream.type and data.stream.dataset need each other"
            yield Finding("data.stream.dataset", self.data_stream_dataset or None, message)
        if self.is_data_stream and (self.write_method, self.behavior_on_null_values) != ("INSERT", "IGNORE"):
            if self.write_method == "UPSERT":
                yield Finding("write.method", "UPSERT", "Data streams only take new documents: use INSERT")
            if self.behavior_on_null_values == "DELETE":
                yield Finding("behavior.on.null.values", "DELETE", "Data streams delete no documents")

    def _id_findings(self) -> Iterator[Finding]:
        resources = self.resources()
        shared = [topic for topic, resource in resources.items() if list(resources.values()).count(resource) > 1]
        keyed = [topic for topic in shared if topic not in self.topic_key_ignore]
        if len(keyed) > 1 and not self.key_ignore and not self.is_data_stream and self.is_versioned_by_offset:
            message = (
                f"{', '.join(keyed)} go to one resource, and offsets of different topics do not say which record is "
                "newer: where they have keys in common set external.version=timestamp, or external.version.header"
            )
            yield Finding("topic.to.external.resource.mapping", ",".join(keyed), message, Severity.WARNING)
        if self.use_autogenerated_ids:
            message = "Needs the document's id, and use.autogenerated.ids=true gives none"
            if self.write_method == "UPSERT":
                yield Finding("write.method", "UPSERT", message)
            if self.behavior_on_null_values == "DELETE":
                yield Finding("behavior.on.null.values", "DELETE", message)
            message = "Ids of the server's making: records that are sent again after a crash are there twice."
            yield Finding("use.autogenerated.ids", "true", message, Severity.WARNING)


def fault_of(name: str, *, is_alias: bool = False) -> str | None:
    """Why servers take no such name of an index, a data stream or an alias, in words that go on after it; else None.

    https://www.elastic.co/guide/en/elasticsearch/reference/8.19/indices-create-index.html; OpenSearch has the same.
    No server is asked: it says of some such names that they are there, of ``_all`` and of patterns, and then refuses
    each document by itself. ``is_alias``: which may be in upper case.
    """
    if not name:
        return "is empty"
    if name in {".", ".."}:
        return f"is '{name}'"
    if name[0] in "-_+":
        return f"begins with {name[0]}"
    if (found := _signs_of(name)) is not None:
        return found
    if not is_alias and name != name.lower():
        return "is not in lower case"
    size_bytes = len(name.encode())
    return f"has {size_bytes} bytes, and {NAME_BYTES_MAX} are the most" if size_bytes > NAME_BYTES_MAX else None


def _signs_of(text: str, *, more: str = "") -> str | None:
    """What is wrong with the signs of a name or of a part of one; ``more``: others that it may not have."""
    found = (_SIGNS | set(more)) & set(text)
    return f"has one of {''.join(sorted(_SIGNS | set(more)))!r}" if found else None
