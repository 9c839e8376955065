"""Samples for ``headrace contract infer`` from connectors and topics."""

from __future__ import annotations

import os
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

from service.cli.access import AccessOptions, TopicAccess, opened_access
from service.cli.findings import print_refusal
from service.cli.preview import interruptible, read_source
from service.cli.printing import printable
from service.embedded.errors import EmbeddedError
from service.job import ConfigRefusedError
from service.kafka.errors import KafkaFailure
from service.kafka.reader import read_topic
from service.preview.samples import SampleError, SampleSource, SampleToldError
from service.preview.sampling import SampleLimits, sample, sampled_connector
from service.reading.decoding import Decoder, as_json_text
from service.registry.client import RegistryClient
from service.registry.errors import RegistryFailure

EXIT_FAILED, EXIT_REFUSED = 1, 2
SAMPLE_BYTES_MAX, SAMPLE_SECONDS_MAX = 256 << 20, 120.0


@dataclass(frozen=True, slots=True)
class PayloadSample:
    """Payloads, and whether all their fields are texts because their format has no types."""

    payloads: list[bytes]
    is_typeless: bool = False


class _SourceFailedError(Exception):
    """The connector's source could not be read; the message says why."""


def sample_elsewhere(source: SampleSource, records_max: int) -> PayloadSample:
    """The first records of a connector's source, or else of a topic.

    Raises SampleError, SampleToldError, and CancelledError after Ctrl-C.
    """
    path = Path(source.name)
    try:
        if path.suffix == ".properties" or path.exists():
            return interruptible(_of_connector(path, source.worker, records_max))
        if "/" in source.name:
            message = "there is no such file, and a topic has no / in its name"
            raise SampleError(message)
        return interruptible(_of_topic(source, records_max))
    except ConfigRefusedError as refusal:
        print_refusal(refusal)
        raise SampleToldError(EXIT_REFUSED) from refusal
    except (_SourceFailedError, EmbeddedError, KafkaFailure, RegistryFailure) as error:
        console = Console(stderr=True, soft_wrap=True, highlight=False)
        console.print(Text(printable(f"headrace: {source.name}: {error}"), style="red"))
        raise SampleToldError(EXIT_FAILED) from error


async def _of_connector(file: Path, worker: Path | None, records_max: int) -> PayloadSample:
    """Payloads of a connector's source, and whether they have no types; its contract, if it names one, is not read."""
    job = read_source(file, worker, is_contract_read=False)
    for secret in job.secrets():
        job.providers.redactor.learn(secret)
    (definition,) = job.definitions(registry_url=None)
    connector = sampled_connector(definition)
    limits = SampleLimits(records_max=records_max, bytes_max=SAMPLE_BYTES_MAX, seconds_max=SAMPLE_SECONDS_MAX)
    found = await sample(definition, limits, connector=connector)
    payloads = [payload for page in found.pages for payload in page.values() if payload is not None]
    if not payloads and found.error is not None:
        raise _SourceFailedError(job.providers.redactor.redact(f"the source gave nothing: {found.error}"))
    return PayloadSample(payloads, connector.is_typeless)


async def _of_topic(source: SampleSource, records_max: int) -> PayloadSample:
    async with opened_access(AccessOptions(**source.access), environ=os.environ) as access:
        return await topic_sample(source.name, access, records_max)


async def topic_sample(topic: str, access: TopicAccess, records_max: int) -> PayloadSample:
    """Values of committed records; those in Avro as JSON, where a registry is named."""
    decoder, payloads = Decoder(), list[bytes]()
    async with AsyncExitStack() as stack:
        if access.registry is not None:
            decoder.schema_by_id = (await stack.enter_async_context(RegistryClient(access.registry))).by_id
        records = await stack.enter_async_context(aclosing(read_topic(access.kafka, topic)))
        async for batch in records:
            for value in (record.value for record in batch):
                if value is not None and len(payloads) < records_max:
                    is_framed = value[:1] == b"\0"
                    payloads.append(as_json_text(await decoder.decode(value)).encode() if is_framed else value)
            if len(payloads) >= records_max:
                break
    if decoder.has_missed_schemas:
        message = "some of it looks like Avro: name its registry by --registry, or take the schema that is there"
        raise SampleError(message)
    return PayloadSample(payloads)
