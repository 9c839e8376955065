"""``headrace dev``: Kafka, a schema registry and one worker on this machine, all real, for a first look."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from service.app import Addresses
from service.cli.standalone import run_to_end
from service.job import Job, make_job


async def run_dev(*, data_dir: Path, rest_port: int, kafka_port: int, registry_port: int) -> int:
    """Until told to stop; exit codes as of a worker."""
    properties = dev_properties(
        data_dir=data_dir, rest_port=rest_port, kafka_port=kafka_port, registry_port=registry_port
    )
    return await run_to_end(lambda: dev_job(properties), is_distributed=True, tell=tell_addresses)


def dev_job(properties: dict[str, str]) -> Job:
    """A worker without connectors of its own: those made by REST are kept in Kafka, and come back."""
    return make_job(properties, ())


def dev_properties(*, data_dir: Path, rest_port: int, kafka_port: int, registry_port: int) -> dict[str, str]:
    """Properties of a worker that embeds Kafka and a registry, for development."""
    return {
        "bootstrap.servers": "embedded",
        "embedded.kafka.port": str(kafka_port),
        "schema.registry.url": "embedded",
        "embedded.registry.port": str(registry_port),
        "data.dir": str(data_dir),
        "listeners": f"http://127.0.0.1:{rest_port}",
        "group.id": "headrace-dev",
    }


def tell_addresses(addresses: Addresses) -> None:
    """What a person wants to know, once it is true."""
    console = Console()
    console.print(f"REST:     {addresses.rest}")
    console.print(f"Kafka:    {addresses.bootstrap}")
    console.print(f"registry: {addresses.registry}")
    console.print("Ctrl-C ends it; data and connectors stay.")
