"""``S3Sink``: topics as objects of a bucket, each record in exactly one of them.

What it does with records and files is ``FileSystemSink``'s, and so is the log that says what is committed; here are
the keys and names of objects of Confluent's connector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field

from fetchers.sdk import Boolean, Finding, Importance, Key
from service.sinks.filesystem.config import EXTENSIONS, FilesConfig
from service.sinks.filesystem.sink import FilesSink

_S3, _LOW = Key(group="S3"), Key(group="S3", importance=Importance.LOW)
_HIGH = Key(group="S3", importance=Importance.HIGH)


class S3SinkConfig(FilesConfig):
    """Writes records to objects of a bucket, each of them in exactly one object."""

    is_end_in_name: ClassVar[bool] = False
    foreign_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        **FilesConfig.foreign_keys,
        "partition.field.format.path": ("true",),
        "report.null.values.to.dlq": ("false",),
        "s3.credentials.provider.class": (
            "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        ),
        "s3.object.tagging": ("false",),
        "s3.schema.partition.affix.type": ("NONE",),
        "s3.sse.customer.key": (),
        "s3.sse.kms.key.id": (),
    }

    s3_bucket_name: Annotated[str, Field(min_length=1), _HIGH]
    """The bucket; it is not made by the sink."""
    store_url: Annotated[str | None, _S3] = None
    """Address of an object storage that is not Amazon's, such as ``https://minio.example.com:9000``."""
    format_class: Annotated[str, Key(group="Connector", importance=Importance.HIGH)] = (
        "io.confluent.connect.s3.format.avro.AvroFormat"
    )
    """``AvroFormat``, ``ParquetFormat``, ``JsonFormat`` (a JSON text a line), ``StringFormat`` or ``OrcFormat``, with
    or without their Java package."""
    storage_class: Annotated[str, _LOW] = "io.confluent.connect.s3.storage.S3Storage"
    """Accepted; there is one storage."""
    s3_compression_type: Annotated[Literal["none", "gzip"], _LOW] = "none"
    """Compression of JSON and text objects, whose names then end with ``.gz``."""
    s3_retry_backoff_ms: Annotated[int, Field(ge=0), _LOW] = 200
    """Accepted; waits between requests grow by themselves, and are random."""
    s3_http_send_expect_continue: Annotated[Boolean, _LOW] = True
    """Accepted; the client decides it."""
    s3_ssea_name: Annotated[str, _LOW] = ""
    """Not supported: give the bucket an encryption of its own."""
    s3_acl_canned: Annotated[str | None, _LOW] = None
    """Not supported: give the bucket a policy."""
    s3_proxy_url: Annotated[str, _LOW] = ""
    """Not supported."""
    store_kafka_keys: Annotated[Boolean, _LOW] = False
    """Not supported: refused where it is true."""
    store_kafka_headers: Annotated[Boolean, _LOW] = False
    """Not supported: refused where it is true."""

    @property
    def url(self) -> str:
        """The bucket as a URL."""
        return f"s3a://{self.s3_bucket_name}"

    @property
    def url_key(self) -> str:
        """The key that names it."""
        return "s3.bucket.name"

    @property
    def endpoint(self) -> str | None:
        """As it is given."""
        return self.store_url

    @property
    def extension(self) -> str:
        """How names of objects end."""
        return EXTENSIONS[self.format] + (".gz" if self.s3_compression_type == "gzip" else "")

    def own_findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        if "/" in self.s3_bucket_name:
            yield Finding("s3.bucket.name", self.s3_bucket_name, "Expected a name, no address")
        if self.store_url is not None:
            parts = urlsplit(self.store_url)
            if parts.scheme not in {"http", "https"} or not parts.netloc:
                yield Finding("store.url", self.store_url, "Expected an address as https://host:9000")
        if self.s3_compression_type == "gzip" and self.format not in {"json", "string"}:
            yield Finding("s3.compression.type", "gzip", "Only JSON and text are compressed by it; see parquet.codec")
        for name in ("s3_ssea_name", "s3_acl_canned", "s3_proxy_url", "store_kafka_keys", "store_kafka_headers"):
            if getattr(self, name):
                key = name.replace("_", ".")
                yield Finding(key, str(getattr(self, name)), f"{key} is not supported")
        yield from super().own_findings()


class S3Sink(FilesSink):
    """Writes objects to a bucket of Amazon S3, or of a storage that speaks its protocol."""

    config_class = S3SinkConfig
