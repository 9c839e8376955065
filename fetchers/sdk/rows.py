"""Rows that are typed already: the schema of a typed page, and the forms of types that it is put together from.

A row of a database needs no JSON: a page holds its rows as one Arrow struct column, and a ``RowSchema`` says in Avro's
words what the columns are, with Kafka Connect's names and logical types in the attributes that Confluent's Avro
converter writes (``connect.name``, ``connect.version``, ``connect.parameters``, ``connect.type``, ``connect.doc``;
``AvroData`` of ``kafka-connect-avro-data``). Every converter writes a row from this one schema.
"""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

Form: TypeAlias = Any
"""An Avro type as a JSON document: ``"long"``, ``{"type": "array", …}``, ``["null", "string"]``."""

INT8: Final[Form] = {"type": "int", "connect.type": "int8"}
INT16: Final[Form] = {"type": "int", "connect.type": "int16"}
INT32, INT64, FLOAT32, FLOAT64 = "int", "long", "float", "double"
BOOLEAN, STRING, BYTES = "boolean", "string", "bytes"
_CONNECT = "org.apache.kafka.connect.data"
DECIMAL_PRECISION_MAX = 76
"""Digits of Arrow's widest decimal."""
_STRANGE = re.compile(r"[^A-Za-z0-9_]")


def _logical(base: str, logical: str, name: str | None = None) -> Form:
    named = {"connect.version": 1, "connect.name": f"{_CONNECT}.{name}"} if name else {}
    return {"type": base, **named, "logicalType": logical}


DATE: Final[Form] = _logical("int", "date", "Date")
"""Connect's Date: days since 1970-01-01."""
TIME: Final[Form] = _logical("int", "time-millis", "Time")
"""Connect's Time: milliseconds since midnight."""
TIMESTAMP: Final[Form] = _logical("long", "timestamp-millis", "Timestamp")
"""Connect's Timestamp: milliseconds since the epoch, UTC."""
TIME_MICROS: Final[Form] = _logical("long", "time-micros")
TIMESTAMP_MICROS: Final[Form] = _logical("long", "timestamp-micros")
"""Microseconds since the epoch, UTC; Connect has no logical type of that precision, and writes a plain int64."""


def decimal(precision: int, scale: int) -> Form:
    """Connect's Decimal; ``precision`` up to 76 digits, beyond 38 from a ``decimal256`` column."""
    if not 1 <= precision <= DECIMAL_PRECISION_MAX or not 0 <= scale <= precision:
        message = f"a decimal has 1 to {DECIMAL_PRECISION_MAX} digits and at most as many behind its point"
        raise ValueError(message)
    return {
        "type": "bytes",
        "scale": scale,
        "precision": precision,
        "connect.version": 1,
        "connect.parameters": {"scale": str(scale), "connect.decimal.precision": str(precision)},
        "connect.name": f"{_CONNECT}.Decimal",
        "logicalType": "decimal",
    }


def named(name: str, form: Form, *, version: int = 1, parameters: Mapping[str, str] | None = None) -> Form:
    """``form`` under a name of Connect's data model, such as ``io.debezium.time.MicroTimestamp`` for ``INT64``."""
    document = dict(form) if isinstance(form, Mapping) else {"type": form}
    own = {"connect.version": version, "connect.name": name}
    return {**document, **own, **({"connect.parameters": dict(parameters)} if parameters else {})}


def optional(form: Form) -> Form:
    """``form``, or null."""
    return ["null", form]


def array(items: Form) -> Form:
    """A list of ``items``, which may be ``optional``."""
    return {"type": "array", "items": items}


def map_of(values: Form) -> Form:
    """A map from texts to ``values``, which may be ``optional``."""
    return {"type": "map", "values": values}


def struct(name: str, fields: Mapping[str, Form], *, version: int | None = None, doc: str | None = None) -> Form:
    """A record of Connect's name ``name`` with these fields, in their order.

    Avro allows letters, digits and underscores in names: others become underscores in the names that Avro sees
    (``json.name`` keeps the column's own, ``connect.name`` the record's). A field that may be null has the default
    null. Raises ``ValueError`` where two fields become one.
    """
    entries = [_field(own, form) for own, form in fields.items()]
    names = [entry["name"] for entry in entries]
    if len(set(names)) < len(names) or not names:
        message = f"a record has fields, each with a name of its own in Avro, but {name} has {list(fields)}"
        raise ValueError(message)
    namespace, _, simple = name.rpartition(".")
    spaces = ".".join(map(_avro_name, namespace.split("."))) if namespace else ""
    return {
        "type": "record",
        "name": _avro_name(simple),
        **({"namespace": spaces} if spaces else {}),
        "fields": entries,
        **({"connect.doc": doc} if doc is not None else {}),
        **({"connect.version": version} if version is not None else {}),
        "connect.name": name,
    }


def _field(own: str, form: Form) -> dict[str, Form]:
    name = _avro_name(own)
    renamed = {} if name == own else {"json.name": own}
    is_optional = isinstance(form, list) and form[0] == "null"
    return {"name": name, "type": form, **({"default": None} if is_optional else {}), **renamed}


def _defined_once(form: Form, known: dict[str, Form]) -> Form:
    """``form`` with names for records that ``known`` has; one without a namespace is not the same everywhere."""
    if isinstance(form, list):
        return [_defined_once(item, known) for item in form]
    if not isinstance(form, Mapping):
        return form
    made = {key: _defined_once(form[key], known) for key in ("type", "items", "values") if key in form}
    if form["type"] != "record":
        return {**form, **made}
    name = f"{form['namespace']}.{form['name']}" if "namespace" in form else ""
    if name and known.get(name) == form:
        return name
    known.setdefault(name, form)
    return {**form, "fields": [{**entry, "type": _defined_once(entry["type"], known)} for entry in form["fields"]]}


def _avro_name(name: str) -> str:
    made = _STRANGE.sub("_", name)
    return made if made and not made[0].isdigit() else f"_{made}"


@dataclass(frozen=True)
class RowSchema:
    """What the rows of a page are: an Avro record as text, which is read once and is also what plans are known by.

    Make one for each table and each state of its columns, and use that object for all of its pages. The record's name
    is the struct's name in Connect, by custom that of the table. ``RowSchema.of`` writes the text; any other way to a
    schema will do too. Raises ``ValueError`` where the text is no Avro record; which of its types can be converted is
    told by the worker before the first row of the schema.
    """

    avro: str
    """The record's schema; as text, so that equal schemas are equal."""
    name: str = field(init=False, compare=False, repr=False)
    """Connect's name of the struct, or Avro's where that is not given."""
    columns: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """Names of the Arrow columns, in the order of the fields: ``json.name`` where a field has one, else its name."""

    def __post_init__(self) -> None:
        """Read the text."""
        document: Any = self.document
        is_record = isinstance(document, dict) and document.get("type") == "record" and document.get("fields")
        if not is_record or not isinstance(document.get("name"), str):
            message = "the schema of rows is expected to be an Avro record with a name and fields"
            raise ValueError(message)
        own, space = document["name"], document.get("namespace")
        name = document.get("connect.name") or (f"{space}.{own}" if space and "." not in own else own)
        names = tuple(sys.intern(str(entry.get("json.name", entry["name"]))) for entry in document["fields"])
        object.__setattr__(self, "name", str(name))
        object.__setattr__(self, "columns", names)

    @classmethod
    def of(
        cls, name: str, fields: Mapping[str, Form], *, version: int | None = None, doc: str | None = None
    ) -> RowSchema:
        """The schema of a struct; see ``struct`` for names, and this module for the forms of fields.

        A struct that several fields have is defined in the first of them, and named in the others, as Avro wants it.
        """
        made = _defined_once(struct(name, fields, version=version, doc=doc), {})
        return cls(json.dumps(made, separators=(",", ":")))

    @property
    def document(self) -> dict[str, Any]:
        """``avro``, read anew at each call: kept, it would take six times as much memory as the text."""
        document: dict[str, Any] = json.loads(self.avro)
        return document

    def column(self, values: object, *, what: str) -> pa.StructArray:
        """``values`` (a struct array, a record batch or a table) as one array; raises ``ValueError``, ``TypeError``.

        ``what``: how an error names them.
        """
        if isinstance(values, pa.Table):
            values = values.to_struct_array()
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, pa.RecordBatch):
            values = values.to_struct_array()
        if not isinstance(values, pa.StructArray):
            message = f"{what} of the schema {self.name} are expected as an Arrow struct column"
            raise TypeError(message)
        kind: Any = values.type
        found = [kind.field(at).name for at in range(kind.num_fields)]
        if sorted(found) != sorted(self.columns):
            missing = [name for name in self.columns if name not in found]
            more = [name for name in found if name not in self.columns]
            message = f"{what} are not of their schema {self.name}: missing columns {missing}, unknown columns {more}"
            raise ValueError(message)
        return values


def row_json(row: pa.StructScalar) -> bytes | None:
    """A row as JSON, which stands for its original bytes in dead letters and tests; None for a tombstone.

    One object with the columns in their order. Numbers have all their digits, a decimal those of its scale; what JSON
    has no number for is the text ``NaN``, ``Infinity`` or ``-Infinity``. Bytes are base64. Dates, times and timestamps
    are ISO 8601, with a ``Z`` where they are of UTC; where the year has not four digits they are the number that the
    column holds. A map is an object.
    """
    return _json(row).encode("utf-8", errors="backslashreplace") if row.is_valid else None


def _json(value: Any) -> str:  # noqa: PLR0911 - one line a type
    if not value.is_valid:
        return "null"
    kind = value.type
    if pa.types.is_dictionary(kind):
        return _json(value.value)
    if pa.types.is_map(kind):
        entries = value.values
        keys, items = entries.field(0), entries.field(1)
        return f"{{{','.join(f'{_text(keys[at].as_py())}:{_json(items[at])}' for at in range(len(entries)))}}}"
    if pa.types.is_struct(kind):
        return f"{{{','.join(f'{_text(kind.field(at).name)}:{_json(value[at])}' for at in range(kind.num_fields))}}}"
    if pa.types.is_nested(kind):
        return f"[{','.join(_json(item) for item in value.values)}]"
    if pa.types.is_temporal(kind):
        return _instant(value)
    plain = value.as_py()
    if isinstance(plain, bytes):
        return _text(base64.b64encode(plain).decode())
    if isinstance(plain, float) and not math.isfinite(plain):
        return '"NaN"' if math.isnan(plain) else '"Infinity"' if plain > 0 else '"-Infinity"'
    if isinstance(plain, str):
        return _text(plain)
    return f"{plain:f}" if pa.types.is_decimal(kind) else json.dumps(plain)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


_ISO = re.compile(r"(?:[0-9]{4}-[0-9]{2}-[0-9]{2})?[ T]?(?:[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)?Z?")


def _instant(value: Any) -> str:
    """By Arrow's own writer, which says of years that it cannot write that they are out of range."""
    kind = value.type
    if pa.types.is_timestamp(kind) and kind.tz not in (None, "UTC"):
        value = value.cast(pa.timestamp(kind.unit, "UTC"))
    if not (pa.types.is_duration(kind) or pa.types.is_interval(kind)):
        text = value.cast(pa.string()).as_py()
        if _ISO.fullmatch(text):
            return _text(text.replace(" ", "T"))
        return str(value.value)
    return _text(str(value.as_py()))
