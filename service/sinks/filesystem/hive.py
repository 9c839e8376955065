"""Statements for Hive, written beside the files: they make a table of each topic, in Hive's catalogue or in Spark's.

One file is one fact, named after it and made once, by whichever task is first: the table, a column that was added, a
folder. Statements are written before the files that need them. In the order of their names they make the table from
nothing; each new one is to be run once. No metastore is spoken to.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa

from service.sinks.batch import RefusalReason
from service.sinks.contract import Fatal
from service.sinks.filesystem.config import FileSystemSinkConfig
from service.sinks.filesystem.stores import Store
from service.sinks.shapes import Shape, ShapeError

T = TypeVar("T")
_TYPES: dict[Any, str] = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.time32("ms"): "INT",
    pa.time64("us"): "BIGINT",
}
_NO_NAME = re.compile(r"[^A-Za-z0-9_]")
_COLUMN = re.compile(r"^  `((?:[^`]|``)+)` ", re.MULTILINE)
_PLAIN = re.compile(r"[A-Za-z0-9_=.-]{1,100}")


@dataclass(slots=True)
class HiveStatements:
    """What one task tells of the files of one partition of a topic.

    Raises OSError as its store does, and Fatal where the table's name is that of another topic's already.
    """

    store: Store
    config: FileSystemSinkConfig
    told_max: int
    """How many statements, and how many tables, are remembered, those of late: as many as one commit may need, or its
    statements would all be asked for again by the next. One that is forgotten is asked for again, and is there."""
    note_progress: Callable[[], None]
    """Called after each statement that was asked for."""
    _told: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _first: OrderedDict[str, frozenset[str]] = field(default_factory=OrderedDict)
    """By topic."""

    def tell(self, folders: Iterable[str], shape: Shape) -> None:
        """Write the statements that files of these folders need and that nobody has written yet."""
        for folder in folders:
            topic, _, encoded = folder.partition("/")
            pairs = [(name, unquote(value)) for name, _, value in (part.partition("=") for part in encoded.split("/"))]
            columns = columns_of(shape, without=[name for name, _ in pairs])
            table = self._table(topic)
            begun = self._begun(topic, columns, [name for name, _ in pairs])
            for name in sorted(columns.keys() - self._first_columns(topic, begun)):
                added = f"ALTER TABLE {table} ADD COLUMNS ({_quoted(name)} {columns[name]})"
                self._write(topic, f"2-column-{_file_name(name)}", added)
            chosen = ", ".join(f"{_quoted(name)}={_text(value)}" for name, value in pairs)
            place = _text(f"{self.config.url}/{self.config.topics_dir}/{folder}")
            added = f"ALTER TABLE {table} ADD IF NOT EXISTS PARTITION ({chosen}) LOCATION {place}"
            self._write(topic, f"3-partition-{_file_name(encoded)}", added)

    def _write(self, topic: str, name: str, text: str) -> None:
        path = self._path(topic, name)
        if path not in self._told:
            self.store.put_new(path, f"{text};\n".encode())
            self.note_progress()
        _remember(self._told, path, None, self.told_max)

    def _first_columns(self, topic: str, begun: str) -> frozenset[str]:
        """Columns that the table had when it was made, by whoever made its statement first."""
        first = self._first.get(topic)
        if first is None:
            path = self._path(topic, "1-table")
            is_own = self.store.put_new(path, begun.encode())
            text = begun if is_own else self.store.read(path).decode()
            self._demand_same_place(topic, text, path)
            first = frozenset(found[1].replace("``", "`") for found in _COLUMN.finditer(text))
        _remember(self._first, topic, first, self.told_max)
        return first

    def _demand_same_place(self, topic: str, text: str, path: str) -> None:
        """The table that is there is of this topic's files: else two topics would be mixed in one. Raises Fatal."""
        own, there = self._location(topic), text.rpartition("\nLOCATION ")[2].strip().rstrip(";")
        if there != own:
            raise Fatal(
                f"Hive's table {self._table(topic)} of topic '{topic}' would have its files at {own}, and '{path}' "
                f"says that a table of this name has them at {there}: topics that differ only in upper and lower case, "
                "or in signs other than letters, digits and _, have one name in Hive. Give this topic a connector with "
                "another hive.table.name or hive.database; or rename its records' topic by RegexRouter; or, where the "
                f"files were moved or the other table is not wanted any more, remove the folder of '{path}'. Then "
                "restart the task"
            )

    def _location(self, topic: str) -> str:
        return _text(f"{self.config.url}/{self.config.topics_dir}/{topic}")

    def _begun(self, topic: str, columns: dict[str, str], names: Iterable[str]) -> str:
        lines = ",\n".join(f"  {_quoted(name)} {kind}" for name, kind in columns.items())
        folders = ", ".join(f"{_quoted(name)} STRING" for name in names)
        return (
            f"CREATE EXTERNAL TABLE IF NOT EXISTS {self._table(topic)} (\n{lines}\n)\nPARTITIONED BY ({folders})\n"
            f"STORED AS {self.config.format.upper()}\n"
            f"LOCATION {self._location(topic)};\n"
        )

    def _table(self, topic: str) -> str:
        return f"{_quoted(self.config.hive_database)}.{_quoted(self._name(topic))}"

    def _path(self, topic: str, name: str) -> str:
        # In Hive names are the same in upper and lower case, and one table has one folder.
        table = f"{self.config.hive_database}.{self._name(topic)}".lower()
        return f"{self.config.hive_ddl_dir}/{table}/{name}.sql"

    def _name(self, topic: str) -> str:
        return _NO_NAME.sub("_", self.config.hive_table_name.replace("${topic}", topic))


def columns_of(shape: Shape, *, without: Iterable[str] = ()) -> dict[str, str]:
    """Hive's type of each field; names of folders are columns already. Raises ShapeError for a value without fields."""
    if not pa.types.is_struct(shape.type):
        raise ShapeError(RefusalReason.WRONG_TYPE, "hive.integration needs values with fields")
    folders = {name.lower() for name in without}
    return {field.name: hive_type(field.type) for field in shape.type if field.name.lower() not in folders}


def hive_type(kind: Any) -> str:
    """The type of a column. Times of day are numbers: Hive has none."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return f"STRUCT<{','.join(f'{_quoted(field.name)}:{hive_type(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{hive_type(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{hive_type(kind.key_type)},{hive_type(kind.item_type)}>"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP"
    return "BINARY" if pa.types.is_fixed_size_binary(kind) else _TYPES.get(kind, "STRING")


def _remember(known: OrderedDict[str, T], name: str, value: T, count_max: int) -> None:
    """Keep it, as the latest of so many."""
    known[name] = value
    known.move_to_end(name)
    if len(known) > count_max:
        known.popitem(last=False)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _file_name(fact: str) -> str:
    """A name of a file that no other fact has."""
    plain = fact.replace("/", "+")
    if _PLAIN.fullmatch(plain.replace("+", "-")) is not None:
        return plain
    return hashlib.sha256(fact.encode()).hexdigest()
