"""The reference page of everything that can go wrong: rejected records, errors by recovery, exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from importlib import import_module

from service.docs.markdown import NOTICE, cell, code, first_paragraph, table
from service.domain.errors import Recovery, recovery_of
from service.domain.ids import TaskId
from service.pipeline.dead_letters import DELIVER_STAGE, FETCH_STAGE, DeadLetter, dead_letter_headers
from service.sinks.batch import RefusalReason
from service.sinks.converters import DEPTH_MAX as SINK_DEPTH_MAX
from spark_batch.literals.reading import DEPTH_MAX
from spark_batch.outcome import Reason, Stage

PAGE = """\
{notice}
# Errors

## Dead letters

A record that does not meet its contract is delivered nowhere else: with `errors.tolerance=all` it becomes a dead letter
in `errors.deadletterqueue.topic.name` (default `<connector>-dead-letters`), in the same transaction as the records
around it; with `errors.tolerance=none`, the default, the task fails after delivering everything before the record's
page. Key and value of a dead letter are the original bytes, and the record's own headers come first. Then, each UTF-8
text and unless
`errors.deadletterqueue.context.headers.enable=false`:

{headers}
### Stages

{stages}
### Reasons

The message names the field and what was expected there, never the value.

{reasons}
### Of sinks

A record that a sink cannot take goes the same ways, with its own headers, key and value, and with Kafka Connect's
headers `__connect.errors.*`. The reason is in logs and metrics. A sink of your own refuses rows with words of its own.

{refusals}
## Errors by recovery

The class of an error says what the worker does about it; of several at once the most severe decides.

{recoveries}
| error | recovery | meaning |
|---|---|---|
{errors}

Embedded servers and set-up refuse to start rather than fail a task:

{embedded}
## Refused requests

What a client of the REST interface is answered, in Kafka Connect's error body
`{{"error_code": STATUS, "message": TEXT}}`. 401, 404 of a route, 405, 413 and 415 come from the server itself; 409
means that the same request may succeed in a moment.

{requests}
## Exit codes of `./headrace standalone`

| code | meaning |
|---|---|
| 0 | ended cleanly: asked to stop, or idle for the time of `--until-idle` |
| 1 | a task is FAILED, or the start failed on what may pass, such as a port that is taken |
| 2 | the configuration is refused; all findings are on standard error. Also: something has to be installed first |
"""

HEADERS = {
    "__connect.errors.topic": "Topic the record would have gone to, before any transformation chose another.",
    "__connect.errors.connector.name": "Connector.",
    "__connect.errors.task.id": "Number of the task.",
    "__connect.errors.stage": "Where it was rejected; see the stages.",
    "__connect.errors.class.name": "Converter of the values.",
    "__connect.errors.exception.class.name": "Always Connect's `DataException`, for tools that look for it.",
    "__connect.errors.exception.message": "Field, and what was expected.",
    "__headrace.errors.reason": "One of the reasons below.",
    "__headrace.errors.source.partition": "Source partition, JSON.",
    "__headrace.errors.source.offset": "Source offset after the record's page, JSON; with the record's own position in "
    "the source where the fetcher knows it.",
    "__headrace.errors.page.topic": "Topic that the fetcher chose for the record, where it did.",
    "__headrace.errors.source.timestamp": "Timestamp that the fetcher gave the record, where it did: milliseconds "
    "since 1970, UTC. That of the letter is the time of its writing, by which its topic forgets.",
    "__headrace.errors.tries": "How often the record was rejected, where a redrive tried it again: 2 and more. This "
    "letter takes the place of the one before.",
}

STAGES = {
    FETCH_STAGE: "The fetcher itself could not vouch for the record.",
    Stage.VALUE_CONVERTER: "Reading the payload by its contract, the contract's rules included, or writing the value.",
    Stage.KEY_CONVERTER: "Writing the key.",
    DELIVER_STAGE: "Writing to the topic, whose own settings do not allow the record.",
    Stage.TRANSFORMATION: "A transformation, or taking the record's timestamp from `timestamp.field`.",
}

REASONS = {
    Reason.MALFORMED_JSON: "Not one JSON value (RFC 8259): cut off, something after it, `NaN`, single quotes, empty. "
    "Of a CSV: a row with more or fewer fields than its first, or with stray quotation marks.",
    Reason.INVALID_UTF8: "Not UTF-8.",
    Reason.LONE_SURROGATE: "An escape such as `\\ud800` without its other half, which no UTF-8 text can hold.",
    Reason.DUPLICATE_KEY: "A key stands twice in one object.",
    Reason.TOO_DEEP: f"More than {DEPTH_MAX} levels of arrays and objects.",
    Reason.TOO_LARGE: "Over `record.bytes.max`, the topic's `max.message.bytes`, or a line over the fetcher's limit.",
    Reason.WRONG_TYPE: "A value of another type than the field's; text for a number, a number for text.",
    Reason.OUT_OF_RANGE: "The right type, but not exact in it: beyond its range, precision, scale or unit. A timestamp "
    "further from now than the topic's `message.timestamp.after.max.ms` or `message.timestamp.before.max.ms`.",
    Reason.MISSING_FIELD: "A required field without default is not there.",
    Reason.NULL_NOT_ALLOWED: "An explicit null where the contract has none, default or not.",
    Reason.UNKNOWN_FIELD: "A field the contract does not name, with `contract.unknown.fields=reject`; with `keep`, one "
    "that would take the name of a field of the contract.",
    Reason.UNKNOWN_SYMBOL: "Text that is no symbol of the enum.",
    Reason.RULE_FAILED: "A rule of the contract is false, or null.",
    Reason.EXPRESSION_FAILED: "An expression of `Sql` fails on the record, as a cast of a text that is no number does.",
    Reason.UNREPRESENTABLE: "Valid, but the chosen converter or Kafka cannot carry it.",
}

REFUSALS = {
    RefusalReason.INVALID_UTF8: "Not UTF-8, and the converter reads texts.",
    RefusalReason.MALFORMED_JSON: "Not one JSON value.",
    RefusalReason.TOO_DEEP: f"More than {SINK_DEPTH_MAX} levels of arrays and objects.",
    RefusalReason.NO_ENVELOPE: "Not an object of `schema` and `payload`, with `schemas.enable=true`.",
    RefusalReason.NOT_AVRO: "Not in the registry's wire format, or not what its schema says.",
    RefusalReason.NO_SCHEMA: "The envelope's schema is none that Connect knows.",
    RefusalReason.WRONG_TYPE: "A transformation needs an object, and this is something else.",
    RefusalReason.MISSING_FIELD: "A transformation looks for a field that is not there.",
    RefusalReason.DUPLICATE_FIELD: "`InsertField` would make a second field of a name.",
    RefusalReason.EXPRESSION_FAILED: "An expression of `Sql` fails on the record, as a cast of a text that is no "
    "number does.",
    RefusalReason.MISSING_TIMESTAMP: "`InsertField` has to insert the record's timestamp, and it has none.",
    RefusalReason.UNUSABLE_DEFAULT: "A field is null, and a transformed record cannot hold its default.",
    RefusalReason.UNUSABLE_ID: "The key is to be the document's id, and is null, empty, too long, no text or integer.",
    RefusalReason.NULL_VALUE: "A null value, with `behavior.on.null.values=FAIL`.",
    RefusalReason.NO_VERSION: "The header that is to be the document's version holds no number.",
    RefusalReason.TOO_LARGE: "Larger than the target takes.",
    RefusalReason.REFUSED_BY_TARGET: "The target has looked at it and will never take it; its reason follows.",
    RefusalReason.OUT_OF_RANGE: "A transformation would make a value that its type cannot hold, or cannot read a text.",
}

RECOVERIES = {
    Recovery.RETRY: "The same step again, in place, with back-off and jitter. A fetch is retried for "
    "`errors.retry.timeout`; a micro-batch whose conversion is lost four times fails the task.",
    Recovery.RESTART: "A new incarnation of the task, from the committed offsets, after `errors.restart.backoff.ms` "
    "and longer each time; the state is RESTARTING meanwhile.",
    Recovery.SUPERSEDED: "The config topic asks for other tasks by now. The task ends quietly; where its "
    "worker finds it wanted after all, it starts anew.",
    Recovery.FENCED: "A newer incarnation of the task has taken over. Where the task is another worker's by now, it "
    "ends quietly here; where it is still wanted here, it is FAILED and never retried: somebody else uses its name.",
    Recovery.FAIL: "FAILED, with its trace in the log. A person has to act, then start the job again.",
}

ERROR_MODULES = (
    "fetchers.sdk.errors",
    "spark_batch.errors",
    "service.kafka.errors",
    "service.registry.errors",
    "service.domain.errors",
)
REQUEST_ERROR_MODULES = ("service.herder.errors",)
START_ERROR_MODULES = ("service.embedded.errors", "service.setup.failure")


def page() -> str:
    """Return the whole page, Markdown; raises ``KeyError`` for a reason, stage or header without its words."""
    return PAGE.format(
        notice=NOTICE,
        headers=table(("header", "value"), [(code(name), HEADERS[name]) for name in header_names()]),
        stages=table(
            ("stage", "what was done"), [(code(stage), STAGES[stage]) for stage in (FETCH_STAGE, *Stage, DELIVER_STAGE)]
        ),
        reasons=table(("reason", "meaning"), [(code(reason), REASONS[reason]) for reason in Reason]),
        refusals=table(("reason", "meaning"), [(code(reason), REFUSALS[reason]) for reason in RefusalReason]),
        recoveries=table(("recovery", "what happens"), [(code(item), RECOVERIES[item]) for item in Recovery]),
        errors="\n".join(_recovered(error) for error in errors_of(ERROR_MODULES)),
        requests=table(
            ("error", "status", "meaning"),
            [
                (code(error.__name__), str(getattr(error, "status", "forwarded")), first_paragraph(error.__doc__))
                for error in errors_of(REQUEST_ERROR_MODULES)
            ],
        ),
        embedded=table(
            ("error", "meaning"),
            [(code(error.__name__), first_paragraph(error.__doc__)) for error in errors_of(START_ERROR_MODULES)],
        ),
    )


def header_names() -> list[str]:
    """Names of a dead letter's headers, as they are written."""
    letter = DeadLetter(None, None, "", "", "", "", "", "", page_topic="", timestamp_ms=0, tries=2)
    return [name for name, _ in dead_letter_headers(letter, TaskId("connector", 0), class_name="")]


def errors_of(modules: Iterable[str]) -> list[type[Exception]]:
    """The public exception classes defined in these modules, in their order there."""
    return [
        kind
        for module in map(import_module, modules)
        for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, Exception) and _is_own(kind, module.__name__)
    ]


def _is_own(kind: type, module: str) -> bool:
    return kind.__module__ == module and not kind.__name__.startswith("_")


def _recovered(error: type[Exception]) -> str:
    # Made without its arguments: the class alone decides about the recovery.
    recovery = recovery_of(error.__new__(error))
    return f"| `{error.__name__}` | `{recovery}` | {cell(first_paragraph(error.__doc__))} |"
