"""The bytes of the status topic are Kafka Connect's, and every record comes back as it was meant."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.domain.cluster import InstanceStatus
from service.domain.ids import ConnectorId, TaskId
from service.domain.states import State
from service.stores.config_records import UnreadableRecordError
from service.stores.status_records import StatusKey, TopicKey, TopicUse, decode, encode

RUNNING = InstanceStatus(State.RUNNING, "host:8083", 4, None, "4.1.1")
SHOWN = b'{"state":"RUNNING","trace":null,"worker_id":"host:8083","generation":4,"version":"4.1.1"}'
USED = b'{"topic":{"name":"t","connector":"c","task":0,"discoverTimestamp":1712345678901}}'

AS_CONNECT_WRITES = [
    (ConnectorId("c"), RUNNING, b"status-connector-c", SHOWN),
    (TaskId("a-b", 12), RUNNING, b"status-task-a-b-12", SHOWN),
    (TopicKey("c", "t"), TopicUse("t", "c", 0, 1712345678901), b"status-topic-t:connector-c", USED),
    (TaskId("c", 0), None, b"status-task-c-0", None),
]


@pytest.mark.parametrize(("key", "told", "key_bytes", "value"), AS_CONNECT_WRITES)
def test_records_are_written_as_connect_writes_them(
    key: StatusKey, told: InstanceStatus | TopicUse | None, key_bytes: bytes, value: bytes | None
) -> None:
    """Keys and values to the byte, in both directions."""
    assert encode(key, told) == (key_bytes, value)
    assert decode(key_bytes, value) == (key, told)


def test_what_older_workers_write_is_read() -> None:
    """Before 4.1 there is no version; a destroyed instance is gone."""
    older = b'{"state":"FAILED","trace":"x","worker_id":"h:1","generation":2}'
    assert decode(b"status-connector-c", older) == (ConnectorId("c"), InstanceStatus(State.FAILED, "h:1", 2, "x"))
    assert decode(b"status-connector-c", b'{"state":"DESTROYED","worker_id":"h","generation":1}')[1] is None


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
TOPICS = st.text("abc.-_0", min_size=1)
KEYS: st.SearchStrategy[StatusKey] = st.one_of(
    st.builds(ConnectorId, NAMES), st.builds(TaskId, NAMES, st.integers(0, 10_000)), st.builds(TopicKey, NAMES, TOPICS)
)
STATUSES = st.builds(
    InstanceStatus, st.sampled_from(State), NAMES, st.integers(-1, 2**31), st.none() | NAMES, st.none() | NAMES
)


@given(KEYS, STATUSES)
def test_every_record_comes_back(key: StatusKey, status: InstanceStatus) -> None:
    """Names of any text, dashes and colons included."""
    use = TopicUse(key.topic, key.connector, 0, 5) if isinstance(key, TopicKey) else status
    assert decode(*encode(key, use)) == (key, use)
    assert decode(*encode(key, None)) == (key, None)


@given(key=st.none() | st.binary() | KEYS.map(lambda key: encode(key, None)[0]), value=st.none() | st.binary())
def test_anything_is_read_or_refused(key: bytes | None, value: bytes | None) -> None:
    """No bytes whatever raise anything but the one error."""
    with suppress(UnreadableRecordError):
        decode(key, value)


DIGITS = b"9" * 5_000


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"status-task-c-" + DIGITS, SHOWN),
        (b"status-task-c-" + DIGITS, None),
        (b"status-connector-c", SHOWN.replace(b"4", DIGITS)),
        (b"status-connector-c", b"[" * 100_000),
    ],
)
def test_what_makes_the_parsers_raise_is_refused(key: bytes, value: bytes | None) -> None:
    """Numbers of more digits than ``int`` takes, JSON too deep to read."""
    with pytest.raises(UnreadableRecordError):
        decode(key, value)
