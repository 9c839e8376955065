"""Which values of a job are secrets, so that no log line shows them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from service.config.job import Job
from service.config.secret_names import names_a_secret


def secrets_of(job: Job) -> Iterator[str]:
    """Values of the connectors' secret keys, and of any key that is named like one."""
    for definition in job.definitions():
        secret_keys = {
            key.name for key in definition.connector_class.config_class.config_keys() if key.kind == "PASSWORD"
        }
        yield from (value for key, value in definition.properties.items() if key in secret_keys)
    for properties in (job.worker_properties, *job.connectors):
        yield from _named_like_secrets(properties)
    for held in (*job.worker.rest_auth_users.values(), *job.worker.rest_auth_tokens.values()):
        yield held.get_secret_value().partition(":")[2]


def _named_like_secrets(properties: Mapping[str, str]) -> Iterator[str]:
    for key, value in properties.items():
        if names_a_secret(key):
            yield value
            yield from value.split(":")[1:] if key.endswith("user.info") else ()
