"""A sink's config: Connect's keys and texts, every finding at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.config.files import read_properties
from service.config.kinds import Reading
from service.config.sink import SinkConnectorConfig, group_of
from service.sinks.catalog import SINKS, find_sink
from service.sinks.definition import SinkDefinition, read_sink_definition
from service.sinks.file.sink import FileStreamSink
from tests.unit.sinks.fakes import MemorySink

GOOD = {"name": "sink", "connector.class": "FileStreamSink", "topics": "a, b", "file": "/tmp/out.txt"}
EXAMPLES = Path(__file__).parents[3] / "docs/examples/sinks"
WORKER = {"key.converter": "string", "value.converter": "json"}


def read(**changes: str | None) -> Reading[SinkDefinition]:
    """The good config with changes; dots of keys as double underscores, None leaves a key out."""
    changed = {**GOOD, **{key.replace("__", "."): value for key, value in changes.items()}}
    return read_sink_definition({k: v for k, v in changed.items() if v is not None}, worker=WORKER)


def errors(reading: Reading[SinkDefinition]) -> dict[str, str]:
    """Messages of errors by key."""
    return {finding.key: finding.message for finding in reading.findings if finding.is_error}


def test_a_good_config_has_no_finding() -> None:
    """And says what its group is and reads."""
    reading = read()
    assert reading.findings == ()
    assert reading.definition is not None
    assert reading.definition.group_id == "connect-sink"
    assert reading.definition.subscription.topics == ("a", "b")
    assert isinstance(reading.definition.new_connector(), FileStreamSink)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.properties")), ids=lambda file: file.name)
def test_examples_have_no_finding(file: Path) -> None:
    """As they stand in docs/examples/sinks."""
    reading = read_sink_definition(read_properties(file), worker=WORKER)
    assert reading.findings == ()


@pytest.mark.parametrize(
    ("bounds", "is_refused"),
    [
        ({}, False),
        ({"listeners": "http://127.0.0.1:8083"}, False),
        ({"listeners": "http://0.0.0.0:8083"}, True),
        ({"connector.allowed.paths": "/tmp"}, True),
    ],
)
def test_the_workers_standard_output_is_bounded_as_files_are(bounds: dict[str, str], *, is_refused: bool) -> None:
    """Who may write a config of a worker that others reach does not thereby write into its log."""
    config = {key: value for key, value in GOOD.items() if key != "file"}
    reading = read_sink_definition(config, worker={**WORKER, **bounds})
    assert ("file" in errors(reading)) is is_refused
    assert (reading.definition is None) is is_refused
    if is_refused:
        assert "connector.allowed.paths" in errors(reading)["file"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"topics__regex": "x"}, "topics and topics.regex are mutually exclusive options, but both are set."),
        ({"topics": None}, "Must configure one of topics or topics.regex"),
        ({"topics": " "}, "Must configure one of topics or topics.regex"),
    ],
)
def test_exactly_one_of_topics_and_pattern(changes: dict[str, str | None], expected: str) -> None:
    """Connect tells it on both keys."""
    assert errors(read(**changes)) == {"topics": expected, "topics.regex": expected}


def test_dead_letters_may_not_be_read() -> None:
    """Neither by name nor by pattern."""
    by_name = read(errors__deadletterqueue__topic__name="b")
    by_pattern = read(topics=None, topics__regex="b.*", errors__deadletterqueue__topic__name="bad")
    assert errors(by_name)["topics"] == (
        "The DLQ topic 'b' may not be included in the list of topics ('topics=[a, b]') consumed by the connector"
    )
    assert errors(by_pattern)["topics.regex"] == (
        "The DLQ topic 'bad' may not be matched by the regex for the topics ('topics.regex=b.*') consumed by the "
        "connector"
    )


def test_dead_letters_go_to_a_topic_that_kafka_makes() -> None:
    """Else the first rejected record fails the task."""
    (finding,) = read(errors__deadletterqueue__topic__name="bad topic/").findings
    assert (finding.key, finding.value) == ("errors.deadletterqueue.topic.name", "bad topic/")
    assert "Expected a topic's name" in finding.message


def test_a_pattern_that_would_never_come_back_is_answered() -> None:
    """Python's engine needs years for this name, and holds the interpreter and the event loop meanwhile."""
    reading = read(topics=None, topics__regex="(a+)+b", errors__deadletterqueue__topic__name="a" * 200)
    assert reading.definition is not None
    pattern = reading.definition.subscription.pattern
    assert pattern is not None
    assert pattern.fullmatch("a" * 240) is None
    assert pattern.fullmatch("a" * 240 + "b")


def test_a_pattern_that_cannot_be_bounded_is_a_finding() -> None:
    """It is not read by an engine of Java's own that could carry it out."""
    assert "cannot be had in linear time" in errors(read(topics=None, topics__regex="(?!x).*"))["topics.regex"]


def test_all_errors_at_once() -> None:
    """Keys of Connect, of the sink and of converters."""
    found = errors(
        read(topics__regex="(", errors__tolerance="some", value__converter="nonsense", transforms="t", name="")
    )
    assert set(found) == {"topics", "topics.regex", "errors.tolerance", "value.converter", "transforms.t.type", "name"}


def test_an_unknown_key_is_a_warning() -> None:
    """It names the nearest known one."""
    reading = read(topic="a")
    assert reading.definition is not None
    assert [(finding.key, finding.message) for finding in reading.findings] == [
        ("topic", "Unknown key; did you mean 'topics'?")
    ]


def test_a_class_that_nobody_knows() -> None:
    """Connect's text, with what there is."""
    found = errors(read(connector__class="Nonsense"))
    assert found["connector.class"].endswith(f"available connectors are: {', '.join(plugin.name for plugin in SINKS)}")


def test_the_group_may_be_named() -> None:
    """By the consumer's override, as in Connect."""
    assert group_of("sink", {"consumer.override.group.id": "other"}) == "other"


def test_connects_keys_to_the_byte() -> None:
    """Type, default, importance, group, order, width and display name of each."""
    found = {
        key.name: (
            key.kind,
            key.default,
            key.extras.importance.value,
            key.extras.group,
            key.extras.order,
            key.extras.width,
            key.extras.display_name,
        )
        for key in SinkConnectorConfig.config_keys()
    }
    letters = "errors.deadletterqueue"
    errors_group = "Error Handling"
    assert found["topics"] == ("LIST", "", "HIGH", "Common", 4, "LONG", "Topics")
    assert found["topics.regex"] == ("STRING", "", "HIGH", "Common", 4, "LONG", "Topics regex")
    assert found[f"{letters}.topic.name"] == (
        "STRING", "", "MEDIUM", errors_group, 6, "MEDIUM", "Dead Letter Queue Topic Name",
    )  # fmt: skip
    assert found[f"{letters}.topic.replication.factor"] == (
        "SHORT", "3", "MEDIUM", errors_group, 7, "MEDIUM", "Dead Letter Queue Topic Replication Factor",
    )  # fmt: skip
    assert found[f"{letters}.context.headers.enable"] == (
        "BOOLEAN", "false", "MEDIUM", errors_group, 8, "MEDIUM", "Enable Error Context Headers",
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "FileStreamSinkConnector",
        "FileStreamSink",
    ],
)
def test_the_file_sink_has_connects_names(name: str) -> None:
    """Configs written for Java run unchanged."""
    assert find_sink(name) is SINKS[0]


def test_a_class_of_ones_own_is_a_sink_when_it_is_one() -> None:
    """Only the class says so; what cannot be imported is none."""
    mine = find_sink("tests.unit.sinks.fakes:MemorySink")
    assert mine is not None
    assert mine.load() is MemorySink
    assert find_sink("service.sinks.batch:Form") is None
    assert find_sink("no.such.module:Class") is None
    assert find_sink("FileStreamSource") is None


PICKED = {"transforms": "p", "transforms.p.type": "Sql", "transforms.p.sql": "SELECT a FROM record WHERE b > 1"}
HOISTED = {
    **PICKED,
    "transforms": "h,p",
    "transforms.h.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.h.field": "a",
}
KEYED = {
    "transforms": "k,p",
    "transforms.k.type": "org.apache.kafka.connect.transforms.ValueToKey",
    "transforms.k.fields": "a",
    "transforms.p.type": "Sql$Key",
    "transforms.p.sql": "SELECT a FROM record",
}
SCHEMAS = {"value.converter": "json", "value.converter.schemas.enable": "true"}
NO_SCHEMAS = {"value.converter": "json", "value.converter.schemas.enable": "false"}
STRINGS = {"value.converter": "string"}


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        ({**PICKED, **SCHEMAS}, ""),
        ({**PICKED, "value.converter": "avro", "value.converter.schema.registry.url": "http://r:1"}, ""),
        ({**PICKED, **NO_SCHEMAS}, "value.converter"),
        ({**PICKED, **STRINGS}, "value.converter"),
        ({**PICKED, "value.converter": "org.apache.kafka.connect.converters.LongConverter"}, "value.converter"),
        ({**HOISTED, "value.converter": "long"}, ""),
        ({**HOISTED, **STRINGS}, ""),
        ({**HOISTED, **NO_SCHEMAS}, "value.converter"),
        ({**PICKED, **SCHEMAS, "transforms.p.type": "Sql$Key"}, "key.converter"),
        ({**KEYED, **SCHEMAS}, ""),
        ({**KEYED, **NO_SCHEMAS}, "value.converter"),
    ],
)
def test_sql_needs_converters_that_tell_types(keys: dict[str, str], refused: str) -> None:
    """Or texts that `HoistField` makes records of; the finding names the converter, and what would do."""
    reading = read_sink_definition({**GOOD, **keys}, worker=WORKER)
    found = errors(reading)
    assert list(found) == ([refused] if refused else [])
    assert all("fields whose types are known" in text for text in found.values())
    if reading.definition is not None:
        assert reading.definition.asks_spark


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELECT java_method('java.lang.System', 'getenv', a) AS x FROM record", "java_method"),
        ("SELECT a FROM record WHERE a IN (SELECT 1)", "subquery"),
        ("SELECT a FROM text.`/etc/passwd`", "FROM record"),
        ("SELECT ${env:HOME} AS a FROM record", "${"),
        ("SELECT a FROM record GROUP BY a", "GROUP BY"),
        ("DROP TABLE record", "SELECT"),
        ("", "non-empty"),
    ],
)
def test_what_sql_may_not_say_is_told_without_spark_where_that_can_be(sql: str, word: str) -> None:
    """As of a source, at the same key."""
    reading = read_sink_definition({**GOOD, **PICKED, **SCHEMAS, "transforms.p.sql": sql}, worker=WORKER)
    assert reading.definition is None
    assert list(errors(reading)) == ["transforms.p.sql"]
    assert word in errors(reading)["transforms.p.sql"]


CLASSES = {
    "ElasticsearchSink": {"connection.url": "http://localhost:9200"},
    "JdbcSink": {"connection.url": "jdbc:sqlite:/tmp/a.db", "pk.mode": "record_value"},
    "HttpSink": {"http.api.url": "http://localhost:1"},
    "HdfsSinkConnector": {"store.url": "file:///tmp/x", "flush.size": "3"},
    "S3Sink": {"s3.bucket.name": "b", "flush.size": "3"},
    "IcebergSink": {
        "iceberg.tables": "a.b",
        "iceberg.catalog.type": "rest",
        "iceberg.catalog.uri": "http://localhost:8181",
        "value.converter.schemas.enable": "true",
    },
}


def found(sink: str, key: str, value: str, **more: str) -> dict[str, str]:
    """Errors of a config of that sink with one more key, or with more."""
    config = {"name": "x", "topics": "t", "connector.class": sink, **CLASSES[sink], **more, key: value}
    return errors(read_sink_definition(config, worker=WORKER | {"value.converter.schemas.enable": "true"}))


@pytest.mark.parametrize(
    ("sink", "key", "value"),
    [
        ("ElasticsearchSink", "behavior.on.null.values", "delete"),
        ("ElasticsearchSink", "behavior.on.malformed.documents", "warn"),
        ("ElasticsearchSink", "write.method", "upsert"),
        ("ElasticsearchSink", "elastic.security.protocol", "plaintext"),
        ("JdbcSink", "insert.mode", "UPSERT"),
        ("JdbcSink", "pk.mode", "RECORD_VALUE"),
        ("JdbcSink", "date.timezone", "utc"),
        ("JdbcSink", "quote.sql.identifiers", "never"),
        ("HttpSink", "auth.type", "none"),
        ("HttpSink", "request.method", "put"),
        ("S3Sink", "behavior.on.null.values", "IGNORE"),
        ("HdfsSinkConnector", "logs.dir", "/logs"),
        ("HdfsSinkConnector", "topics.dir", "/user/kafka/topics/"),
    ],
)
def test_values_as_users_of_confluents_connectors_have_them(sink: str, key: str, value: str) -> None:
    """Its choices are in any case (``EnumRecommender``, ``EnumValidator``), and its folders begin with a slash."""
    assert found(sink, key, value) == {}


def test_a_choice_is_read_as_it_is_declared() -> None:
    """Whatever case it was written in; a word that is no choice stays refused."""
    config = {"name": "x", "topics": "t", "connector.class": "JdbcSink", **CLASSES["JdbcSink"], "insert.mode": "Upsert"}
    definition = read_sink_definition(config, worker=WORKER | {"value.converter.schemas.enable": "true"}).definition
    assert definition is not None
    assert definition.own.model_dump()["insert_mode"] == "upsert"
    assert "String must be one of: insert, upsert, update" in found("JdbcSink", "insert.mode", "merge")["insert.mode"]


@pytest.mark.parametrize(
    ("sink", "key", "value"),
    [
        ("ElasticsearchSink", "topic.index.map", "t:other"),
        ("JdbcSink", "timestamp.fields.list", "a,b"),
        ("JdbcSink", "table.name.format", "kafka_${topics}"),
        ("ElasticsearchSink", "data.stream.namespace", "${partition}"),
        ("HdfsSinkConnector", "hive.table.name", "${tpic}"),
        ("HttpSink", "regex.patterns", "a"),
        ("HdfsSinkConnector", "file.delim", "-"),
        ("S3Sink", "json.decimal.format", "NUMERIC"),
        ("S3Sink", "s3.sse.kms.key.id", "some-key"),
        ("S3Sink", "partition.field.format.path", "false"),
        ("HdfsSinkConnector", "partitioner.class", "com.acme.DefaultPartitioner"),
        ("S3Sink", "format.class", "com.acme.JsonFormat"),
        ("HdfsSinkConnector", "timestamp.extractor", "com.acme.RecordTimestampExtractor"),
        ("IcebergSink", "iceberg.tables.auto-create-props.write.format.default", "avro"),
    ],
)
def test_what_would_be_written_otherwise_is_refused(sink: str, key: str, value: str) -> None:
    """A key of the other product that is not supported, a class of the user's own, a name that stands for nothing."""
    is_table = key == "hive.table.name"
    table = (
        {"hive.integration": "true", "schema.compatibility": "FULL", "format.class": "AvroFormat"} if is_table else {}
    )
    assert list(found(sink, key, value, **table)) == [key]


@pytest.mark.parametrize(
    ("sink", "key", "value"),
    [
        ("HdfsSinkConnector", "file.delim", "+"),
        ("S3Sink", "s3.object.tagging", "FALSE"),
        ("JdbcSink", "timestamp.precision.mode", "MICROSECONDS"),
        ("HttpSink", "regex.patterns", ""),
        ("S3Sink", "s3.credentials.provider.class", "com.amazonaws.auth.DefaultAWSCredentialsProviderChain"),
    ],
)
def test_a_foreign_key_that_changes_nothing_is_taken(sink: str, key: str, value: str) -> None:
    """With what is its default there."""
    assert found(sink, key, value) == {}


BYTES, STRING, JSON = (
    f"org.apache.kafka.connect.{name}"
    for name in ("converters.ByteArrayConverter", "storage.StringConverter", "json.JsonConverter")
)


@pytest.mark.parametrize(
    ("sink", "converter", "told"),
    [
        ("IcebergSink", STRING, "IcebergSink takes values of these forms: json, record;"),
        ("ElasticsearchSink", BYTES, "ElasticsearchSink takes values of these forms: json, record;"),
        ("JdbcSink", STRING, "JdbcSink takes values of these forms: json, record;"),
        ("HttpSink", BYTES, "HttpSink takes values of these forms: json, record, text;"),
        ("IcebergSink", JSON, ""),
        ("HttpSink", STRING, ""),
        ("HdfsSinkConnector", BYTES, ""),
        ("S3Sink", STRING, ""),
    ],
)
def test_what_a_converter_makes_is_taken_by_the_sink(sink: str, converter: str, told: str) -> None:
    """Told before it runs, at the converter's key, unless a transformation may make another form of it."""
    text = found(sink, "value.converter", converter).get("value.converter", "")
    assert text.startswith(told)
    assert bool(text) is bool(told)
    hoist = {
        "transforms": "h",
        "transforms.h.type": "org.apache.kafka.connect.transforms.HoistField$Value",
        "transforms.h.field": "line",
    }
    assert "value.converter" not in found(sink, "value.converter", converter, **hoist)
