"""The bytes of the config topic are Kafka Connect's, and every record comes back as it was meant."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.cluster import RestartRequest, SessionKey
from service.domain.states import TargetState
from service.stores.config_records import (
    ConfigRecord,
    ConnectorConfig,
    Deleted,
    LoggerLevel,
    PublishedKey,
    Restart,
    Target,
    TaskCommit,
    TaskConfig,
    TaskCount,
    UnreadableRecordError,
    decode,
    encode,
)

AS_CONNECT_WRITES = [
    (
        ConnectorConfig("c", {"name": "c", "connector.class": "a.B", "ä": 'q"\u2028'}),
        b"connector-c",
        '{"properties":{"name":"c","connector.class":"a.B","ä":"q\\"\u2028"}}'.encode(),
    ),
    (ConnectorConfig("c", None), b"connector-c", None),
    (Deleted("c", {"name": "c"}), b"deleted-c", b'{"properties":{"name":"c"}}'),
    (Deleted("c", None), b"deleted-c", None),
    (TaskConfig("c-1", 12, {"task.class": "a.B"}), b"task-c-1-12", b'{"properties":{"task.class":"a.B"}}'),
    (TaskCommit("c", 2), b"commit-c", b'{"tasks":2}'),
    (Target("c", TargetState.STARTED), b"target-state-c", b'{"state":"STARTED","state.v2":"STARTED"}'),
    (Target("c", TargetState.PAUSED), b"target-state-c", b'{"state":"PAUSED","state.v2":"PAUSED"}'),
    (Target("c", TargetState.STOPPED), b"target-state-c", b'{"state":"PAUSED","state.v2":"STOPPED"}'),
    (Target("c", None), b"target-state-c", None),
    (TaskCount("c", 3), b"tasks-fencing-c", b'{"task-count":3}'),
    (
        PublishedKey(SessionKey(b"\x00\x01\xff", "HmacSHA256", 1712345678901)),
        b"session-key",
        b'{"key":"AAH/","algorithm":"HmacSHA256","creation-timestamp":1712345678901}',
    ),
    (
        Restart(RestartRequest("c", is_failed_only=False, has_tasks=True)),
        b"restart-connector-c",
        b'{"include-tasks":true,"only-failed":false}',
    ),
    (LoggerLevel("org.apache", "DEBUG"), b"logger-cluster-org.apache", b'{"level":"DEBUG"}'),
]


@pytest.mark.parametrize(("record", "key", "value"), AS_CONNECT_WRITES)
def test_records_are_written_as_connect_writes_them(record: ConfigRecord, key: bytes, value: bytes | None) -> None:
    """Keys and values to the byte, in both directions."""
    assert encode(record) == (key, value)
    assert decode(key, value) == record


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
PROPERTIES = st.dictionaries(NAMES, NAMES)
COUNTS = st.integers(0, 10_000)
RECORDS: st.SearchStrategy[ConfigRecord] = st.one_of(
    st.builds(ConnectorConfig, NAMES, st.none() | PROPERTIES),
    st.builds(Deleted, NAMES, st.none() | PROPERTIES),
    st.builds(TaskConfig, NAMES, COUNTS, PROPERTIES),
    st.builds(TaskCommit, NAMES, COUNTS),
    st.builds(Target, NAMES, st.none() | st.sampled_from(TargetState)),
    st.builds(TaskCount, NAMES, COUNTS),
    st.builds(PublishedKey, st.builds(SessionKey, st.binary(), NAMES, COUNTS)),
    st.builds(Restart, st.builds(RestartRequest, NAMES, is_failed_only=st.booleans(), has_tasks=st.booleans())),
    st.builds(LoggerLevel, NAMES, NAMES),
)


@given(RECORDS)
def test_every_record_comes_back(record: ConfigRecord) -> None:
    """Names and values of any text, dashes and the words of other keys included."""
    assert decode(*encode(record)) == record


@pytest.mark.parametrize("name", ["a-1", "-", "task-x-1", "commit-y", "cluster-z"])
def test_names_that_look_like_keys_stay_names(name: str) -> None:
    """A connector may be called what it likes."""
    for record in (ConnectorConfig(name, {}), TaskConfig(name, 1, {}), TaskCommit(name, 1), Target(name, None)):
        assert decode(*encode(record)) == record


def test_state_v2_is_preferred() -> None:
    """Older workers write only ``state``; a state that is unknown in one is taken from the other."""
    key = b"target-state-c"
    assert decode(key, b'{"state":"PAUSED"}') == Target("c", TargetState.PAUSED)
    assert decode(key, b'{"state":"PAUSED","state.v2":"STOPPED"}') == Target("c", TargetState.STOPPED)
    assert decode(key, b'{"state":"PAUSED","state.v2":"SLEEPING"}') == Target("c", TargetState.PAUSED)


def test_null_properties_are_left_out() -> None:
    """Connect stores what a client sent, null included; it means: not given."""
    assert decode(b"connector-c", b'{"properties":{"a":null,"b":"1"}}') == ConnectorConfig("c", {"b": "1"})


@given(key=st.none() | st.binary() | RECORDS.map(lambda record: encode(record)[0]), value=st.none() | st.binary())
def test_anything_is_read_or_refused(key: bytes | None, value: bytes | None) -> None:
    """No bytes whatever raise anything but the one error."""
    with suppress(UnreadableRecordError):
        decode(key, value)


NOT_ASCII = '{"key":"é","algorithm":"x","creation-timestamp":1}'.encode()
DEEP = b'{"properties":' + b"[" * 100_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"session-key", NOT_ASCII),
        (b"session-key", rb'{"key":"\ud800","algorithm":"x","creation-timestamp":1}'),
        (b"task-c-" + b"9" * 5_000, b'{"properties":{}}'),
        (b"commit-c", b'{"tasks":' + b"9" * 5_000 + b"}"),
        (b"connector-c", DEEP),
        (b"target-state-c", DEEP),
    ],
)
def test_what_makes_the_parsers_raise_is_refused(key: bytes, value: bytes) -> None:
    """Base64 that is not ASCII, numbers of more digits than ``int`` takes, JSON too deep to read."""
    with pytest.raises(UnreadableRecordError):
        decode(key, value)
