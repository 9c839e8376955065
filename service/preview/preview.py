"""A preview: a sample of a connector's source with the verdicts on it, as values for a table, a page or a program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fetchers.sdk import FetchError, Retriable, SourceConnector
from metrics.redaction import HIDDEN
from service.config.definition import ConnectorDefinition
from service.domain.errors import described
from service.preview.judging import Judged, JudgedRecord, PreviewParts, judge, plan_to_judge_by
from service.preview.sampling import Sample, SampleEnd, SampleLimits, sample
from service.reading.decoding import as_base64, as_json_text
from service.validation.secrets import secrets_of_connector
from spark_batch.outcome import Reason

SHOWN_BYTES_MAX = 32 * 1024
"""Of one payload, key or value in an answer; what is longer is cut, and says so. Verdicts are on the whole record."""
_SECRET_LENGTH_MIN = 4


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
    secrets = sorted(
        (
            text
            for text in set(secrets_of_connector(shown.definition.properties, {}))
            if len(text) >= _SECRET_LENGTH_MIN
        ),
        key=len,
        reverse=True,
    )
    return {
        "connector": shown.definition.name,
        "topic": shown.definition.topic,
        "judged_by": "spark" if judged.is_by_spark else "exact",
        "records": [_record(record, secrets) for record in judged.records],
        "counts": {
            "records": len(judged.records),
            **{verdict: judged.count(verdict) for verdict in ("valid", "rejected", "duplicate")},
            "reasons": judged.reasons,
            "coerced": judged.coerced,
        },
        "source": {
            "end": taken.end.value,
            "has_more": taken.has_more,
            "records_left": taken.left,
            "offsets": [{"partition": partition, "offset": offset} for partition, offset in taken.offsets],
            "error": None if taken.error is None else hide(described(taken.error)),
        },
        "notes": list(notes(shown, hide=hide)),
    }


def _record(record: JudgedRecord, secrets: list[str]) -> dict[str, Any]:
    shown = {name: _Shown.of(value, secrets) for name, value in (("key", record.key), ("value", record.value))}
    payload = _Shown.of_payload(record.payload, secrets)
    return {
        "verdict": record.verdict,
        "stage": record.stage,
        "reason": record.reason,
        "field": record.field,
        "message": record.message,
        "topic": record.topic,
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
    """A value as an answer has it."""

    value: Any
    is_cut: bool = False

    @classmethod
    def of_payload(cls, payload: bytes | None, secrets: list[str]) -> _Shown:
        """Text, or ``{"base64": …}`` where it is none."""
        if payload is None:
            return cls(None)
        is_cut = len(payload) > SHOWN_BYTES_MAX
        begin = payload[:SHOWN_BYTES_MAX]
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            return cls(as_base64(begin), is_cut)
        return cls(_masked(begin.decode(errors="ignore") if is_cut else text, secrets), is_cut)

    @classmethod
    def of(cls, value: Any, secrets: list[str]) -> _Shown:
        """As JSON has it (dates, decimals and bytes of Avro as text); only its beginning where that is too long."""
        text = as_json_text(value)
        if len(text) > SHOWN_BYTES_MAX:
            return cls(_masked(text[:SHOWN_BYTES_MAX], secrets), is_cut=True)
        return cls(_masked(json.loads(text), secrets))


def _masked(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, dict):
        return {name: _masked(item, secrets) for name, item in value.items()}
    return [_masked(item, secrets) for item in value] if isinstance(value, list) else value
