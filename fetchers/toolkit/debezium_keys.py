"""Keys of Debezium's connectors that nothing here reads: which may be left out, and which say what would not be done.

A config that runs with Debezium may hide columns, filter rows, or count on a topic by a key that is not known here.
Leaving it out without a word would show what was to be hidden, or drop what somebody relies on. So each key of
Debezium 3.5 (https://debezium.io/documentation/reference/3.5/connectors/) is a field of the config class, or it is in
``UNREAD``: refused where its value asks for something else than what is done here, else told in a warning.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from fetchers.toolkit.unread_keys import ANY, NONE, Unread, UnreadKeysConfig

_OFF = ("", "false")
_POSTGRES, _MYSQL = ("postgresql",), ("mysql",)
_REMOVED = "Debezium 3 does not know it either, and it would mean all"
_RETRIES = "Failures that may pass are tried again by the worker."
_THREADS = "Tables are read one after the other."
_SERVER_STORE = "The server's certificate is judged by the certificates of this system (SSL_CERT_FILE): remove the key."
_LIBPQ = "It would not be read. Remove the key, and set libpq's own variable for the worker instead"
UNREAD: Final = (
    Unread("column.propagate.source.type", NONE, "Schemas have no parameters of the source's types: remove the key "
           "if no reader needs them."),
    Unread("datatype.propagate.source.type", NONE, "Schemas have no parameters of the source's types: remove the key "
           "if no reader needs them."),
    Unread("column.", NONE, "Rules for single columns are not kept here (masks, hashes, cuts): values would be shown. "
           "Leave the column out by column.exclude.list."),
    Unread("message.key.columns", NONE, "Keys are the tables' own: remove the key, and use ValueToKey in transforms "
           "behind ExtractNewRecordState."),
    Unread("table.whitelist", NONE, f"{_REMOVED} tables: use table.include.list."),
    Unread("table.blacklist", NONE, f"{_REMOVED} tables: use table.exclude.list."),
    Unread("database.whitelist", NONE, f"{_REMOVED} databases: use database.include.list."),
    Unread("database.blacklist", NONE, f"{_REMOVED} databases: use database.exclude.list."),
    Unread("schema.whitelist", NONE, f"{_REMOVED} schemas: use schema.include.list."),
    Unread("schema.blacklist", NONE, f"{_REMOVED} schemas: use schema.exclude.list."),
    Unread("table.ignore.builtin", ("", "true"), "The server's own tables are never read: remove the key.", _MYSQL),
    Unread("table.ignore.builtin", ("", "true"), "Tables of pg_catalog are never read: remove the key.", _POSTGRES),
    Unread("skip.messages.without.change", _OFF, "Updates that change no column are delivered: remove the key."),
    Unread("snapshot.select.statement.overrides", NONE, "Snapshots read all rows of a table: narrow table.include.list,"
           " or give the rows as a table of their own."),
    Unread("snapshot.include.collection.list", NONE, "A snapshot reads all tables that are captured: narrow "
           "table.include.list."),
    Unread("snapshot.query.mode", ("", "select_all"), "Snapshots read all rows of a table: remove the key."),
    Unread("snapshot.mode.custom.name", NONE, "Java classes cannot be loaded: choose another snapshot.mode."),
    Unread("snapshot.mode.configuration.based.", ANY, "It says something with snapshot.mode=configuration_based "
           "alone, which is refused."),
    Unread("snapshot.locking.mode", ANY, "No lock is taken.", _POSTGRES),
    Unread("snapshot.isolation.mode", ANY, "Snapshots are repeatable reads."),
    Unread("snapshot.lock.timeout.ms", ANY, "No lock is taken.", _POSTGRES),
    Unread("snapshot.delay.ms", ANY, "The snapshot begins with the task."),
    Unread("snapshot.max.threads", ANY, _THREADS),
    Unread("snapshot.tables.order.by.row.count", ANY, _THREADS),
    Unread("streaming.delay.ms", ANY, "The log is read as soon as the snapshot has ended."),
    Unread("incremental.snapshot.", ANY, "Rows are read beside the log by snapshot.fetch.size."),
    Unread("signal.data.collection", NONE, "Tables of signals are not heeded. Remove the key; for PostgreSQL a "
           "snapshot is asked for by snapshot.request.id."),
    Unread("signal.enabled.channels", ("", "source"), "No channel of signals is heeded: remove the key."),
    Unread("signal.", ANY, "No channel of signals is heeded."),
    Unread("read.only", ANY, "Nothing is written to tables of the database."),
    Unread("notification.enabled.channels", ("", "log", "jmx", "log,jmx", "jmx,log"), "No topic of notifications is "
           "written: remove sink. The worker's log tells of snapshots."),
    Unread("notification.", ANY, "No topic of notifications is written."),
    Unread("provide.transaction.metadata", _OFF, "Events have no transaction block, and no topic of transactions is "
           "written: set it to false if no reader needs them."),
    Unread("transaction.metadata.factory", ANY, "There is no metadata of transactions."),
    Unread("include.schema.changes", ANY, "No topic of DDL is written: schemas change with the rows.", _MYSQL),
    Unread("include.schema.comments", _OFF, "Schemas have no comments of the database: set it to false.", _MYSQL),
    Unread("include.schema.comments", ANY, "Schemas have no comments of the database.", _POSTGRES),
    Unread("include.query", _OFF, "source.query is always null: set it to false.", _MYSQL),
    Unread("include.unknown.datatypes", _OFF, "Types that Debezium does not know are the server's text here, not "
           "bytes: set it to false.", _POSTGRES),
    Unread("extended.headers.enabled", ANY, "Records have no __debezium.context headers."),
    Unread("schema.history.internal", ANY, "The log describes its tables itself: no history is kept.", _MYSQL),
    Unread("database.history.", ANY, "The log describes its tables itself: no history is kept.", _MYSQL),
    Unread("event.processing.failure.handling.mode", ANY, "An event that cannot be read stops the task."),
    Unread("event.converting.failure.handling.mode", ANY, "A value that its type cannot hold goes to the dead letters "
           "or stops the task."),
    Unread("event.deserialization.failure.handling.mode", ANY, "An event that cannot be read stops the task.", _MYSQL),
    Unread("inconsistent.schema.handling.mode", ANY, "There is no schema beside the log's own.", _MYSQL),
    Unread("errors.max.retries", ANY, _RETRIES),
    Unread("retriable.restart.connector.wait.ms", ANY, _RETRIES),
    Unread("guardrail.collections.limit.action", ("", "warn"), "Tables are not counted: remove the key."),
    Unread("guardrail.collections.max", ANY, "Tables are not counted."),
    Unread("hstore.handling.mode", ("", "json"), "hstore is JSON: remove the key.", _POSTGRES),
    Unread("money.fraction.digits", ("", "2"), "money has two digits: remove the key.", _POSTGRES),
    Unread("converters", NONE, "Java classes cannot be loaded: use a transformation (transforms)."),
    Unread("post.processors", NONE, "Java classes cannot be loaded: use a transformation (transforms)."),
    Unread("sourceinfo.struct.maker", ("", "io.debezium.connector.postgresql.postgressourceinfostructmaker"),
           "source has its usual fields: remove the key.", _POSTGRES),
    Unread("sourceinfo.struct.maker", ("", "io.debezium.connector.mysql.mysqlsourceinfostructmaker",
           "io.debezium.connector.mariadb.mariadbsourceinfostructmaker"), "source has its usual fields: remove the "
           "key.", _MYSQL),
    Unread("topic.naming.strategy", ("", "io.debezium.schema.schematopicnamingstrategy"), "Topics are "
           "<topic.prefix>.<schema or database>.<table>: remove the key, and use RegexRouter in transforms."),
    Unread("topic.delimiter", ("", "."), "Names of topics are joined by dots: use RegexRouter in transforms."),
    Unread("topic.heartbeat.prefix", ("", "__debezium-heartbeat"), "Use heartbeat.topics.prefix."),
    Unread("topic.transaction", ANY, "No topic of transactions is written."),
    Unread("topic.cache.size", ANY, "It is Debezium's own."),
    Unread("database.initial.statements", NONE, "Sessions run no statements of yours: set them as the role's defaults "
           "(ALTER ROLE … SET …), or in the server."),
    Unread("database.sslrootcert", NONE, f"{_LIBPQ}: PGSSLROOTCERT.", _POSTGRES),
    Unread("database.sslcert", NONE, f"{_LIBPQ}: PGSSLCERT.", _POSTGRES),
    Unread("database.sslkey", NONE, f"{_LIBPQ}: PGSSLKEY (a file in PEM).", _POSTGRES),
    Unread("database.sslpassword", NONE, "It would not be read: use a key without a password (PGSSLKEY).", _POSTGRES),
    Unread("database.sslfactory", NONE, "Java classes cannot be loaded: remove the key.", _POSTGRES),
    Unread("database.ssl.keystore", NONE, "The login has no certificate of the client's: use a password.", _MYSQL),
    Unread("database.ssl.truststore", NONE, _SERVER_STORE, _MYSQL),
    Unread("database.tcpKeepAlive", ANY, "Connections are looked after by the driver.", _POSTGRES),
    Unread("database.query.timeout.ms", ANY, "Questions end with their connection."),
    Unread("database.server.id.offset", ANY, "One number is enough: snapshots have none.", _MYSQL),
    Unread("database.server.name", ANY, "It is topic.prefix since Debezium 2."),
    Unread("database.jdbc.driver", ANY, "There is no JDBC driver.", _MYSQL),
    Unread("database.protocol", ANY, "There is no JDBC driver.", _MYSQL),
    Unread("driver.", ANY, "There is no JDBC driver."),
    Unread("connection.validation.timeout.ms", ANY, "A login waits ten seconds."),
    Unread("connect.timeout.ms", ANY, "A login waits ten seconds.", _MYSQL),
    Unread("connect.keep.alive", ANY, "A silent connection is known by log.silence.max.ms.", _MYSQL),
    Unread("use.nongraceful.disconnect", ANY, "A stop closes the connection.", _MYSQL),
    Unread("binlog.", ANY, "Buffers are bounded by max.batch.bytes.", _MYSQL),
    Unread("enable.time.adjuster", ANY, "Years of two digits are the server's.", _MYSQL),
    Unread("min.row.count.to.stream.results", ANY, "All tables are read by a cursor.", _MYSQL),
    Unread("gtid.source.includes", NONE, "All transactions of the log are read: remove the key.", _MYSQL),
    Unread("gtid.source.excludes", NONE, "All transactions of the log are read: remove the key.", _MYSQL),
    Unread("gtid.source.filter.dml.events", ANY, "All transactions of the log are read.", _MYSQL),
    Unread("message.prefix.include.list", NONE, "Messages of pg_logical_emit_message are not delivered: remove the "
           "key.", _POSTGRES),
    Unread("message.prefix.exclude.list", ANY, "Messages of pg_logical_emit_message are not delivered.", _POSTGRES),
    Unread("publish.via.partition.root", _OFF, "Make the publication yourself, WITH (publish_via_partition_root), set "
           "publication.autocreate.mode=disabled, and remove the key.", _POSTGRES),
    Unread("replica.identity.autoset.values", NONE, "Tables are not altered. Run ALTER TABLE … REPLICA IDENTITY … "
           "yourself, and remove the key.", _POSTGRES),
    Unread("slot.drop.on.stop", _OFF, "Slots are never dropped by a stop: changes would be lost. Set it to false.",
           _POSTGRES),
    Unread("slot.failover", _OFF, "Make the slot yourself (pg_create_logical_replication_slot with failover), and "
           "remove the key.", _POSTGRES),
    Unread("slot.stream.params", NONE, "The server's plugin is asked in one way alone: remove the key.", _POSTGRES),
    Unread("slot.max.retries", ANY, _RETRIES, _POSTGRES),
    Unread("slot.retry.delay.ms", ANY, _RETRIES, _POSTGRES),
    Unread("lsn.flush.mode", ("", "connector", "connector_and_driver"), "The slot moves on behind each commit to Kafka "
           "alone, by itself: set it to connector.", _POSTGRES),
    Unread("flush.lsn.source", ("", "true"), "The slot moves on behind each commit to Kafka alone, by itself: set it "
           "to true.", _POSTGRES),
    Unread("lsn.flush.timeout.", ANY, "Nobody waits for the slot.", _POSTGRES),
    Unread("offset.mismatch.strategy", ANY, "A slot that is ahead of the offset stops the task.", _POSTGRES),
    Unread("status.update.interval.ms", ANY, "The server is told with each commit, and every ten seconds.", _POSTGRES),
    Unread("xmin.fetch.interval.ms", ("", "0"), "source.xmin is always null: set it to 0.", _POSTGRES),
    Unread("schema.refresh.mode", ANY, "The log says when the columns of a table change.", _POSTGRES),
    Unread("max.queue.size", ANY, "Queues are bounded by the worker."),
    Unread("max.batch.size", ANY, "Pages are bounded by max.batch.bytes.", _MYSQL),
    Unread("query.fetch.size", ANY, "Rows are fetched by snapshot.fetch.size."),
    Unread("executor.shutdown.timeout.ms", ANY, "Stops wait by task.shutdown.graceful.timeout.ms."),
    Unread("custom.metric.tags", ANY, "Metrics have headrace's labels."),
    Unread("custom.sanitize.pattern", ANY, "Secrets are hidden wherever configs are shown."),
    Unread("openlineage.integration.enabled", _OFF, "No lineage is sent: set it to false."),
    Unread("openlineage.integration.", ANY, "No lineage is sent."),
    Unread("internal.", ANY, "It is Debezium's own."),
)  # fmt: skip
"""In the order in which they are looked through: what is more exact comes first."""


class DebeziumConfig(UnreadKeysConfig):
    """Base of config classes that take Debezium's keys: every one of them is read, refused, or told in a warning."""

    debezium_connector: ClassVar[str] = ""
    """``postgresql`` or ``mysql``, as in ``Unread.of``."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """The keys of the one connector."""
        cls.unread_keys = tuple(one for one in UNREAD if not one.of or cls.debezium_connector in one.of)
        super().__pydantic_init_subclass__(**kwargs)
