"""``headrace redrive``: dead letters through the mended contract."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from service.cli.findings import print_refusal
from service.cli.printing import printable
from service.cli.standalone import (
    EXIT_CLEAN,
    EXIT_CONFIG,
    EXIT_FAILED,
    configure_job_logging,
    exit_code_of,
    raise_file_limit,
)
from service.embedded.errors import EmbeddedError
from service.job import ConfigRefusedError, read_job
from service.kafka.errors import KafkaFailure
from service.redrive.run import RedriveReport, TypedRowsError, UnknownDeadLetterTopicError, redrive
from service.registry.errors import RegistryFailure
from spark_batch.errors import ConversionError

_REFUSALS = (
    UnknownDeadLetterTopicError,
    TypedRowsError,
    EmbeddedError,
    KafkaFailure,
    RegistryFailure,
    ConversionError,
    OSError,
)
"""Told in one line: the topic or the servers are not what the files say, are away, or another process has them."""


async def run_redrive(topic: str, worker_file: Path, connector_files: Sequence[Path]) -> int:
    """Exit code: 0 all were tried, 1 the redrive failed or its start may succeed another time, 2 configuration."""
    try:
        job = read_job(worker_file, connector_files)
        configure_job_logging(job)
        raise_file_limit()
        report = await redrive(topic, job)
    except ConfigRefusedError as refusal:
        print_refusal(refusal)
        return EXIT_CONFIG
    except _REFUSALS as error:
        Console(stderr=True, soft_wrap=True).print(Text(printable(f"headrace: {error}"), style="red"))
        return exit_code_of(error)
    Console(soft_wrap=True).print(told(report))
    if report.is_failed:
        text = f"headrace: the redrive failed, and goes on from there the next time: {report.failure}"
        Console(stderr=True, soft_wrap=True).print(Text(printable(text), style="red"))
    return EXIT_FAILED if report.is_failed else EXIT_CLEAN


def told(report: RedriveReport) -> str:
    """What became of the letters, in one line."""
    counts = (
        f"{report.passed:,} passed and were delivered, {report.passed_before:,} had been delivered before, "
        f"{report.failed_again:,} failed again and stay"
    )
    return f"{counts}, {report.nameless:,} without headers were passed over" if report.nameless else counts
