"""Registry settings and subjects are those of Confluent's Avro converter."""

from __future__ import annotations

import pytest

from service.registry import RegistrySettings, SubjectStrategy

RECORD = '{"type":"record","name":"A","namespace":"x.y","fields":[]}'


def test_credentials_leave_the_url() -> None:
    """User and password in a URL are sent as such, and appear in no text."""
    settings, findings = RegistrySettings.parse(
        {"schema.registry.url": "http://us%40er:p%3Aw@a:1/, https://b/apis/v7/"}
    )
    assert findings == ()
    assert settings.urls == ("http://a:1", "https://b/apis/v7")
    assert settings.logins == (("us@er", "p:w"), None)
    assert "p:w" not in repr(settings)


def test_each_url_has_its_own_credentials() -> None:
    """As in Confluent's client: what stands in one URL is not sent to the next."""
    settings, _ = RegistrySettings.parse({"schema.registry.url": "http://u:p@a,http://b,http://v:q@c"})
    assert settings.logins == (("u", "p"), None, ("v", "q"))


def test_user_info_is_taken_when_named_as_the_source() -> None:
    """`USER_INFO` reads user and password from their own key; without a colon it is a finding, hidden."""
    base = {"schema.registry.url": "http://a", "basic.auth.credentials.source": "USER_INFO"}
    settings, findings = RegistrySettings.parse({**base, "basic.auth.user.info": "user:pass:word"})
    assert (settings.logins, findings) == ((("user", "pass:word"),), ())
    _, findings = RegistrySettings.parse({**base, "basic.auth.user.info": "hunter2"})
    assert [finding.key for finding in findings] == ["basic.auth.user.info"]
    assert "hunter2" not in repr(findings)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"schema.registry.url": "ftp://a"},
        {"schema.registry.url": "http://a", "auto.register.schemas": "maybe"},
        {"schema.registry.url": "http://a", "value.subject.name.strategy": "MyStrategy"},
    ],
)
def test_wrong_settings_are_findings(properties: dict[str, str]) -> None:
    """What is missing or not understood is said."""
    _, findings = RegistrySettings.parse(properties)
    assert len(findings) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("io.confluent.kafka.serializers.subject.TopicNameStrategy", "t-value"),
        ("RecordNameStrategy", "x.y.A"),
        ("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy", "t-x.y.A"),
    ],
)
def test_subjects_follow_the_strategy(name: str, expected: str) -> None:
    """Each strategy gives the subject that Confluent's serializers use."""
    assert SubjectStrategy.parse(name).subject("t", RECORD, is_key=False) == expected


def test_keys_have_their_own_subject_and_names_may_be_full() -> None:
    """A key's subject ends in -key; a dotted name needs no namespace; a nameless schema has no record subject."""
    assert SubjectStrategy.TOPIC.subject("t", '"string"', is_key=True) == "t-key"
    dotted = '{"type":"record","name":"q.B","namespace":"x","fields":[]}'
    assert SubjectStrategy.RECORD.subject("t", dotted, is_key=False) == "q.B"
    with pytest.raises(ValueError, match="no name"):
        SubjectStrategy.RECORD.subject("t", '"string"', is_key=False)
