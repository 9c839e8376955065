"""`contract.unknown.fields=keep`: the payload's own object, with only what the contract changes.

Fields take their Avro names, missing ones with a default get it, dates and instants become numbers, and a text that is
taken for a value of another type becomes that; everything else,
unknown fields and the digits of every number included, stays as it was written. An unknown field of the name that a
field of the contract has is refused.
"""

from __future__ import annotations

from spark_batch.avro_types import Array, JsonValue, Map, Record, Slot, Temporal
from spark_batch.exact.coercing import taken_for
from spark_batch.exact.instants import parse_instant
from spark_batch.literals.reading import Number, RejectedPayload
from spark_batch.literals.writing import json_text
from spark_batch.outcome import Reason


def is_kept_whole(record: Record) -> bool:
    """Whether every valid payload under this contract is its own kept form."""
    return all(
        field.name == field.json_name and not field.has_value_default and _is_slot_kept(field.slot)
        for field in record.fields
    )


def kept_payload(record: Record, value: JsonValue) -> bytes:
    """The kept form of a valid payload; raises RejectedPayload where an unknown field has a contract field's name.

    Going out, it would stand in that field's place or pass for it, and nobody has looked at its value.
    """
    return _record(record, value, "").encode()


def _is_slot_kept(slot: Slot) -> bool:
    kind = slot.type
    if isinstance(kind, Record):
        return is_kept_whole(kind)
    if isinstance(kind, Array):
        return _is_slot_kept(kind.items)
    if isinstance(kind, Map):
        return _is_slot_kept(kind.values)
    return slot.coercion is None and not isinstance(kind, Temporal)


def _record(record: Record, value: JsonValue, path: str) -> str:
    unknown = _unknown(record, value, path)
    texts = {}
    for field in record.fields:
        if field.json_name in value:
            texts[field.name] = _slot(field.slot, value[field.json_name], _join(path, field.json_name))
        elif field.has_value_default and field.default is not None:
            texts[field.name] = field.default
    texts |= {name: _as_written(item) for name, item in unknown.items()}
    return "{" + ",".join(f"{json_text(name)}:{text}" for name, text in texts.items()) + "}"


def _unknown(record: Record, value: JsonValue, path: str) -> dict[str, JsonValue]:
    known = {field.json_name for field in record.fields}
    unknown = {name: item for name, item in value.items() if name not in known}
    for field in record.fields:
        if field.name in unknown:
            expected = f"no field of the name that {_join(path, field.json_name)} has in the contract"
            raise RejectedPayload(Reason.UNKNOWN_FIELD, f"{_join(path, field.name)}: expected {expected}")
    return unknown


def _slot(slot: Slot, value: JsonValue, path: str) -> str:
    kind, value = slot.type, taken_for(slot, value)
    if value is None:
        return "null"
    if isinstance(kind, Record):
        return _record(kind, value, path)
    if isinstance(kind, Array):
        return f"[{','.join(_slot(kind.items, item, f'{path}[{at}]') for at, item in enumerate(value))}]"
    if isinstance(kind, Map):
        items = (f"{json_text(str(key))}:{_slot(kind.values, item, _join(path, key))}" for key, item in value.items())
        return f"{{{','.join(items)}}}"
    if isinstance(kind, Temporal):
        return str(parse_instant(kind, value, is_number=isinstance(value, Number)))
    return _as_written(value)


def _as_written(value: JsonValue) -> str:
    return json_text(value, number=str)


def _join(path: str, name: str) -> str:
    return f"{path}.{name[:100]}" if path else name[:100]
