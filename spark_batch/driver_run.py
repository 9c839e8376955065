"""A job run by the driver itself: its columns are compiled once, and each micro-batch only passes through them.

A Spark job of its own for every micro-batch is analysed, optimized, planned, scheduled and compiled anew each time, at
many times the cost of converting its records, and keeps HotSpot compiling all that machinery. Where executors are
threads of the driver (``local``, ``local[N]``) nothing is gained by it: here Spark's optimizer and code generator make
of the job's columns a projection from rows to rows, as a task of the job would, and every later micro-batch goes
through that, as Arrow on both sides.

It is no other judge: what it cannot run, and every micro-batch on which it fails, is left to a Spark job.
Names of Spark 4.1.1 are used that Spark promises nobody; its version is pinned.
"""

from __future__ import annotations

import os
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_batch.proof import ProofHabit
from spark_batch.session import is_remote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

_ZONE = "UTC"
_BATCH_ROWS_MAX = 100_000
"""Rows of one Arrow batch, in either direction."""
_NAMES_DIFFER, _LARGE_TYPES = True, False
"""No struct has two fields of one name; 32-bit offsets, as PySpark gives and takes them."""
JOBS_KEY, ALWAYS = "spark.headrace.jobs", "always"
"""Setting of a session by which every micro-batch is a Spark job: to see each in Spark's listeners, or to compare."""
_KEPT_BYTES_MAX = 128 * 1024
"""Of one value: a compiled form keeps buffers as large as the largest that has passed it, so one that has is let go."""
_PROJECT, _ROWS = "Project", "LogicalRDD"
_BYTES = (pa.binary(), pa.string())
_TAKEN = (*_BYTES, pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64())
"""Arrow types that a column has again when it has been through Spark."""


@dataclass(frozen=True)
class _Place:
    """A column of a frame, or a field of one of structs, by the numbers on the way to it."""

    column: str
    fields: tuple[int, ...]


class DriverRuns:
    """How the driver runs one job: a compiled form for each that runs at once, used by one thread at a time.

    Expressions keep buffers between records, so no two threads may share a compiled form.
    """

    def __init__(self) -> None:
        self._idle: dict[pa.Schema, list[_Compiled]] = {}
        self._lock = threading.Lock()
        self._is_possible = True
        self._habit = ProofHabit()

    def run(self, session: SparkSession, applied: Callable[[DataFrame], DataFrame], frame: pa.Table) -> pa.Table | None:
        """The rows of the job that ``applied`` makes of a frame, in order; None where a Spark job has to run.

        Raises nothing of a record.
        """
        if not (self._is_possible and frame.num_rows) or is_remote(session) or not self._habit.is_tried():
            return None
        try:
            compiled = self._taken(frame.schema) or _compiled(session, applied, frame)
            if compiled is None:
                self._is_possible = False
                return None
            written = compiled.run(session, frame)
        except (PySparkException, Py4JError, OSError):
            # A rule that raises, a full disk, a JVM that is gone: the Spark job meets it too, and tells which it is.
            self._habit.tell(was_worth_while=False)
            return None
        self._habit.tell(was_worth_while=True)
        if _longest_bytes(frame) <= _KEPT_BYTES_MAX and _longest_bytes(written) <= _KEPT_BYTES_MAX:
            with self._lock:
                self._idle.setdefault(frame.schema, []).append(compiled)
        return compiled.completed(written, frame)

    def _taken(self, schema: pa.Schema) -> _Compiled | None:
        with self._lock:
            idle = self._idle.get(schema)
            return idle.pop() if idle else None


@dataclass(frozen=True)
class _Compiled:
    """Java objects; valid for one session."""

    names: tuple[str, ...]
    """Of the columns that the job gives."""
    taken: Mapping[str, _Place]
    """Those of them that are columns of the frame as they came, and where they stand there."""
    needed: tuple[str, ...]
    """The columns of the frame of which the others are made."""
    projections: tuple[Any, ...]
    """From the rows that come in to those that go out."""
    rows: Any
    """Type of the rows that come in."""
    outcome: Any
    """Type of the rows that go out."""
    converters: Any
    contexts: Any
    nobody: Any
    """Scala's None."""

    def run(self, session: SparkSession, frame: pa.Table) -> pa.Table:
        """What is not taken from the frame, through all projections; blocks.

        Raises what Spark raises, and OSError where a disk is full.
        """
        frame = frame.select(self.needed)
        jvm: Any = session._jvm  # noqa: SLF001 - PySpark offers no public way to Spark's driver
        with _files(session) as (coming, going):
            with pa.OSFile(str(coming), "wb") as file, pa.ipc.new_stream(file, frame.schema) as stream:
                stream.write_table(frame, max_chunksize=_BATCH_ROWS_MAX)
            context = self.contexts.empty()
            try:
                batches = jvm.PythonSQLUtils.readArrowStreamFromFile(str(coming))
                rows = self.converters.fromBatchIterator(
                    batches, self.rows, _ZONE, _NAMES_DIFFER, _LARGE_TYPES, context
                )
                for projection in self.projections:
                    rows = rows.map(projection)
                written = self.converters.toBatchIterator(
                    rows, self.outcome, _BATCH_ROWS_MAX, _ZONE, _NAMES_DIFFER, _LARGE_TYPES, context
                )
                self._write(jvm, written, going)
            finally:
                # Gives back the memory outside of the heap, also of what was not read to its end.
                context.markTaskCompleted(self.nobody)
            with pa.OSFile(str(going), "rb") as file:
                return pa.ipc.open_stream(file).read_all()

    def completed(self, written: pa.Table, frame: pa.Table) -> pa.Table:
        """What has come of the projections, with what is taken from the frame, in the job's order."""
        columns = {name: frame.column(place.column) for name, place in self.taken.items()}
        for name, place in self.taken.items():
            if place.fields:
                columns[name] = pc.struct_field(columns[name], place.fields)
        return pa.table({name: columns[name] if name in columns else written.column(name) for name in self.names})

    def _write(self, jvm: Any, batches: Any, path: Path) -> None:
        output = jvm.java.io.FileOutputStream(str(path))
        try:
            writer = jvm.org.apache.spark.sql.execution.arrow.ArrowBatchStreamWriter(
                self.outcome, output, _ZONE, _NAMES_DIFFER, _LARGE_TYPES
            )
            writer.writeBatches(batches)
            writer.end()
        finally:
            output.close()


def _longest_bytes(rows: pa.Table) -> int:
    """Of the texts and binary values in the top columns; 0 without any."""
    lengths = [pc.max(pc.binary_length(column)).as_py() for column in rows.columns if column.type in _BYTES]
    return max((length for length in lengths if length is not None), default=0)


def _compiled(session: SparkSession, applied: Callable[[DataFrame], DataFrame], frame: pa.Table) -> _Compiled | None:
    """The job compiled for frames like this one; None where only a Spark job can do it."""
    jvm: Any = session._jvm  # noqa: SLF001 - PySpark offers no public way to Spark's driver
    context: Any = session.sparkContext
    if not context._jsc.sc().isLocal() or context._encryption_enabled:  # noqa: SLF001 - no public way
        return None
    if session.conf.get(JOBS_KEY, "") == ALWAYS:
        return None
    outgoing: Any = applied(session.createDataFrame(frame.slice(0, 1)))._jdf  # noqa: SLF001 - no public way
    steps = _steps(jvm, outgoing.queryExecution())
    if steps is None:
        return None
    names = tuple(outgoing.columns())
    taken, needed = _taken_columns(steps, frame.schema), tuple(frame.column_names)
    if taken:
        steps, needed = _reduced(jvm, steps, [at for at, name in enumerate(names) if name not in taken])
    made = [field for field in outgoing.schema().fields() if field.name() not in taken]
    incoming = session.createDataFrame(frame.select(needed).slice(0, 1))._jdf.schema()  # noqa: SLF001 - no public way
    # Copied as for a task: expressions keep buffers, and the columns of a rule are one tree for all who use them.
    copied = [(jvm.org.apache.commons.lang3.SerializationUtils.clone(columns), rows) for columns, rows in steps]
    create = jvm.org.apache.spark.sql.catalyst.expressions.UnsafeProjection.create
    return _Compiled(
        names=names,
        taken=taken,
        needed=needed,
        # The scan of a job, too, gives rows of Spark's own form first: not every expression reads Arrow's faithfully.
        projections=(create(incoming), *(create(columns, rows) for columns, rows in copied)),
        rows=incoming,
        outcome=jvm.org.apache.spark.sql.types.DataTypes.createStructType(made),
        converters=_scala_object(jvm.org.apache.spark.sql.execution.arrow, "ArrowConverters"),
        contexts=_scala_object(jvm.org.apache.spark, "TaskContext"),
        nobody=_scala_object(jvm.scala, "None"),
    )


def _steps(jvm: Any, execution: Any) -> list[tuple[Any, Any]] | None:
    """Columns and the attributes they are made of, from the rows on; None for a plan that is more than columns.

    Nor may it ask for the time of day, which the optimizer replaces by that of its run, or for chance.
    """
    if _asks_for_the_time(jvm, execution.analyzed()):
        return None
    steps: list[tuple[Any, Any]] = []
    plan = execution.optimizedPlan()
    while plan.nodeName() == _PROJECT:
        if not plan.deterministic():
            return None
        steps.append((plan.projectList(), plan.child().output()))
        plan = plan.child()
    return steps[::-1] if steps and plan.nodeName() == _ROWS else None


def _taken_columns(steps: list[tuple[Any, Any]], frame: pa.Schema) -> dict[str, _Place]:
    """The job's columns that the optimizer has found to be columns of the frame, by their names; never all.

    They need not go through the JVM and come back: of a record that is mostly one long text this is most of the work.
    """
    if len(steps) != 1:
        return {}
    [(columns, _)] = steps
    places = [(each.name(), _place(each, frame)) for each in _items(columns)]
    taken = {name: place for name, place in places if place is not None}
    return taken if len(taken) < len(places) else {}


def _place(expression: Any, frame: pa.Schema) -> _Place | None:
    """What it stands for, where that is a value of the frame and nothing else."""
    fields: list[int] = []
    while (kind := expression.getClass().getSimpleName()) in {"Alias", "GetStructField"}:
        fields += [expression.ordinal()] if kind == "GetStructField" else []
        expression = expression.child()
    if kind != "AttributeReference" or expression.name() not in frame.names:
        return None
    place = _Place(expression.name(), tuple(fields[::-1]))
    found = frame.field(place.column).type
    for number in place.fields:
        found = found.field(number).type
    return place if found in _TAKEN else None


def _reduced(jvm: Any, steps: list[tuple[Any, Any]], made: list[int]) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    """One step for these columns alone, and the names of those that they are made of; one at least, to have rows."""
    [(columns, rows)] = steps
    kept = [columns.apply(at) for at in made]
    attributes = _items(rows)
    needed = [each for each in attributes if any(column.references().contains(each) for column in kept)]
    needed = needed or attributes[:1]
    sequence = jvm.org.apache.spark.api.python.PythonUtils.toSeq
    return [(sequence(kept), sequence(needed))], tuple(each.name() for each in needed)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]


def _asks_for_the_time(jvm: Any, analyzed: Any) -> bool:
    """Whether it holds ``current_timestamp()`` or the like, or a text such as ``now`` that is cast to a time.

    The optimizer's own rule is asked for the texts: it takes what can be worked out beforehand, however it is put.
    """
    patterns = _scala_object(jvm.org.apache.spark.sql.catalyst.trees, "TreePattern")
    if analyzed.containsPattern(patterns.CURRENT_LIKE()):
        return True
    rules: Any = jvm.org.apache.spark.sql.catalyst.optimizer
    replaced = _scala_object(rules, "ReplaceExpressions").apply(analyzed)
    return not _scala_object(rules, "SpecialDatetimeValues").apply(replaced).fastEquals(replaced)


def _scala_object(package: Any, name: str) -> Any:
    return getattr(getattr(package, f"{name}$"), "MODULE$")


@contextmanager
def _files(session: SparkSession) -> Iterator[tuple[Path, Path]]:
    """Two files in the folder of Spark's own, gone afterwards."""
    folder = session.sparkContext._temp_dir  # noqa: SLF001 - where PySpark, too, puts what it hands over
    handle, name = tempfile.mkstemp(dir=folder)
    os.close(handle)
    coming = Path(name)
    going = coming.with_suffix(".outcome")
    try:
        yield coming, going
    finally:
        coming.unlink(missing_ok=True)
        going.unlink(missing_ok=True)
