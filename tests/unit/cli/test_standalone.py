"""How a worker ends that could not start: what only a person can mend has another exit code than what may pass."""

from __future__ import annotations

import errno

import pytest

from fetchers.sdk import Finding
from service.cli.standalone import EXIT_CONFIG, EXIT_FAILED, run_to_end
from service.embedded.errors import DataDirectoryBusy, PortBusy, StartFailed
from service.embedded.jars import PartsMissing
from service.job import ConfigRefusedError, Job, SourceFindings
from service.kafka.errors import DeliveryFatal
from service.rest.server import ListenError


async def exit_code(error: Exception) -> int:
    """Of a worker whose start ends so."""

    def read() -> Job:
        raise error

    return await run_to_end(read)


def refused_listener(number: int) -> ListenError:
    """As the REST server raises it."""
    error = ListenError("Cannot listen on http://127.0.0.1:8083")
    error.__cause__ = OSError(number, "text of the system")
    return error


@pytest.mark.parametrize(
    "error",
    [
        StartFailed("kafka was not ready within 60 s"),
        PortBusy("something else listens there"),
        ConnectionResetError("reset by peer"),
        OSError(errno.ENOSPC, "No space left on device"),
        refused_listener(errno.EADDRINUSE),
    ],
    ids=repr,
)
async def test_what_may_pass_is_worth_another_try(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, with the reason on standard error."""
    assert await exit_code(error) == EXIT_FAILED
    assert str(error) in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        PartsMissing("something has to be installed"),
        DataDirectoryBusy("another worker uses it"),
        DeliveryFatal("Topic 'offsets' is required to have 'cleanup.policy=compact'"),
        PermissionError(errno.EACCES, "Permission denied", "/data"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/data"),
        OSError(errno.EROFS, "Read-only file system", "/data"),
        refused_listener(errno.EADDRNOTAVAIL),
        refused_listener(errno.EACCES),
    ],
    ids=repr,
)
async def test_what_somebody_has_to_change_is_not(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with the reason on standard error."""
    assert await exit_code(error) == EXIT_CONFIG
    assert str(error)[:40] in capsys.readouterr().err


async def test_a_refused_configuration_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, with its findings on standard error."""
    refusal = ConfigRefusedError([SourceFindings("worker", (Finding("log.format", "xml", "Expected json"),))])
    assert await exit_code(refusal) == EXIT_CONFIG
    assert "log.format" in capsys.readouterr().err
