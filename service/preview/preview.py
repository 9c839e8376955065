"""A preview: a sample of a connector's source with the verdicts on it, as values for a table, a page or a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fetchers.sdk import FetchError, Retriable, SourceConnector
from metrics.redaction import Redactor
from service.config.definition import ConnectorDefinition
from service.domain.errors import described
from service.preview.judging import SHOWN_BYTES_MAX, Judged, JudgedRecord, PreviewParts, judge, plan_to_judge_by
from service.preview.sampling import Sample, SampleEnd, SampleLimits, sample
from service.reading.decoding import as_base64, as_json_text
from service.validation.secrets import secrets_of_connector
from spark_batch.outcome import Reason


@dataclass(frozen=True, slots=True)
class Preview:
    """What a connector would do with the first records of its source."""

    definition: ConnectorDefinition
    sample: Sample
    judged: Judged
    limits: SampleLimits

    @property
    def has_failed(self) -> bool:
        """Whether the source gave nothing that could be shown, for a reason that somebody can mend."""
        return self.sample.error is not None or (self.sample.end is SampleEnd.TIME and not self.judged.records)


async def preview(
    definition: ConnectorDefinition,
    limits: SampleLimits,
    parts: PreviewParts,
    *,
    connector: SourceConnector[Any] | None = None,
) -> Preview:
    """Fetch a sample and judge it; nothing is written, registered or remembered anywhere.

    Raises ``PreviewRefusedError``, ``RegistryFailure``, and ``ConversionError`` where Spark is needed and is lost.
    What the source does wrong is told in the preview (``notes``). ``connector``: see ``sample``.
    """
    plan = await plan_to_judge_by(definition, parts)
    taken = await sample(definition, limits, connector=connector)
    return Preview(definition, taken, await judge(definition, plan, taken, parts), limits)


def notes(shown: Preview, *, hide: Callable[[str], str]) -> Iterator[str]:
    """What a person should know besides the records, each a sentence with what to try. ``hide`` hides secrets."""
    taken, judged, common = shown.sample, shown.judged, shown.definition.common
    if taken.error is not None:
        yield hide(_told_error(taken.error))
    if not judged.records and taken.error is None:
        if taken.end is SampleEnd.TIME:
            yield (
                f"The source gave no record within {shown.limits.seconds_max:g} s: look whether it has records where "
                "the connector begins (address, path, first page, start date), or allow more time."
            )
        else:
            yield (
                "The source has no records where the connector begins: look at the address, the path to the records in "
                "an answer, and what the config asks for."
            )
    elif taken.error is None and taken.end is SampleEnd.TIME:
        yield f"The sample ends after {shown.limits.seconds_max:g} s: the source gave no further record in time."
    rejected = judged.count("rejected")
    if rejected and judged.reasons.get(Reason.MALFORMED_JSON, 0) == len(judged.records):
        yield (
            "None of the records is JSON, which a contract reads: let the fetcher cut JSON records out of what it "
            "reads (its keys for the format), or leave contract.schema out to pass them as they are."
        )
    if rejected and common.is_tolerant:
        yield f"Rejected records go to the dead letter topic {common.dead_letter_topic}."
    elif rejected:
        yield (
            "With errors.tolerance=none the task fails at the first rejected record; errors.tolerance=all sends them "
            "to a dead letter topic instead."
        )


def _told_error(error: Exception) -> str:
    if not isinstance(error, FetchError):
        return f"The connector's own code failed: {described(error)}"
    again = " A worker would try again." if isinstance(error, Retriable) else ""
    return f"The source could not be read: {error}{again}"


def as_json(shown: Preview, *, hide: Callable[[str], str]) -> dict[str, Any]:
    """All of a preview as a JSON-like value; ``hide`` hides secrets in texts of errors.

    Secrets of the connector's own config are hidden in records too: a source may echo what it was asked with.
    """
    judged, taken = shown.judged, shown.sample
    own = Redactor()
    for secret in secrets_of_connector(shown.definition.properties, {}):
        own.learn(secret)

    def hide_all(text: str) -> str:
        return hide(own.hide_known(text))

    return {
        "connector": shown.definition.name,
        "topic": shown.definition.topic,
        "judged_by": "spark" if judged.is_by_spark else "exact",
        "records": [_record(record, own) for record in judged.records],
        "counts": {
            "records": len(judged.records),
            **{verdict: judged.count(verdict) for verdict in ("valid", "rejected", "duplicate", "filtered")},
            "reasons": judged.reasons,
            "coerced": judged.coerced,
        },
        "source": {
            "end": taken.end.value,
            "has_more": taken.has_more,
            "records_left": taken.left,
            "offsets": [
                {"partition": _hidden(partition, own), "offset": _hidden(offset, own)}
                for partition, offset in taken.offsets
            ],
            "error": None if taken.error is None else hide_all(described(taken.error)),
        },
        "notes": list(notes(shown, hide=hide_all)),
    }


def _record(record: JudgedRecord, own: Redactor) -> dict[str, Any]:
    shown = {name: _Shown.of(value, own) for name, value in (("key", record.key), ("value", record.value))}
    payload = _Shown(None) if record.payload is None else _Shown.of_bytes(record.payload, own)
    return {
        "verdict": record.verdict,
        "stage": record.stage,
        "reason": record.reason,
        "field": _hidden(record.field, own),
        "message": _hidden(record.message, own),
        "topic": _hidden(record.topic, own),
        "coerced": list(record.coerced),
        "timestamp": record.timestamp,
        "key": shown["key"].value,
        "value": shown["value"].value,
        "payload": payload.value,
        "payload_bytes": None if record.payload is None else len(record.payload),
        "is_cut": payload.is_cut or any(each.is_cut for each in shown.values()),
    }


@dataclass(frozen=True, slots=True)
class _Shown:
    """A value as an answer has it: secrets are hidden first, and then it is cut."""

    value: Any
    is_cut: bool = False

    @classmethod
    def of_bytes(cls, data: bytes, own: Redactor) -> _Shown:
        """Text, or ``{"base64": …}`` where it is none; only the beginning where that is too long."""
        try:
            text, errors = data.decode(), "ignore"
        except UnicodeDecodeError:
            text, errors = data.decode(errors="surrogateescape"), "surrogateescape"
        shown = own.hide_known(text, length_max=len(data[:SHOWN_BYTES_MAX].decode(errors=errors)))
        is_cut = len(data) > SHOWN_BYTES_MAX
        return cls(shown if errors == "ignore" else as_base64(shown.encode(errors=errors)), is_cut)

    @classmethod
    def of(cls, value: Any, own: Redactor) -> _Shown:
        """As JSON has it (dates, decimals and bytes of Avro as text); only its beginning where that is too long."""
        if isinstance(value, bytes) and len(value) > SHOWN_BYTES_MAX:
            return cls.of_bytes(value, own)
        text = as_json_text(value)
        if len(text) > SHOWN_BYTES_MAX:
            return cls(own.hide_known(text, length_max=SHOWN_BYTES_MAX), is_cut=True)
        return cls(_hidden(json.loads(text), own))


def _hidden(value: Any, own: Redactor) -> Any:
    """A JSON-like value without secrets, be they texts, numbers or names; what was a number is a text then."""
    if isinstance(value, str):
        return own.hide_known(value)
    if isinstance(value, Mapping):
        return {own.hide_known(name): _hidden(item, own) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item, own) for item in value]
    if value is None or isinstance(value, bool):
        return value
    text = as_json_text(value)
    hidden = own.hide_known(text)
    return value if hidden == text else hidden
