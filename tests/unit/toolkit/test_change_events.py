"""Envelopes, keys and tombstones of changes, made of whole columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from fetchers.sdk import Page
from fetchers.sdk import rows as forms
from fetchers.toolkit.change_events import Changes, ChangeTable
from fetchers.toolkit.change_form import ChangeForm, operation_codes
from spark_batch.avro_schema import parse_schema

ROW = pa.struct([("id", pa.int64()), ("name", pa.string())])
COLUMNS = {"id": forms.INT64, "name": forms.optional(forms.STRING)}
OWN = {"schema": forms.STRING, "table": forms.STRING, "lsn": forms.optional(forms.INT64)}


def table(keys: Sequence[str] = ("id",), **changed: Any) -> ChangeTable:
    """A table of two columns, in an envelope or as it is told."""
    form = ChangeForm("srv", "postgresql", "shop", OWN, **changed)
    return ChangeTable(form, ("public", "users"), COLUMNS, keys)


def page_of(to: ChangeTable, *events: tuple[str, Any, Any]) -> Page:
    """Events as operation, and the two columns before and after."""
    before: list[Any] = [old if old is None else {"id": old[0], "name": old[1]} for _, old, _ in events]
    after: list[Any] = [new if new is None else {"id": new[0], "name": new[1]} for _, _, new in events]
    changes = Changes(
        np.frombuffer("".join(operation for operation, _, _ in events).encode(), np.uint8),
        pa.array(before, ROW),
        pa.array(after, ROW),
        pa.array([1_700_000_000_123_456 + at for at in range(len(events))], pa.int64()),
        {"schema": "public", "table": "users", "lsn": pa.array(range(len(events)), pa.int64())},
    )
    return to.page(changes, handled_us=1_700_000_001_000_001, offset={"lsn": 9}, partition={"server": "srv"})


def records(page: Page) -> list[tuple[Any, Any]]:
    """Keys and values, read from their JSON."""
    found = []
    for at in range(len(page)):
        key, value = page.original(at)
        found.append((key and json.loads(key), value and json.loads(value)))
    return found


def told(page: Page) -> list[Any]:
    """Key's id, and of each value its operation, and the ids before and after."""
    return [
        (
            key and key["id"],
            value and (value["op"], *((value[side] or {}).get("id") for side in ("before", "after"))),
        )
        for key, value in records(page)
    ]


def test_a_changed_key_is_a_delete_a_tombstone_and_a_create_with_the_other_keys_in_headers() -> None:
    """Also between others, whose order stays."""
    page = page_of(table(), ("c", None, (1, "a")), ("u", (1, "a"), (2, "b")), ("d", (2, "b"), None))
    assert told(page) == [
        (1, ("c", None, 1)),
        (1, ("d", 1, None)),
        (1, None),
        (2, ("c", None, 2)),
        (2, ("d", 2, None)),
        (2, None),
    ]
    assert page.headers == [
        (),
        (("__debezium.newkey", b'{"id":2}'),),
        (("__debezium.newkey", b'{"id":2}'),),
        (("__debezium.oldkey", b'{"id":1}'),),
        (),
        (),
    ]


def test_operations_that_are_skipped_are_so_in_changed_keys_too() -> None:
    """Without deletes a changed key is a create, without creates a delete and its tombstone."""
    moved = ("u", (1, "a"), (2, "b"))
    created = page_of(table(skipped=operation_codes(["d"])), ("c", None, (1, "a")), moved)
    assert told(created) == [(1, ("c", None, 1)), (2, ("c", None, 2))]
    assert created.headers == [(), (("__debezium.oldkey", b'{"id":1}'),)]
    assert told(page_of(table(skipped=operation_codes(["c"])), moved)) == [(1, ("d", 1, None)), (1, None)]


def test_the_envelope_has_debeziums_fields() -> None:
    """Times in three units, the source's own fields behind the common ones."""
    ((key, value),) = records(page_of(table(), ("u", (1, "a"), (1, "ü"))))
    assert key == {"id": 1}
    assert value == {
        "before": {"id": 1, "name": "a"},
        "after": {"id": 1, "name": "ü"},
        "source": {
            "version": "0.1.0",
            "connector": "postgresql",
            "name": "srv",
            "ts_ms": 1_700_000_000_123,
            "snapshot": "false",
            "db": "shop",
            "sequence": None,
            "ts_us": 1_700_000_000_123_456,
            "ts_ns": 1_700_000_000_123_456_000,
            "schema": "public",
            "table": "users",
            "lsn": 0,
        },
        "transaction": None,
        "op": "u",
        "ts_ms": 1_700_000_001_000,
        "ts_us": 1_700_000_001_000_001,
        "ts_ns": 1_700_000_001_000_001_000,
    }


def test_the_schema_is_one_that_can_be_converted_and_carries_debeziums_names() -> None:
    """The row's record is written once, and used again by its name."""
    made = table()
    assert made.topic == "srv.public.users"
    assert made.schema.name == "srv.public.users.Envelope"
    assert made.key_schema is not None
    assert made.key_schema.name == "srv.public.users.Key"
    assert made.schema.document["fields"][1]["type"] == ["null", "srv.public.users.Value"]
    assert not parse_schema(made.schema.avro).findings


def test_truncate_is_skipped_unless_it_is_wanted() -> None:
    """As Debezium's default has it; its key is null."""
    event = ("t", None, None)
    assert len(page_of(table(), event)) == 0
    assert told(page_of(table(skipped=operation_codes(["none"])), event)) == [(None, ("t", None, None))]


def test_skipped_operations_take_their_tombstones_with_them() -> None:
    """Rows of the columns besides stay those of their changes."""
    page = page_of(table(skipped=operation_codes(["d", "t"])), ("d", (1, "a"), None), ("c", None, (2, "b")))
    assert told(page) == [(2, ("c", None, 2))]
    assert records(page)[0][1]["source"]["lsn"] == 1


def test_a_table_without_a_key_has_no_tombstones() -> None:
    """Nor can it tell a changed key."""
    page = page_of(table(keys=()), ("d", (1, "a"), None), ("u", (1, "a"), (2, "a")))
    assert page.keys is None
    assert told(page) == [(None, ("d", 1, None)), (None, ("u", 1, 2))]


def test_tombstones_can_be_left_out() -> None:
    """``tombstones.on.delete=false``: a changed key is two events then."""
    page = page_of(table(has_tombstones=False), ("d", (1, "a"), None), ("u", (1, "a"), (2, "a")))
    assert told(page) == [(1, ("d", 1, None)), (1, ("d", 1, None)), (2, ("c", None, 2))]


def test_flattened_rows_say_whether_they_are_deleted() -> None:
    """The row before where it is gone, and its tombstone."""
    page = page_of(table(is_flattened=True), ("c", None, (1, "a")), ("d", (1, None), None), ("t", None, None))
    assert records(page) == [
        ({"id": 1}, {"id": 1, "name": "a", "__deleted": "false"}),
        ({"id": 1}, {"id": 1, "name": None, "__deleted": "true"}),
        ({"id": 1}, None),
    ]


def test_a_wrong_value_rejects_its_events_and_not_its_tombstones() -> None:
    """At their places after others were skipped and others became two."""
    made = table()
    rows = pa.array([{"id": at, "name": None} for at in range(3)], ROW)
    no_rows: Any = pa.nulls(3, ROW)
    operations = np.frombuffer(b"tdd", np.uint8)
    page = made.page(
        Changes(operations, rows, no_rows, 5, {"schema": "s", "table": "t"}, {0: "skipped", 2: "odd"}),
        handled_us=1,
        offset={},
        partition={},
    )
    assert [(found.index, found.message) for found in page.rejections] == [(2, 'public.users, key {"id":2}: odd')]


def test_an_empty_page_moves_the_offset() -> None:
    """Of no changes at all."""
    page = page_of(table())
    assert (len(page), page.offset) == (0, {"lsn": 9})


@given(st.lists(st.tuples(st.sampled_from("cud"), st.integers(0, 4), st.integers(0, 4)), max_size=30))
def test_the_state_of_a_compacted_topic_is_that_of_the_events(events: list[tuple[str, int, int]]) -> None:
    """Whatever comes after whatever: the last record of each key says whether, and how, its row is there."""
    state: dict[int, str] = {}
    changes = []
    for at, (operation, old, new) in enumerate(events):
        before, after = (old, state.get(old)), (new, f"v{at}")
        if operation != "c":
            state.pop(old, None)
        if operation != "d":
            state[new] = f"v{at}"
        changes.append((operation, None if operation == "c" else before, None if operation == "d" else after))
    compacted = {key["id"]: value for key, value in records(page_of(table(), *changes))}
    assert {key: value["after"]["name"] for key, value in compacted.items() if value is not None} == state


def test_heartbeats_have_their_topic() -> None:
    """As Debezium names it."""
    form = table().form
    page = form.heartbeat(5_000, offset={}, partition={}, topic_prefix="__debezium-heartbeat")
    assert page.topic == "__debezium-heartbeat.srv"
    assert records(page) == [({"serverName": "srv"}, {"ts_ms": 5})]
