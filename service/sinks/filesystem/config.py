"""Keys of sinks that write files: those of Confluent's sinks to HDFS and S3, under its names and with its defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, available_timezones

from pydantic import BeforeValidator, Field, field_validator

from fetchers.sdk import Boolean, Finding, Importance, Key, NameList, Secret
from fetchers.sdk.config import AnyCase
from service.sinks.contract import SinkConfig, unknown_names
from service.sinks.filesystem.path_format import PathFormatError, compiled
from service.sinks.filesystem.stores import SCHEMES

_HIGH = Key(group="Storage", importance=Importance.HIGH)
_STORAGE, _WRITING = Key(group="Storage"), Key(group="Connector")
_FOLDERS, _SCHEMA = Key(group="Partitioner"), Key(group="Schema")
_LOW = Key(group="Connector", importance=Importance.LOW)
_OBJECTS = Key(group="S3")
_HIVE = Key(group="Hive", importance=Importance.LOW)
_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
_PACKAGE = "io.confluent.connect."
"""Classes of the same simple name in another package are somebody's own."""

Format = Literal["avro", "parquet", "json", "string", "orc"]
EXTENSIONS = {"avro": ".avro", "parquet": ".parquet", "json": ".json", "string": ".txt", "orc": ".orc"}
HIVE_FORMATS = ("avro", "parquet", "orc")
_NAMED_FOLDER = r"'[A-Za-z_]+(?:'=|=')[^/]+"
_NAMED_FOLDERS = re.compile(f"{_NAMED_FOLDER}(?:/{_NAMED_FOLDER})*")
_PARTITIONERS = ("Default", "Field", "TimeBased", "Daily", "Hourly")


_BELOW = BeforeValidator(lambda folder: folder.strip("/") if isinstance(folder, str) else folder)
"""Of folders below the URL: ``/logs`` is ``logs``, as it is for Confluent's sink."""


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


class FilesConfig(SinkConfig):
    """What all sinks have that write files."""

    foreign_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "directory.delim": ("/",),
        "file.delim": ("+",),
        "json.decimal.format": (),
        "allow.optional.map.keys": ("false",),
        "rotate.file.on.partition.change": ("false",),
    }
    is_end_in_name: ClassVar[bool] = True
    """Whether names of files say the offset of their last record, besides that of their first."""

    topics_dir: Annotated[str, _BELOW, _STORAGE] = "topics"
    """Folder of the files, below the URL."""
    logs_dir: Annotated[str, _BELOW, _STORAGE] = "logs"
    """Folder that says what is committed, below the URL. Removed, it is made anew by the names of the files."""
    flush_size: Annotated[
        int | None, Field(ge=1), Key(group="Connector", importance=Importance.HIGH, example="1000")
    ] = None
    """Records of one partition of a topic after which its files are closed and committed. This or ``flush.size.bytes``,
    or both."""
    flush_size_bytes: Annotated[int, Field(ge=-1), Key(group="Connector", example="134217728")] = -1
    """Bytes of one file, counted before compression: the files of a partition of a topic are closed and committed when
    one of them has so many, and before a record that would make it larger. A record of more bytes is a file by itself.
    In JSON and text lines count with their ends, in other formats values as Arrow lays them out, without what a format
    adds. The name is that of Microsoft's sink for Azure Data Explorer; Confluent's sinks to files have no such key.
    -1: never."""
    rotate_interval_ms: Annotated[int, Field(ge=-1), _WRITING] = -1
    """Milliseconds between the times of a partition's first record and of the record before which its files are closed
    and committed; which times these are says ``timestamp.extractor``. -1: never."""
    rotate_schedule_interval_ms: Annotated[int, Field(ge=-1), _WRITING] = -1
    """Milliseconds of the clock, counted from midnight in ``timezone``, after which files are closed and committed,
    also where no more records come. Bounds of files are then others when records come again; each record is
    still in one file. -1: never."""
    rotate_idle_interval_ms: Annotated[int, Field(ge=-1), _WRITING] = -1
    """Milliseconds of the clock after which the files of a partition that gets no more records are closed and
    committed. A key of headrace; bounds of files are then others when records come again. -1: never."""
    format_class: Annotated[str, Key(group="Connector", importance=Importance.HIGH)] = (
        "io.confluent.connect.hdfs.avro.AvroFormat"
    )
    """``AvroFormat``, ``ParquetFormat``, ``JsonFormat`` (a JSON text a line), ``StringFormat`` or ``OrcFormat``, with
    or without their Java package."""
    avro_codec: Annotated[Literal["null", "deflate", "snappy", "bzip2"], _LOW] = "null"
    """Compression of Avro files."""
    parquet_codec: Annotated[
        Literal["none", "uncompressed", "snappy", "gzip", "brotli", "lz4", "lz4raw", "zstd"], _LOW
    ] = "snappy"
    """Compression of Parquet files."""
    filename_offset_zero_pad_width: Annotated[int, Field(ge=0, le=20), _LOW] = 10
    """Digits that offsets have in names of files, at least."""
    max_open_files_per_partition: Annotated[int, Field(ge=-1), _LOW] = 1000
    """Files of one partition of a topic that are open at once. It bounds descriptors and memory, not folders: rows of
    further folders wait in a file of the worker's, and their files are written one by one at the commit. -1: any
    number."""
    buffer_bytes: Annotated[int, Field(ge=1_048_576), _LOW] = 67_108_864
    """Bytes of records that a partition of a topic holds in memory; above it, they are written: to the files of folders
    that have a 64th of them or more, and for all others to one file of the worker's (below ``TMPDIR``), where they wait
    for the commit. A key of headrace."""

    partitioner_class: Annotated[str, _FOLDERS] = "io.confluent.connect.storage.partitioner.DefaultPartitioner"
    """``DefaultPartitioner``, ``FieldPartitioner``, ``TimeBasedPartitioner``, ``DailyPartitioner`` or
    ``HourlyPartitioner``, with or without their Java package."""
    partition_field_name: Annotated[NameList, _FOLDERS] = ()
    """Fields of the value, for ``FieldPartitioner``; a dot leads into a struct."""
    partition_duration_ms: Annotated[int, Field(ge=-1), _FOLDERS] = -1
    """Milliseconds of a folder, for ``TimeBasedPartitioner``."""
    path_format: Annotated[str, _FOLDERS] = ""
    """Name of a folder, for ``TimeBasedPartitioner``: ``'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH`` and the like."""
    locale: Annotated[str, _FOLDERS] = ""
    """Accepted; paths of numbers are the same in every language."""
    timezone: Annotated[str, _FOLDERS] = ""
    """Such as ``Europe/Berlin`` or ``UTC``: of folders by time, and of ``rotate.schedule.interval.ms``."""
    timestamp_extractor: Annotated[str, _FOLDERS] = "Wallclock"
    """Time of a record: ``Wallclock`` (when it is written), ``Record`` (its own in Kafka) or ``RecordField``."""
    timestamp_field: Annotated[str, _FOLDERS] = "timestamp"
    """Field of ``RecordField``: a number of milliseconds, a timestamp, or a text of ISO 8601."""

    schema_compatibility: Annotated[Literal["NONE", "BACKWARD", "FORWARD", "FULL"], _SCHEMA] = "NONE"
    """NONE: a new schema begins a new file. BACKWARD, FULL: only a newer one does, older records are projected to it.
    FORWARD: only an older one does, newer records are projected to it."""
    behavior_on_null_values: Annotated[Literal["ignore", "fail"], AnyCase, _SCHEMA] = "fail"
    """What a null value does: nothing, or it is refused as ``errors.tolerance`` says."""
    schemas_cache_config: Annotated[int, Field(ge=1), _LOW] = 1000
    """Accepted; schemas are read once each."""
    enhanced_avro_schema_support: Annotated[Boolean, _LOW] = True
    """Accepted; Avro schemas are written as they are registered."""
    connect_meta_data: Annotated[Boolean, _LOW] = True
    """Accepted; Avro schemas are written as they are registered."""
    retry_backoff_ms: Annotated[int, Field(ge=0), _LOW] = 5000
    """Accepted; after an error the task begins anew, with waits of the worker."""
    shutdown_timeout_ms: Annotated[int, Field(ge=0), _LOW] = 3000
    """Accepted; a stop takes as long as the worker lets it."""

    s3_region: Annotated[str, _OBJECTS] = "us-west-2"
    """Region of the bucket, for files in object storage."""
    aws_access_key_id: Annotated[str | None, _OBJECTS] = None
    """Access key of object storage. Without it: the worker's own identity, as its environment, profile or instance
    gives it, where the worker lets connectors have it."""
    aws_secret_access_key: Annotated[Secret | None, _OBJECTS] = None
    """Secret of the access key."""
    s3_part_size: Annotated[int, Field(ge=5_242_880, le=2_147_483_647), _OBJECTS] = 26_214_400
    """Bytes of one part of an upload; objects of less are sent whole."""
    s3_part_retries: Annotated[int, Field(ge=0, le=100), _OBJECTS] = 3
    """How often one request to object storage is sent again before the task begins anew."""
    s3_path_style_access_enabled: Annotated[Boolean, _OBJECTS] = True
    """Whether the bucket stands in the path of addresses, and not in the name of the host."""

    @field_validator("format_class")
    @classmethod
    def _is_format(cls, name: str) -> str:
        return _known(name, [f"{each.capitalize()}Format" for each in EXTENSIONS])

    @field_validator("partitioner_class")
    @classmethod
    def _is_partitioner(cls, name: str) -> str:
        return _known(name, [f"{each}Partitioner" for each in _PARTITIONERS])

    @field_validator("timestamp_extractor")
    @classmethod
    def _is_extractor(cls, name: str) -> str:
        return _known(name, ["Wallclock", "Record", "RecordField"])

    @property
    def url(self) -> str:
        """Where the files are: ``file:///folder``, ``hdfs://namenode:9000/folder`` or ``s3a://bucket/folder``."""
        raise NotImplementedError

    @property
    def url_key(self) -> str:
        """The key that names it."""
        raise NotImplementedError

    @property
    def endpoint(self) -> str | None:
        """Address of the object storage; None: Amazon's, of the region."""
        return None

    @property
    def extension(self) -> str:
        """How names of files end."""
        return EXTENSIONS[self.format]

    @property
    def format(self) -> str:
        """The format, as a key of ``EXTENSIONS``."""
        return _simple(self.format_class).removesuffix("Format").lower()

    @property
    def partitioner(self) -> str:
        """``Default``, ``Field``, ``TimeBased``, ``Daily`` or ``Hourly``."""
        return _simple(self.partitioner_class).removesuffix("Partitioner")

    @property
    def extractor(self) -> str:
        """``Wallclock``, ``Record`` or ``RecordField``."""
        return _simple(self.timestamp_extractor).partition("$")[0].removesuffix("TimestampExtractor")

    @property
    def folder_format(self) -> tuple[str, int]:
        """Of folders by time: the form of their names, and the milliseconds of one."""
        if self.partitioner == "TimeBased":
            return self.path_format, self.partition_duration_ms
        daily = "'year'=YYYY/'month'=MM/'day'=dd"
        return (daily, _DAY_MS) if self.partitioner == "Daily" else (f"{daily}/'hour'=HH", _HOUR_MS)

    @property
    def is_by_time(self) -> bool:
        """Whether a record's folder follows from its time."""
        return self.partitioner in {"TimeBased", "Daily", "Hourly"}

    @property
    def zone(self) -> ZoneInfo:
        """The time zone of folders and of the schedule."""
        return ZoneInfo(self.timezone or "UTC")

    def own_findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        for name in ("topics_dir", "logs_dir"):
            folder = getattr(self, name)
            if not folder or any(part in {"", ".", ".."} for part in folder.split("/")):
                yield Finding(name.replace("_", "."), folder, "Expected a folder below the URL, such as 'topics'")
        if (self.aws_access_key_id is None) is not (self.aws_secret_access_key is None):
            yield Finding("aws.access.key.id", self.aws_access_key_id, "An access key and its secret go together")
        if self.flush_size is None and self.flush_size_bytes <= 0:
            message = 'Missing required configuration "flush.size" which has no default value: or give flush.size.bytes'
            yield Finding("flush.size", None, message)
        yield from self._time_findings()
        if self.partitioner == "Field" and not self.partition_field_name:
            yield Finding("partition.field.name", None, "FieldPartitioner needs the names of fields")

    def _time_findings(self) -> Iterator[Finding]:
        if self.timezone and self.timezone not in available_timezones():
            yield Finding("timezone", self.timezone, "Expected a time zone such as Europe/Berlin or UTC")
            return
        if (self.is_by_time or self.rotate_schedule_interval_ms > 0) and not self.timezone:
            yield Finding("timezone", None, "Folders by time, and rotate.schedule.interval.ms, need a time zone")
        if self.partitioner == "TimeBased":
            if self.partition_duration_ms <= 0:
                yield Finding("partition.duration.ms", None, "TimeBasedPartitioner needs a duration above 0")
            try:
                compiled(self.path_format)
            except PathFormatError as error:
                yield Finding("path.format", self.path_format or None, str(error))


class FileSystemSinkConfig(FilesConfig):
    """Writes records to files of HDFS, of folders or of object storage, each of them in exactly one file."""

    hdfs_url: Annotated[str | None, _HIGH] = None
    """Where the files are: ``hdfs://namenode:9000``, ``file:///folder`` on this machine, or ``s3a://bucket/folder`` in
    object storage. This or ``store.url``."""
    store_url: Annotated[str | None, _HIGH] = None
    """The same as ``hdfs.url``, which it goes before."""
    s3_endpoint: Annotated[str | None, _OBJECTS] = None
    """Address of the object storage for ``s3a://``, such as ``https://minio.example.com:9000``; none: Amazon's. A key
    of headrace."""
    hdfs_authentication_kerberos: Annotated[Boolean, _LOW] = False
    """Not supported: refused where it is true."""
    hive_integration: Annotated[Boolean, _HIVE] = False
    """Whether statements are written beside the files that make a table of each topic, in Hive's catalogue or in
    Spark's, and follow its schema and its folders. Needs ``schema.compatibility`` other than NONE."""
    hive_database: Annotated[str, Field(min_length=1), _HIVE] = "default"
    """Database of the tables."""
    hive_table_name: Annotated[str, Field(min_length=1), _HIVE] = "${topic}"
    """Name of a table; ``${topic}`` is the topic's. Signs that no name has in Hive become ``_``."""
    hive_ddl_dir: Annotated[str, _BELOW, _HIVE] = "hive"
    """Folder of the statements, below the URL. A key of headrace."""
    hive_metastore_uris: Annotated[str, _HIVE] = ""
    """Not supported: refused where it is given. No metastore is spoken to; run the statements."""
    hive_conf_dir: Annotated[str, _HIVE] = ""
    """Not supported: refused where it is given, since it leads to a metastore."""
    hive_home: Annotated[str, _HIVE] = ""
    """Accepted; nothing of Hive runs here."""
    topic_capture_groups_regex: Annotated[str | None, _LOW] = None
    """Not supported: refused where it is given."""

    @property
    def url(self) -> str:
        """Where the files are."""
        return (self.store_url or self.hdfs_url or "").rstrip("/")

    @property
    def url_key(self) -> str:
        """The key that names it."""
        return "store.url" if self.store_url else "hdfs.url"

    @property
    def endpoint(self) -> str | None:
        """As it is given."""
        return self.s3_endpoint

    def own_findings(self) -> Iterator[Finding]:
        """What is wrong with values that are each right by themselves."""
        yield from self._address_findings()
        yield from self._hive_findings()
        for key in ("hdfs.authentication.kerberos", "topic.capture.groups.regex"):
            if getattr(self, key.replace(".", "_")):
                yield Finding(key, str(getattr(self, key.replace(".", "_"))), f"{key} is not supported")
        yield from super().own_findings()

    def _hive_findings(self) -> Iterator[Finding]:
        for key in ("hive.metastore.uris", "hive.conf.dir"):
            value = getattr(self, key.replace(".", "_"))
            if value:
                message = f"No metastore is spoken to: leave {key} out, and run the statements in '{self.hive_ddl_dir}'"
                yield Finding(key, value, message)
        if not self.hive_integration:
            return
        if self.schema_compatibility == "NONE":
            yield Finding("schema.compatibility", "NONE", "hive.integration needs BACKWARD, FORWARD or FULL")
        if self.format not in HIVE_FORMATS:
            yield Finding("format.class", self.format_class, f"hive.integration needs {', '.join(HIVE_FORMATS)}")
        found = unknown_names(self.hive_table_name)
        if found:
            yield Finding("hive.table.name", self.hive_table_name, found)
        nested = [name for name in self.partition_field_name if "." in name]
        if self.partitioner == "Field" and nested:
            yield Finding("partition.field.name", nested[0], "No column of Hive has a dot in its name")
        if self.partitioner == "TimeBased" and not _NAMED_FOLDERS.fullmatch(self.path_format):
            yield Finding("path.format", self.path_format, "hive.integration needs folders as 'year'=YYYY/'day'=dd")
        if any(part in {"", ".", ".."} for part in self.hive_ddl_dir.split("/")):
            yield Finding("hive.ddl.dir", self.hive_ddl_dir, "Expected a folder below the URL, such as 'hive'")

    def _address_findings(self) -> Iterator[Finding]:
        key = self.url_key
        parts = urlsplit(self.url)
        if not self.url:
            yield Finding(key, None, 'Missing required configuration "hdfs.url": or give store.url')
        elif parts.scheme not in SCHEMES:
            yield Finding(key, self.url, f"Expected a URL that begins with one of {', '.join(SCHEMES)}")
        elif parts.scheme == "file" and (parts.netloc or not parts.path.startswith("/")):
            yield Finding(key, self.url, "Expected a folder as file:///folder")
        elif parts.scheme == "hdfs" and not parts.netloc:
            yield Finding(key, self.url, "Expected the name node's address, as hdfs://namenode:9000")
        elif parts.scheme == "s3a" and not parts.netloc:
            yield Finding(key, self.url, "Expected a bucket, as s3a://bucket/folder")


def _known(name: str, names: list[str]) -> str:
    simple = _simple(name).partition("$")[0].removesuffix("TimestampExtractor")
    is_own = "." in name and not name.startswith(_PACKAGE)
    if simple not in names or is_own:
        message = f"Expected one of {', '.join(names)}"
        raise ValueError(message)
    return name
