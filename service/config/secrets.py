"""Which values of a job are secrets, so that no log line shows them."""

from __future__ import annotations

from collections.abc import Iterator

from service.config.job import Job
from service.config.secret_names import secrets_in
from service.validation.secrets import secrets_of_connector


def secrets_of(job: Job) -> Iterator[str]:
    """Values of the connectors' secret keys, and of any key that is named like one."""
    yield from secrets_in(job.worker_properties)
    for connector in job.connectors:
        yield from secrets_of_connector(job.resolved(connector, registry_url=None))
    for held in (*job.worker.rest_auth_users.values(), *job.worker.rest_auth_tokens.values()):
        yield held.get_secret_value().partition(":")[2]
