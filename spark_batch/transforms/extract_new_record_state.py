"""`ExtractNewRecordState`: the row of a change event in place of its envelope.

Behaviour: `io.debezium.transforms.ExtractNewRecordState` 3.5, described at
https://debezium.io/documentation/reference/3.5/transformations/event-flattening.html. A change event is known by the
name of its schema, which ends with `.Envelope`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_batch.avro_types import AvroType, JsonValue, Primitive, Record
from spark_batch.outcome import Reason
from spark_batch.transforms.change import Changed, Taken
from spark_batch.transforms.connect_schema import Document
from spark_batch.transforms.envelope import (
    AFTER,
    BEFORE,
    Reference,
    as_mask,
    field_names,
    is_envelope,
    is_envelope_half,
    is_text,
    nulls_at,
    row_document,
)
from spark_batch.transforms.fields import OfFields, Opened
from spark_batch.transforms.form import (
    ExactRow,
    FormKey,
    Inapplicable,
    KeyKind,
    KeysRefused,
    KeyValues,
    Parts,
    Row,
    Side,
    Values,
)
from spark_batch.transforms.halves import (
    ArrowColumn,
    Fault,
    FaultReason,
    Faults,
    Half,
    JsonHalf,
    Mask,
    Origins,
    TypedHalf,
    Unfit,
)
from spark_batch.transforms.header_from import HeaderFrom, headers_of_fields
from spark_batch.transforms.records import HEADERS, Records, is_null, with_header
from spark_batch.transforms.shape import Misfit, Shape
from spark_batch.transforms.value_parsing import parsed_value

if TYPE_CHECKING:
    from pyspark.sql import Column

DELETED = "__deleted"
_GONE = {
    "drop.tombstones": "nothing: Debezium 3 has 'delete.tombstone.handling.mode' for it",
    "delete.handling.mode": "nothing: Debezium 3 has 'delete.tombstone.handling.mode' for it",
    "drop.fields.header.name": "nothing: lists of fields in headers are not read, ReplaceField leaves fields out",
}


@dataclass(frozen=True)
class _IsDelete:
    """Whether the operation is a delete, as a text: what stands in `__deleted`."""

    def kind(self, kind: AvroType) -> AvroType:
        """A text."""
        del kind
        return Primitive.STRING

    def column(self, kind: AvroType, value: Column) -> Changed:
        """Of a column of operations."""
        del kind
        return Changed((value == "d").cast("string"))

    def canonical(self, kind: AvroType, value: JsonValue) -> JsonValue:
        """Of one operation."""
        del kind
        return "true" if value == "d" else "false"


@dataclass(frozen=True)
class _Picked(OfFields):
    """Only some fields of the envelope, each under a name of its own."""

    references: tuple[Reference, ...] = ()

    PURPOSE: ClassVar[str] = "source field insertion"

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """Those that there are."""
        return tuple(_added(name, record, self.references))

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """An envelope has a schema."""
        raise NotImplementedError


def _added(alias: str, envelope: Record, references: Sequence[Reference]) -> Iterator[Taken]:
    for each in references:
        path = each.path(alias, envelope)
        if path is not None:
            yield Taken(each.name, path, is_optional=True, has_default=False)


@dataclass(frozen=True)
class ExtractNewRecordState(OfFields):
    """The row after the change; of a delete a tombstone, nothing, or the row before, by the mode.

    Deletes have no row after, truncations have none at all and are dropped. What is no change event stays.
    """

    mode: str = "tombstone"
    added: tuple[Reference, ...] = ()
    headers: tuple[Reference, ...] = ()
    topic_field: str | None = None
    """Field of the row whose text is the topic."""
    row: str = AFTER
    """Which row of the envelope is taken."""

    NAME: ClassVar[str] = "ExtractNewRecordState"
    PACKAGE: ClassVar[str] = "io.debezium.transforms"
    ABOUT: ClassVar[str] = "Puts the row of a change event (Debezium's envelope) in place of the event."
    PURPOSE: ClassVar[str] = "source field insertion"
    NAMING_KEY: ClassVar[str] = "add.fields"
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey(
            "delete.tombstone.handling.mode",
            "What becomes of deletes and of the tombstones behind them. ``tombstone`` and ``delete-to-tombstone``: a "
            "tombstone for each delete; ``drop``: nothing; ``rewrite``: the row before, with ``__deleted``; "
            "``rewrite-with-tombstone``: that, and the tombstone.",
            KeyKind.CHOICE,
            default="tombstone",
            choices=("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone"),
        ),
        FormKey(
            "add.fields",
            "Fields of the event to add to the row, such as ``op``, ``source.ts_ms`` or ``lsn:position``.",
            KeyKind.NAMES,
            default=(),
            is_slight=True,
        ),
        FormKey("add.fields.prefix", "Begins the names of added fields.", default="__", is_slight=True),
        FormKey(
            "add.headers",
            "Fields of the event to add to the headers; written as ``add.fields`` is.",
            KeyKind.NAMES,
            default=(),
            is_slight=True,
        ),
        FormKey("add.headers.prefix", "Begins the names of added headers.", default="__", is_slight=True),
        FormKey(
            "route.by.field",
            "Field of the row, of type string, whose value is the record's topic. For sinks.",
            KeyKind.FILLED,
            is_slight=True,
        ),
        FormKey(
            "replace.null.with.default",
            "Whether a field that is null is read as its default where rows are rewritten.",
            KeyKind.BOOLEAN,
            default=True,
            is_slight=True,
        ),
        *(FormKey(name, f"Refused; expected {expected}.", is_slight=True) for name, expected in _GONE.items()),
    )

    @classmethod
    def configured(cls, values: KeyValues) -> ExtractNewRecordState:
        """Refuses the keys of Debezium before 3, and references that are none."""
        gone = [(name, expected) for name, expected in _GONE.items() if values[name] is not None]
        if gone:
            raise KeysRefused(*gone)
        found: dict[str, tuple[Reference, ...]] = {}
        for key in ("add.fields", "add.headers"):
            try:
                found[key] = tuple(Reference.read(text, values[f"{key}.prefix"] or "") for text in values[key])
            except ValueError as error:
                raise KeysRefused((key, "names of fields, such as op,source.ts_ms,lsn:position")) from error
        mode = values["delete.tombstone.handling.mode"]
        is_defaulted = bool(values["replace.null.with.default"]) and mode.startswith("rewrite")
        return cls(Side.VALUE, is_defaulted, mode, found["add.fields"], found["add.headers"], values["route.by.field"])

    @property
    def is_rewriting(self) -> bool:
        """Whether deletes are rows too."""
        return self.mode.startswith("rewrite")

    @property
    def makes_tombstones(self) -> bool:
        """Whether a delete becomes a tombstone."""
        return self.mode.endswith("tombstone") and not self.is_rewriting

    @property
    def is_dropping_tombstones(self) -> bool:
        """Whether the tombstones that come behind deletes are dropped."""
        return self.mode != "rewrite-with-tombstone"

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """The row's fields, then `__deleted` and what is added."""
        row, operation = record.field(self.row), record.field("op")
        if row is None or operation is None or not isinstance(row.slot.type, Record):
            raise Misfit(f"transforms.{name}.type", record.name, "a change event with before, after and op")
        found = [
            Taken(field.name, (self.row, field.name), is_optional=field.slot.is_nullable)
            for field in row.slot.type.fields
        ]
        if self.is_rewriting:
            found.append(Taken(DELETED, ("op",), _IsDelete(), is_optional=True, has_default=False))
        return (*found, *_added(name, record, self.added))

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """Without a schema nothing is known to be a change event."""
        del value_of
        return dict(fields)

    def renamed(self, record: Record, document: Document) -> tuple[str, Document]:
        """As the row is named."""
        row = record.field(self.row)
        assert row is not None  # noqa: S101 - told to the type checker: `taken` has looked
        assert isinstance(row.slot.type, Record)  # noqa: S101 - told to the type checker
        branch = row_document(document)
        kept = {key: item for key, item in branch.items() if key not in {"fields", "namespace"}}
        return row.slot.type.name, {**kept, "name": row.slot.type.name}

    def renamed_document(self, document: Document) -> Document:
        """What is kept of the row's Connect schema."""
        row = next(field for field in document["fields"] if field["field"] == self.row)
        return super().renamed_document(row)

    def reshaped(self, name: str, shape: Shape) -> Shape:
        """The row's record, where it is one of a change event."""
        if shape.record is None or not is_envelope(shape.record):
            return shape
        after = super().reshaped(name, shape)
        row = shape.record.field(self.row)
        assert row is not None  # noqa: S101 - told to the type checker: `taken` has looked
        own = cast("Record", row.slot.type)
        made = replace(cast("Record", after.slot.type), connect=own.connect, doc=own.doc)
        return replace(after, slot=replace(after.slot, type=made))

    def column(self, shape: Shape, value: Values, row: Row) -> Values:
        """The columns of the row, null where a delete leaves none."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        record = shape.record
        if record is None or not is_envelope(record):
            return value
        columns = {field.name: value.getField(field.name) for field in record.fields}
        if self.is_rewriting:
            columns[AFTER] = F.coalesce(columns[AFTER], columns[BEFORE])
        return super().column(shape, Parts(columns, value.isNotNull() & columns[AFTER].isNotNull()), row)

    def proof(self, shape: Shape, value: Values) -> None:
        """Nothing is left to prove."""

    def canonical(self, shape: Shape, value: JsonValue, row: ExactRow) -> JsonValue:
        """The row of one event; None of a delete."""
        if value is None or not is_envelope(shape.record):
            return value
        found = value[AFTER]
        if found is None and self.is_rewriting:
            found = value[BEFORE]
        return None if found is None else super().canonical(shape, {**value, AFTER: found}, row)

    def exact(self, name: str, topic: str, value: JsonValue) -> JsonValue:
        """JSON without a contract is no change event."""
        del topic, value
        raise Inapplicable(Reason.WRONG_TYPE, f"transformation {name}: expected a change event")

    def dropped(self, rows: ArrowColumn, record: Record | None) -> Mask:
        """Of a source's rows, those that are dropped: truncations, and deletes by the mode."""
        if not is_envelope(record):
            return np.zeros(len(rows), dtype=bool)
        whole: Any = rows
        is_gone: Any = whole.field(AFTER).is_null()
        if self.mode != "drop":
            is_gone = pc.and_(is_gone, whole.field(BEFORE).is_null())
        return as_mask(pc.and_(whole.is_valid(), is_gone))

    def event_headers(self, events: ArrowColumn, shape: Shape) -> list[list[tuple[str, bytes | None]]]:
        """What is added to the headers of each of a source's records: of rows of one schema, or of tombstones.

        Only where `headers` is not empty. Raises Unfit.
        """
        count = len(events)
        nothing: Any = pa.nulls(count, pa.int64())
        half = TypedHalf(events, shape, is_record=True)
        records = Records(np.arange(count), "", {Side.VALUE: half}, cast("ArrowColumn", pa.nulls(count, HEADERS)))
        nulls = is_null(half)
        found: list[list[tuple[str, bytes | None]]] = [[] for _ in range(count)]
        parts = [self._tombstones(records.taken(nulls))] if nulls.any() else []
        if not nulls.all() and is_envelope_half(half):
            rows = records.taken(~nulls)
            parts.append(self._with_headers(rows, rows.halves[Side.VALUE], Origins("", nothing, nothing, nothing)))
        for part in parts:
            for row, own in zip(part.rows, part.headers.to_pylist(), strict=True):
                found[row] = [(each["name"], each["value"]) for each in own or ()]
        return found

    def of_records(self, records: Records, origins: Origins) -> tuple[Sequence[Records], Faults]:
        """Tombstones, rows, deletes as the mode has them, and what is no change event. Raises Unfit."""
        nulls = is_null(records.halves[Side.VALUE])
        found = [] if self.is_dropping_tombstones or not nulls.any() else [self._tombstones(records.taken(nulls))]
        if nulls.all():
            return found, {}
        events = records.taken(~nulls)
        faults: dict[int, Fault] = {}
        for rows, parts, wrong in self._of_events(events, origins):
            found += parts
            faults |= {int(np.flatnonzero(~nulls)[rows[row]]): fault for row, fault in wrong.items()}
        return found, faults

    def _tombstones(self, records: Records) -> Records:
        for each in self.headers:
            if each.field == "op":
                operation = pa.repeat(pa.scalar(b"d", pa.binary()), len(records.rows))
                made: Any = pa.repeat(pa.scalar(parsed_value("d").envelope, pa.string()), len(records.rows))
                headers = with_header(records.headers, each.name, cast("ArrowColumn", operation), made)
                records = replace(records, headers=headers)
        return records

    def _of_events(self, records: Records, origins: Origins) -> Iterator[tuple[np.ndarray, list[Records], Faults]]:
        """Parts that are dealt with alike: their rows, what becomes of them, and what is refused by its row."""
        half = records.halves[Side.VALUE]
        if not is_envelope_half(half):
            yield np.arange(len(records.rows)), [records], {}
            return
        is_rowless, is_empty = nulls_at(half, AFTER), nulls_at(half, BEFORE)
        is_deleted = is_rowless & ~is_empty
        for mask, row in ((~is_rowless, AFTER), (is_deleted, BEFORE)):
            if not mask.any() or (row == BEFORE and self.mode == "drop"):
                continue
            form = replace(self, row=row)
            parts, faults = form._of_rows(records.taken(mask), origins)  # noqa: SLF001 - another of its own
            yield np.flatnonzero(mask), parts, faults

    def _of_rows(self, records: Records, origins: Origins) -> tuple[list[Records], Faults]:
        """Of events that all have the row that is taken."""
        event = records.halves[Side.VALUE]
        after, faults = self._applied(self, event, origins)
        if self.headers:
            records = self._with_headers(records, event, origins)
        parts = [records.with_half(Side.VALUE, after)]
        if self.row == BEFORE and not self.is_rewriting:
            nothing = JsonHalf(pa.nulls(len(records.rows), pa.string()), has_type=False)
            parts, faults = [records.with_half(Side.VALUE, nothing)], {}
        if self.topic_field is not None:
            parts, wrong = self._routed(parts[0], event, origins)
            faults = {**faults, **wrong}
        return parts, faults

    @staticmethod
    def _applied(form: OfFields, half: Half, origins: Origins) -> tuple[Half, Faults]:
        return form.of_texts(half, origins) if isinstance(half, JsonHalf) else form.of_columns(half, origins)

    def _with_headers(self, records: Records, event: Half, origins: Origins) -> Records:
        picked, _ = self._applied(_Picked(Side.VALUE, False, self.headers), event, origins)  # noqa: FBT003 - its default
        names = tuple(each.name for each in self.headers if each.name in field_names(picked))
        header_from = HeaderFrom(Side.VALUE, names, names, is_moved=False, is_null_defaulted=False)
        made, _ = header_from.of_records(records.with_half(Side.VALUE, picked), origins)
        return replace(records, headers=made[0].headers) if names else records

    def _routed(self, records: Records, event: Half, origins: Origins) -> tuple[list[Records], Faults]:
        """By the text of a field of the row; a text that is blank or null routes nowhere."""
        name = str(self.topic_field)
        row, _ = self._applied(_Picked(Side.VALUE, False, (Reference(self.row, name, name),)), event, origins)  # noqa: FBT003
        if name not in field_names(row):
            raise Unfit(Fault(FaultReason.MISSING_FIELD, f"{name[:200]} is not a valid field name"))
        if not is_text(row):
            raise Unfit(Fault(FaultReason.WRONG_TYPE, f"Field '{name[:200]}' is not of type STRING"))
        made = headers_of_fields(row, (name,), {}, is_told=False)[name]
        texts = made.texts.cast(pa.string()).to_pylist()
        topics = [text if text is not None and text.strip() else records.topic for text in texts]
        marks = np.array(topics, dtype=object)
        return [replace(records.taken(marks == topic), topic=topic) for topic in dict.fromkeys(topics)], {}
