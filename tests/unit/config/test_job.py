"""A worker's config and its connectors', read together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fetchers.sdk import Finding, Severity
from service.job import ConfigRefusedError, Job, make_job, read_job

FILE = {"name": "lines", "connector.class": "FileStreamSource", "topic": "t", "file": "/tmp/x"}


def refused(worker: dict[str, str], *connectors: dict[str, str]) -> dict[str, list[Finding]]:
    """Findings of a refused job by source."""
    with pytest.raises(ConfigRefusedError) as refusal:
        make_job(worker, connectors)
    found: dict[str, list[Finding]] = {}
    for source in refusal.value.sources:
        found.setdefault(source.source, []).extend(source.findings)
    return found


def warnings(job: Job) -> set[str]:
    """Keys that were warned of."""
    return {finding.key for source in job.warnings for finding in source.findings}


def test_findings_of_all_files_come_at_once() -> None:
    """The worker's and every connector's, errors and warnings."""
    found = refused(
        {"offset.storage.partitions": "many", "ofset.storage.topic": "x"},
        {**FILE, "tasks.max": "0"},
        {"name": "other", "connector.class": "Nothing"},
    )
    assert {finding.key for finding in found["worker"]} == {"offset.storage.partitions", "ofset.storage.topic"}
    assert [finding.key for finding in found["lines"]] == ["tasks.max"]
    assert "connector.class" in {finding.key for finding in found["other"]}


def test_two_connectors_of_one_name_are_refused() -> None:
    """They would fence each other for ever."""
    found = refused({}, FILE, FILE)
    assert any("already exists" in finding.message for finding in found["lines"])


def test_a_good_job_keeps_its_warnings() -> None:
    """Unknown keys, the offset file, and what a connector warns of."""
    job = make_job({"offset.storage.file.filename": "/tmp/offsets", "zzz": "1"}, [{**FILE, "filee": "x"}])
    assert warnings(job) == {"offset.storage.file.filename", "zzz", "filee"}
    assert all(finding.severity is Severity.WARNING for source in job.warnings for finding in source.findings)
    (definition,) = job.definitions()
    assert definition.name == "lines"


def test_settings_of_spark_that_verdicts_rest_on_are_told_as_not_used() -> None:
    """Others pass through."""
    job = make_job({"spark.sql.session.timeZone": "Europe/Berlin", "spark.sql.shuffle.partitions": "7"}, [FILE])
    assert warnings(job) == {"spark.sql.session.timeZone"}


def test_connects_own_standalone_file_gives_no_error() -> None:
    """Its keys are all known."""
    job = make_job(
        {
            "bootstrap.servers": "localhost:9092",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "true",
            "value.converter.schemas.enable": "true",
            "offset.storage.file.filename": "/tmp/connect.offsets",
            "offset.flush.interval.ms": "10000",
            "plugin.path": "/usr/share/java",
            "rest.port": "8083",
        },
        [FILE],
    )
    assert warnings(job) == {"offset.storage.file.filename"}


def test_the_embedded_registry_gets_its_url_once_it_is_known() -> None:
    """Validation does not need it; what is embedded is said by any key that ends so."""
    job = make_job(
        {"schema.registry.url": "embedded", "value.converter": "io.confluent.connect.avro.AvroConverter"}, [FILE]
    )
    assert job.needs_embedded_registry
    (definition,) = job.definitions(registry_url="http://127.0.0.1:8081/apis/ccompat/v7")
    assert "http://127.0.0.1:8081/apis/ccompat/v7" in str(definition.value_converter.registry)
    assert not make_job({}, [FILE]).needs_embedded_registry


def test_files_are_read_and_named(tmp_path: Path) -> None:
    """Properties and JSON; a finding says in which file it is."""
    worker, connector = tmp_path / "w.properties", tmp_path / "c.json"
    worker.write_text("group.id=g\n", encoding="utf-8")
    connector.write_text(json.dumps({"name": "lines", "config": FILE}), encoding="utf-8")
    assert read_job(worker, [connector]).worker.group_id == "g"
    connector.write_text(json.dumps({**FILE, "tasks.max": "x"}), encoding="utf-8")
    with pytest.raises(ConfigRefusedError) as refusal:
        read_job(worker, [connector])
    assert [source.source for source in refusal.value.sources] == [str(connector)]


def test_all_unreadable_files_are_named_at_once(tmp_path: Path) -> None:
    """Not the first one only."""
    with pytest.raises(ConfigRefusedError) as refusal:
        read_job(tmp_path / "w.properties", [tmp_path / "c.properties"])
    assert len(refusal.value.sources) == 2


def test_an_unreadable_file_hides_nothing_of_the_others(tmp_path: Path) -> None:
    """Neither the worker's findings nor those of the other connectors."""
    worker, wrong = tmp_path / "w.properties", tmp_path / "wrong.json"
    worker.write_text("log.format=xml\n", encoding="utf-8")
    wrong.write_text(json.dumps({**FILE, "tasks.max": "x"}), encoding="utf-8")
    with pytest.raises(ConfigRefusedError) as refusal:
        read_job(worker, [tmp_path / "none.properties", wrong])
    assert {source.source: [finding.key for finding in source.findings] for source in refusal.value.sources} == {
        str(tmp_path / "none.properties"): [""],
        str(worker): ["log.format"],
        str(wrong): ["tasks.max"],
    }


def test_an_unreadable_file_refuses_the_job_by_itself(tmp_path: Path) -> None:
    """Also where nothing else is wrong."""
    worker, good = tmp_path / "w.properties", tmp_path / "good.json"
    worker.write_text("", encoding="utf-8")
    good.write_text(json.dumps(FILE), encoding="utf-8")
    with pytest.raises(ConfigRefusedError) as refusal:
        read_job(worker, [good, tmp_path / "none.properties"])
    assert [source.source for source in refusal.value.sources] == [str(tmp_path / "none.properties")]


def test_without_the_worker_s_file_only_what_no_worker_makes_right_is_told(tmp_path: Path) -> None:
    """Converters and the policy of overrides may be the worker's, and what variables stand for is."""
    schema = '{"type":"record","name":"R","fields":[{"name":"a","type":"long"},{"name":"b","type":"long"}]}'
    rests_on_worker = {
        **FILE,
        "contract.schema": schema,
        "key.fields": "a,b",
        "producer.override.linger.ms": "5",
        "producer.override.security.protocol": "SSL",
        "tasks.max": "${env:TASKS}",
    }
    right, wrong = tmp_path / "right.json", tmp_path / "wrong.json"
    right.write_text(json.dumps(rests_on_worker), encoding="utf-8")
    wrong.write_text(json.dumps({**rests_on_worker, "name": "other", "errors.tolerance": "some"}), encoding="utf-8")
    with pytest.raises(ConfigRefusedError) as refusal:
        read_job(tmp_path / "none.properties", [right, wrong])
    assert {source.source: [finding.key for finding in source.findings] for source in refusal.value.sources} == {
        str(tmp_path / "none.properties"): [""],
        str(wrong): ["errors.tolerance"],
    }


def told_of(worker: dict[str, str], *connectors: dict[str, str]) -> list[str]:
    """Keys of the errors in the worker's file, in order."""
    return [finding.key for finding in refused(worker, *connectors)["worker"] if finding.is_error]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("security.protocol", "SASL_SLL"),
        ("request.timeout.ms", "soon"),
        ("producer.compression.type", "foo"),
        ("consumer.security.protocol", "FOO"),
        ("consumer.max.poll.records", "0"),
        ("admin.request.timeout.ms", "x"),
        ("ssl.truststore.location", "/nowhere/ca.pem"),
        ("consumer.ssl.keystore.location", "/nowhere/keystore.pem"),
        ("listeners", "ftp://x"),
        ("admin.listeners", "nonsense"),
        ("spark.master", "locl[2]"),
        ("spark.remote", "http://spark:15002"),
    ],
)
@pytest.mark.parametrize("connectors", [(), (FILE,)])
def test_what_is_wrong_with_a_worker_is_told_once(key: str, value: str, connectors: tuple[dict[str, str], ...]) -> None:
    """With and without connectors: by the key as it was written, with the value that was seen."""
    found = refused({key: value}, *connectors)
    assert list(found) == ["worker"]
    assert [(finding.key, finding.value) for finding in found["worker"]] == [(key, value)]


def test_clients_rest_spark_and_connectors_are_told_of_at_once() -> None:
    """One round: a wrong key of one part hides nothing of the others."""
    worker = {
        "log.format": "xml",
        "security.protocol": "SASL_SLL",
        "consumer.security.protocol": "FOO",
        "listeners": "ftp://x",
        "spark.master": "locl[2]",
    }
    assert sorted(told_of(worker, {**FILE, "tasks.max": "0"})) == sorted(worker)
    assert "lines" in refused(worker, {**FILE, "tasks.max": "0"})


def test_what_is_missing_is_told_by_the_key_it_belongs_to() -> None:
    """Of the worker's own clients, of one role's, of one connector's."""
    assert told_of({"consumer.ssl.keystore.location": "/nowhere/keystore.jks"}) == ["consumer.ssl.keystore.type"]
    assert told_of({"security.protocol": "SASL_SSL"}) == ["sasl.jaas.config"]
    assert told_of({"admin.security.protocol": "SASL_SSL"}) == ["admin.sasl.jaas.config"]
    found = refused({}, {**FILE, "consumer.override.security.protocol": "SASL_SSL"})
    assert [finding.key for finding in found["lines"]] == ["consumer.override.sasl.jaas.config"]


def test_clients_keys_that_nothing_reads_stay_warnings() -> None:
    """Unknown ones and those without effect or fixed; what is the worker's own by that prefix is none of a client's."""
    job = make_job(
        {
            "producer.compresion.type": "lz4",
            "producer.linger.ms": "5",
            "consumer.isolation.level": "read_committed",
            "admin.listeners": "http://127.0.0.1:0",
            "admin.retriez": "1",
            "request.timeout.ms": "1000",
        },
        [FILE],
    )
    assert warnings(job) == {"producer.compresion.type", "consumer.isolation.level", "admin.retriez"}


def test_no_finding_of_a_worker_shows_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a key that is named like one, nor a value of a provider, nor a token within an address."""
    monkeypatch.setenv("HEADRACE_TEST_WRONG", "hunter2-of-the-provider")
    found = refused(
        {
            "config.providers": "env",
            "config.providers.env.class": "EnvVarConfigProvider",
            "producer.compression.type": "${env:HEADRACE_TEST_WRONG}",
            "consumer.sasl.oauthbearer.client.secret": "hunter2-of-a-client",
            "security.protocol": "SASL_SSL",
            "sasl.jaas.config": 'Plain required password="hunter2-of-jaas";',
            "spark.remote": "sc//host:15002/;token=hunter2-of-spark;user_id=me",
        }
    )
    assert {"producer.compression.type", "spark.remote"} <= {finding.key for finding in found["worker"]}
    assert "hunter2" not in repr(found)
    assert "${env:HEADRACE_TEST_WRONG}" in repr(found)


@pytest.mark.parametrize(
    "worker",
    [
        *(
            {"spark.master": text}
            for text in (
                "local", "local[1]", "local[*]", "local[2,3]", "local[*, 4]", "local-cluster[2,1,1024]", "yarn",
                "spark://one:7077,two:7077", "k8s://https://10.0.0.1:6443", "k8s://example",
            )
        ),
        *(
            {"spark.remote": text}
            for text in ("", "sc://host", "sc://host:15002", "sc://[::1]:15002/", "sc://h/;token=t;use_ssl=true")
        ),
    ],
)  # fmt: skip
def test_where_spark_can_be(worker: dict[str, str]) -> None:
    """What Spark itself takes."""
    assert make_job(worker, ()).warnings == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("spark.master", text) for text in ("", "local[]", "local[0]", "local[2", "spark://host", "k8s://", "mesos")),
        *(("spark.remote", text) for text in ("host:15002", "sc://", "sc://host:port", "sc://host/path")),
    ],
)
def test_where_spark_can_never_be(key: str, value: str) -> None:
    """Its start would be tried again for ever."""
    assert told_of({key: value}) == [key]
