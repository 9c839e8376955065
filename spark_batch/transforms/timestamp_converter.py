"""`TimestampConverter`: instants as texts, as numbers, or as Connect's dates and times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from spark_batch.avro_types import AvroType, JsonValue, Primitive, Record, Temporal, unit_range
from spark_batch.literals.reading import Number
from spark_batch.outcome import Reason
from spark_batch.transforms.cast import connect_kind
from spark_batch.transforms.change import Changed, Taken, Unchangeable, changed_json
from spark_batch.transforms.fields import NULL_KEY, OfFields, Opened
from spark_batch.transforms.form import FormKey, Inapplicable, KeyKind, KeysRefused, KeyValues, Side
from spark_batch.transforms.java_dates import DAY_MS, SURE_BELOW_MS, SURE_FROM_MS, JavaDateError, JavaDates

if TYPE_CHECKING:
    from pyspark.sql import Column

_TARGETS: dict[str, AvroType] = {
    "string": Primitive.STRING,
    "unix": Primitive.LONG,
    "Date": Temporal.DATE,
    "Time": Temporal.TIME_MILLIS,
    "Timestamp": Temporal.TIMESTAMP_MILLIS,
}
_PER_MS = {"nanoseconds": 1_000_000, "microseconds": 1_000, "milliseconds": 1}
_LONG_MAX = (1 << 63) - 1
_SURE_SECONDS_MAX = 1 << 40
_SURE_UNIX_MAX = _LONG_MAX // 1_000_000


def _cut(number: int, by: int) -> int:
    """Divided, what is behind the point cut off."""
    return number // by if number >= 0 else -(-number // by)


def _bounded(number: int) -> int:
    """The nearest long, as Java's TimeUnit has it."""
    return max(-_LONG_MAX - 1, min(_LONG_MAX, number))


@dataclass(frozen=True)
class Retimed:
    """An instant in another form."""

    target: AvroType
    dates: JavaDates | None = None
    precision: str = "milliseconds"

    def kind(self, kind: AvroType) -> AvroType:
        """The target's, from text, a long, or one of Connect's dates and times."""
        source = connect_kind(kind)
        if source is Primitive.STRING and self.dates is None:
            raise Unchangeable("a format for a field of text")
        if isinstance(source, Temporal) or source in {Primitive.STRING, Primitive.LONG}:
            return self.target
        raise Unchangeable("a field of text, a long, a date or a time")

    def column(  # noqa: PLR0911 - one line a target
        self, kind: AvroType, value: Column
    ) -> Changed:
        """By way of milliseconds; sure from 1600 to 9999, and of texts that are written in full."""
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        source = connect_kind(kind)
        millis = self._millis_column(kind, value)
        # What is not sure is null from here on: of numbers beyond its range Spark makes an error that ends the job.
        millis = F.when((millis >= SURE_FROM_MS) & (millis < SURE_BELOW_MS), millis)
        proof = millis.isNotNull()
        if self.target is Primitive.STRING:
            assert self.dates is not None  # noqa: S101 - told to the type checker: a key demands it
            if not self.dates.is_sure_in_spark:
                return Changed(F.lit(None).cast("string"), F.lit(False))  # noqa: FBT003 - a literal
            return Changed(F.date_format(F.timestamp_millis(millis), self.dates.spark_pattern), proof)
        if self.target is Temporal.DATE:
            day = F.floor(millis / DAY_MS) if source is not Temporal.DATE else millis / DAY_MS
            return Changed(F.date_from_unix_date(day.cast("int")), proof)
        if self.target is Temporal.TIME_MILLIS:
            return Changed(F.pmod(millis, F.lit(DAY_MS)).cast("int"), proof)
        if self.target is Temporal.TIMESTAMP_MILLIS:
            return Changed(F.timestamp_millis(millis), proof)
        if self.precision == "seconds":
            return Changed(_divided(millis, 1000), proof)
        return Changed(millis * _PER_MS[self.precision], proof & millis.between(-_SURE_UNIX_MAX, _SURE_UNIX_MAX))

    def _millis_column(self, kind: AvroType, value: Column) -> Column:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

        source = connect_kind(kind)
        if isinstance(kind, Temporal):
            from spark_batch.instant_columns import instant_number  # noqa: PLC0415 - it imports Spark

            value = instant_number(kind, value).cast("bigint")
            if isinstance(source, Temporal):
                return value * DAY_MS if source is Temporal.DATE else value
        if source is Primitive.STRING:
            assert self.dates is not None  # noqa: S101 - told to the type checker: `kind` demands it
            sure = self.dates.sure_texts
            if sure is None:
                return F.lit(None).cast("bigint")
            text = F.when(value.rlike(sure), value)
            return F.unix_millis(F.try_to_timestamp(text, F.lit(self.dates.spark_pattern)))
        if self.precision == "seconds":
            return F.when(value.between(-_SURE_SECONDS_MAX, _SURE_SECONDS_MAX), value) * 1000
        return value if self.precision == "milliseconds" else _divided(value, _PER_MS[self.precision])

    def canonical(self, kind: AvroType, value: JsonValue) -> JsonValue:
        """One value; raises Inapplicable for a text that is not of the format."""
        millis = self._millis(kind, value)
        if self.target is Primitive.STRING:
            assert self.dates is not None  # noqa: S101 - told to the type checker: a key demands it
            return self.dates.written(millis)
        if self.target is Temporal.DATE:
            return self._in_range(millis // DAY_MS)
        if self.target is Temporal.TIME_MILLIS:
            return Number(millis % DAY_MS)
        if self.target is Temporal.TIMESTAMP_MILLIS:
            return self._in_range(millis)
        return Number(_cut(millis, 1000) if self.precision == "seconds" else _bounded(millis * _PER_MS[self.precision]))

    def _in_range(self, number: int) -> Number:
        """Avro's own range is wider than what this version, and Python, can hold as a date."""
        assert isinstance(self.target, Temporal)  # noqa: S101 - told to the type checker
        low, high = unit_range(self.target)
        if not low <= number <= high:
            raise Inapplicable(Reason.OUT_OF_RANGE, "expected an instant of the years 1 to 9999")
        return Number(number)

    def _millis(self, kind: AvroType, value: JsonValue) -> int:
        source = connect_kind(kind)
        if source is Primitive.STRING:
            assert self.dates is not None  # noqa: S101 - told to the type checker: `kind` demands it
            try:
                return _bounded(self.dates.read(value))
            except JavaDateError as error:
                raise Inapplicable(Reason.WRONG_TYPE, str(error)) from error
        number = int(value)
        if isinstance(source, Temporal):
            return number * DAY_MS if source is Temporal.DATE else number
        if self.precision == "seconds":
            return _bounded(number * 1000)
        return _cut(number, _PER_MS[self.precision])


def _divided(number: Column, by: int) -> Column:
    """A bigint divided, what is behind the point cut off."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - configs are read without Spark

    return F.call_function("div", number, F.lit(by))


@dataclass(frozen=True)
class TimestampConverter(OfFields):
    """Instants as texts, as numbers, or as Connect's dates and times."""

    field: str = ""
    retimed: Retimed = Retimed(Temporal.TIMESTAMP_MILLIS)

    NAME: ClassVar[str] = "TimestampConverter"
    ABOUT: ClassVar[str] = "Writes an instant as text, as a number, or as one of Connect's dates and times."
    PURPOSE: ClassVar[str] = "converting timestamp formats"
    NAMING_KEY: ClassVar[str] = "field"
    is_optional_kept: ClassVar[bool] = True
    takes_nulls: ClassVar[bool] = True
    KEYS: ClassVar[tuple[FormKey, ...]] = (
        FormKey("field", "Field of the instant; the whole when not given.", default="", is_important=True),
        FormKey(
            "target.type",
            "Form of the instant.",
            KeyKind.CHOICE,
            is_required=True,
            is_important=True,
            choices=("string", "unix", "Date", "Time", "Timestamp"),
        ),
        FormKey("format", "Pattern of Java's SimpleDateFormat, for texts that are read or written.", default=""),
        FormKey(
            "unix.precision",
            "Unit of instants that are numbers.",
            KeyKind.CHOICE,
            default="milliseconds",
            choices=("nanoseconds", "microseconds", "milliseconds", "seconds"),
            is_slight=True,
        ),
        NULL_KEY,
    )

    @classmethod
    def configured(cls, side: Side, values: KeyValues, *, is_sink: bool) -> TimestampConverter:
        """Refuses a text without a format, and patterns that cannot be carried out."""
        del is_sink
        pattern = values["format"] or ""
        target = _TARGETS[values["target.type"]]
        if target is Primitive.STRING and not pattern.strip():
            raise KeysRefused(("format", "a pattern of Java's SimpleDateFormat, where the target is a string"))
        dates = JavaDates(pattern) if pattern.strip() else None
        try:
            _ = dates and dates.tokens
        except JavaDateError as error:
            raise KeysRefused(("format", f"a pattern of Java's SimpleDateFormat ({error})")) from error
        retimed = Retimed(target, dates, values["unix.precision"])
        return cls(side, values["replace.null.with.default"], values["field"] or "", retimed)

    @property
    def whole(self) -> Retimed | None:
        """The whole, where no field is named."""
        return None if self.field else self.retimed

    def taken(self, name: str, record: Record) -> tuple[Taken, ...]:
        """All fields; a name that the record does not have is of no account, as in Connect."""
        del name
        return tuple(
            Taken(field.name, (field.name,), self.retimed if field.name == self.field else None)
            for field in record.fields
        )

    def loose(self, fields: Mapping[str, Any], value_of: Opened) -> dict[str, Any]:
        """A field that is not there is null afterwards, as in Connect."""
        return {**fields, self.field: changed_json(self.retimed, value_of(fields.get(self.field)))}
