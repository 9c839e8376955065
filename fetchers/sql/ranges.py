# ruff: noqa: S608 - names are quoted, values are literals, and a query is the config's own
"""What of a table or query is new, as SQL: which columns tell it, and the range behind a place up to a bound."""

from __future__ import annotations

from fetchers.sdk import Fatal
from fetchers.sql.config import JdbcConfig
from fetchers.sql.database import Database, Range, Relation
from fetchers.sql.places import Place
from fetchers.toolkit.table_reading import order_digest


def wanted_range(config: JdbcConfig, relation: Relation, database: Database) -> Range:
    """Raises ``Fatal``, in words, where the mode's columns are not there or may be null."""
    identity, identity_column = None, ""
    if config.uses_ids:
        name = config.incrementing_column_name or relation.auto_increment
        if name is None:
            change = f"ALTER TABLE {relation.source} ADD COLUMN id BIGINT {_NUMBERED.get(config.url.dialect, '')}"
            give = "" if relation.is_view else f", or give it one, as by: {change}"
            raise Fatal(f"{relation.name} has no auto-increment column: name one in incrementing.column.name{give}")
        column = relation.column(name)
        if column.tells not in {"", "numbers"}:
            raise Fatal(
                f"Cannot make incremental queries using incrementing column {column.name} on {relation.name} because "
                "its type is no whole number: name another column, or use mode timestamp."
            )
        if config.validate_non_null and relation.table is not None and column.is_nullable:
            raise Fatal(
                f"Cannot make incremental queries using incrementing column {column.name} on {relation.name} because "
                f"this column is nullable. {_not_null(config, relation, column.name)}"
            )
        identity, identity_column = database.quoted(column.name), column.name
    time, names = _time(config, relation, database)
    return Range(relation, identity, time, names, config.timestamp_delay_interval_ms, identity_column)


_NUMBERED = {
    "postgresql": "GENERATED ALWAYS AS IDENTITY",
    "mysql": "AUTO_INCREMENT UNIQUE",
    "mariadb": "AUTO_INCREMENT UNIQUE",
}


def _time(config: JdbcConfig, relation: Relation, database: Database) -> tuple[str | None, tuple[str, ...]]:
    if not config.uses_times:
        return None, ()
    columns = [relation.column(name) for name in config.timestamp_column_name]
    if not columns:
        raise Fatal(f"mode {config.mode} needs timestamp.column.name")
    names = tuple(column.name for column in columns)
    if other := [column.name for column in columns if column.tells not in {"", "times"}]:
        raise Fatal(
            f"Cannot make incremental queries using timestamp columns {','.join(other)} on {relation.name} because "
            "their types are no timestamps: name others, or use mode incrementing."
        )
    if config.validate_non_null and relation.table is not None and all(column.is_nullable for column in columns):
        raise Fatal(
            f"Cannot make incremental queries using timestamp columns {','.join(names)} on {relation.name} because all "
            f"of these columns are nullable. {_not_null(config, relation, names[0])}"
        )
    zoned = [name for name in names if name in relation.zoned]
    others = [name for name in names if name not in relation.zoned]
    if zoned and others and config.db_timezone != "UTC":
        raise Fatal(
            f"{','.join(zoned)} of {relation.name} has a zone, and {','.join(others)} has none: they are compared as "
            "times of UTC. Name columns of one kind in timestamp.column.name, or set db.timezone=UTC"
        )
    quoted = [database.quoted(name) for name in names]
    return (quoted[0] if len(quoted) == 1 else f"coalesce({', '.join(quoted)})"), names


def _not_null(config: JdbcConfig, relation: Relation, column: str) -> str:
    if relation.is_view:
        return "Columns of a view may always be null: set validate.non.null=false; rows with null in it are never read."
    change = {
        "postgresql": f'ALTER TABLE {relation.source} ALTER COLUMN "{column}" SET NOT NULL',
        "sqlite": "a new table with NOT NULL, to which the rows are copied",
    }.get(config.url.dialect)
    if column in relation.not_null:
        change = f"ALTER TABLE {relation.source} MODIFY {relation.not_null[column]}"
    mend = "Set" if change is None else f"Mend it by: {change}; or set"
    return f"{mend} validate.non.null=false: rows with null in it are then never read."


def whole_number(text: str, wanted: Range) -> int:
    """An id as the database writes it; raises ``Fatal`` for what NUMERIC without digits may hold besides."""
    try:
        return int(text)
    except ValueError:
        name = f"{wanted.identity_column} of {wanted.relation.name}"
        raise Fatal(f"{name} holds {text[:40]}, which is no whole number to go on from") from None


class Selection:
    """The SELECT of a range, and where in its columns the place of each row stands."""

    def __init__(self, database: Database, wanted: Range) -> None:
        """``database``: whose SQL it is."""
        self.wanted = wanted
        relation = wanted.relation
        self._database = database
        ties = () if wanted.identity is not None else relation.keys
        self.ties = tuple(relation.column(name).name for name in ties) if wanted.time is not None else ()
        """Columns by which rows of one timestamp are told apart, besides the incrementing one."""
        keys = [relation.column(name) for name in self.ties]
        # An earlier release has said no order, and wrote what is no column as it is with too few digits, or otherwise.
        self._orders: set[str | None] = set() if any(key.exact != "{}" for key in keys) else {None}
        self._ties_order = order_digest([(key.name, key.tells, key.is_numeric, key.order) for key in keys])
        places = [(wanted.time, name) for name in wanted.time_columns[:1]]
        places += [(wanted.identity, wanted.identity_column), *((database.quoted(name), name) for name in self.ties)]
        found = [(place, name) for place, name in places if place is not None]
        self.order = tuple(place for place, _ in found)
        # By the columns themselves: a bare name would mean what is shown of the column, and numbers that are shown as
        # texts would be in the order of these (PostgreSQL's and MySQL's manuals, "ORDER BY").
        self._ordered = ", ".join(
            f"{relation.alias}.{place}" if place == database.quoted(name) else place for place, name in found
        )
        shown = [f"{column.expression} as {database.quoted(column.name)}" for column in relation.columns]
        shown += [
            f"{database.text_of(place, relation, name)} as headrace_{at}" for at, (place, name) in enumerate(found)
        ]
        self._select = f"select {', '.join(shown)} from {relation.source}"

    @property
    def splits_timestamps(self) -> bool:
        """Whether a page may end between rows of one timestamp."""
        return self.wanted.time is None or len(self.order) > 1

    def sql(self, place: Place, bound: str | None) -> str:
        """Everything behind the place and up to the bound, in order; all of it where there is no order."""
        if not self.order or bound is None:
            return self._select
        wanted = self.wanted
        if wanted.time is None:
            last = f"{bound}" if place.incrementing is None else f"{bound} and {wanted.identity} > {place.incrementing}"
            return f"{self._select} where {wanted.identity} <= {last} order by {self._ordered}"
        found = [f"{wanted.time} < {self._literal(bound, wanted.time_columns[0])}"]
        if place.at is not None:
            found.append(self._behind(wanted.time, place))
        return f"{self._select} where {' and '.join(found)} order by {self._ordered}"

    def _behind(self, time: str, place: Place) -> str:
        at = self._literal(str(place.at), self.wanted.time_columns[0])
        if self.wanted.identity is not None and place.incrementing is not None:
            tie = f"{self.wanted.identity} > {place.incrementing}"
        elif place.after is None:
            return f"{time} > {at}"
        elif len(place.after) != len(self.ties) or place.order not in self._orders | {self._ties_order}:
            return f"{time} >= {at}"  # the key was altered: behind the last one are other rows than were left to read
        else:
            literals = [self._literal(text, name) for text, name in zip(place.after, self.ties, strict=True)]
            columns = [
                self.wanted.relation.column(name).exact.format(self._database.quoted(name)) for name in self.ties
            ]
            tie = f"({', '.join(columns)}) > ({', '.join(literals)})"
        return f"{time} >= {at} and ({time} > {at} or {tie})"

    def _literal(self, text: str, column: str) -> str:
        return self._database.literal_of(text, self.wanted.relation, column)

    def place_of(self, texts: list[str]) -> Place:
        """Where a row stands, by the texts of ``order``."""
        rest = list(texts)
        at = rest.pop(0) if self.wanted.time is not None else None
        number = whole_number(rest.pop(0), self.wanted) if self.wanted.identity is not None else None
        return Place(number, at, tuple(rest), self._ties_order) if self.ties else Place(number, at)
