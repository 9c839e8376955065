"""Names of the sinks and their aliases: the one line a new sink adds. The shape is that of ``fetchers.catalog``."""

from __future__ import annotations

from fetchers.catalog import SINKS_GROUP, Plugin, PluginLoadError, installed_plugins
from service.sinks.contract import SinkConnector

SINKS: tuple[Plugin, ...] = (
    Plugin(
        "FileStreamSink",
        "service.sinks.file.sink:FileStreamSink",
        SinkConnector,
        ("org.apache.kafka.connect.file.FileStreamSinkConnector",),
    ),
    Plugin(
        "ElasticsearchSink",
        "service.sinks.elasticsearch.sink:ElasticsearchSink",
        SinkConnector,
        ("io.confluent.connect.elasticsearch.ElasticsearchSinkConnector",),
    ),
    Plugin(
        "JdbcSink",
        "service.sinks.jdbc.sink:JdbcSink",
        SinkConnector,
        ("io.confluent.connect.jdbc.JdbcSinkConnector",),
    ),
    Plugin(
        "HttpSink",
        "service.sinks.http.sink:HttpSink",
        SinkConnector,
        ("io.confluent.connect.http.HttpSinkConnector",),
    ),
    Plugin(
        "FileSystemSink",
        "service.sinks.filesystem.sink:FileSystemSink",
        SinkConnector,
        ("io.confluent.connect.hdfs.HdfsSinkConnector", "io.confluent.connect.hdfs3.Hdfs3SinkConnector"),
    ),
    Plugin(
        "S3Sink",
        "service.sinks.s3.sink:S3Sink",
        SinkConnector,
        ("io.confluent.connect.s3.S3SinkConnector",),
    ),
    Plugin(
        "IcebergSink",
        "service.sinks.iceberg.sink:IcebergSink",
        SinkConnector,
        ("org.apache.iceberg.connect.IcebergSinkConnector", "io.tabular.iceberg.connect.IcebergSinkConnector"),
    ),
)


def sink_plugins() -> tuple[Plugin, ...]:
    """Those of the catalogue, then those of installed packages; of two of one name the catalogue's."""
    return (*SINKS, *installed_plugins(SINKS_GROUP, SinkConnector))


def find_sink(name: str, *, refusal: str | None = None) -> Plugin | None:
    """The sink meant by ``connector.class=name``; None where it means no sink, or nothing at all.

    ``package.module:Class`` is imported to be looked at, since only its class says whether it is a sink; not where
    there is a ``refusal``, the worker's reason not to let it be loaded.
    """
    known = next((plugin for plugin in sink_plugins() if plugin.answers_to(name)), None)
    if known is not None or ":" not in name or refusal is not None:
        return known
    plugin = Plugin(name, name, SinkConnector)
    try:
        plugin.load()
    except PluginLoadError:
        return None
    return plugin
