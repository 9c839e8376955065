"""Records a second: file, HTTP and Mixpanel to validated Avro exactly once, beside Connect's strings at least once."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from service.simulators.mixpanel_events import render_day
from service.simulators.mixpanel_process import simulator_process
from service.simulators.mixpanel_settings import CONTRACT_PATH, MixpanelSettings
from tests.benchmarks.lines import CONTRACT, write_lines
from tests.benchmarks.pages import page_server
from tests.benchmarks.peer import connect_file_source
from tests.benchmarks.processes import Servers, headrace, write_properties
from tests.benchmarks.watching import Passage, processor_seconds, watch

AVRO = {"value.converter": "io.confluent.connect.avro.AvroConverter", "contract.schema": json.dumps(CONTRACT)}
TOPIC = {"topic.creation.default.partitions": "1"}
_RUNS = itertools.count()


@dataclass(frozen=True, slots=True)
class Field:
    """Where a benchmark plays."""

    folder: Path
    servers: Servers

    def worker(self, name: str, **more: str) -> Path:
        """A worker file on the shared servers."""
        properties = {
            "bootstrap.servers": self.servers.bootstrap,
            "schema.registry.url": self.servers.registry,
            "group.id": f"bench-{name}",
            "listeners": "http://127.0.0.1:0",
            "data.dir": str(self.folder / name),
            **{key.replace("_", "."): value for key, value in more.items()},
        }
        return write_properties(self.folder / f"{name}.worker.properties", properties)

    def connector(self, name: str, properties: Mapping[str, str]) -> Path:
        """A connector file; its topic has the connector's name."""
        own = {"name": name, "topic": name, **TOPIC, **properties}
        return write_properties(self.folder / f"{name}.properties", own)


async def run_headrace(field: Field, name: str, properties: Mapping[str, str], *, records: int) -> Passage:
    """A worker with one connector until all its records are readable."""
    log = field.folder / f"{name}.log"
    with headrace("standalone", str(field.worker(name)), str(field.connector(name, properties)), log=log) as child:
        sample = processor_seconds({"Python": child.pid, "broker": field.servers.pid})
        return await watch(field.servers.bootstrap, name, records=records, sample=sample)


async def peer(field: Field, run: str, *, records: int) -> Passage:
    """Kafka Connect on the same file and broker."""
    file = write_lines(field.folder / "lines.jsonl", count=records)
    topic = f"peer-{run}"
    folder = field.folder / topic
    with connect_file_source(folder, bootstrap=field.servers.bootstrap, file=file, topic=topic) as child:
        sample = processor_seconds({"Kafka Connect": child.pid, "broker": field.servers.pid})
        return await watch(field.servers.bootstrap, topic, records=records, sample=sample)


async def from_file(field: Field, run: str, *, records: int) -> Passage:
    """FileStreamSource to validated Avro."""
    file = write_lines(field.folder / "lines.jsonl", count=records)
    properties = {"connector.class": "FileStreamSource", "file": str(file), **AVRO}
    return await run_headrace(field, f"file-{run}", properties, records=records)


async def from_http(field: Field, run: str, *, records: int) -> Passage:
    """HttpSource on pages of 1,000."""
    with ExitStack() as stack:
        url = stack.enter_context(page_server(pages=records // 1_000))
        properties = {
            "connector.class": "HttpSource",
            "http.url": url,
            "http.records.path": "events",
            "http.pagination.type": "page_number",
            "http.pagination.continues": "true",
            **AVRO,
        }
        return await run_headrace(field, f"http-{run}", properties, records=records)


async def from_mixpanel(field: Field, run: str, *, records: int) -> Passage:
    """MixpanelSource on ten days."""
    settings = mixpanel_settings(records)
    with simulator_process(settings, is_prepared=True) as simulator:
        properties = mixpanel_properties(settings, simulator.url) | {"value.converter": AVRO["value.converter"]}
        return await run_headrace(field, f"mixpanel-{run}", properties, records=records)


async def from_file_of_events(field: Field, run: str, *, records: int) -> Passage:
    """FileStreamSource on the lines and the contract of `from_mixpanel`: what these cost whoever reads them."""
    file = field.folder / f"events-{records}.jsonl"
    settings = mixpanel_settings(records)
    if not file.exists():
        days = (settings.first_day + timedelta(days=number) for number in range(settings.days))
        file.write_bytes(b"".join(render_day(settings, day).base for day in days))
    properties = {
        "connector.class": "FileStreamSource",
        "file": str(file),
        "value.converter": AVRO["value.converter"],
        "contract.schema": f"file:{CONTRACT_PATH}",
    }
    return await run_headrace(field, f"events-{run}", properties, records=records)


def mixpanel_settings(records: int) -> MixpanelSettings:
    """A project of ten days."""
    return MixpanelSettings(first_day=date(2026, 1, 1), days=10, events_per_day=records // 10)


def mixpanel_properties(settings: MixpanelSettings, url: str) -> dict[str, str]:
    """A connector of that project, whoever runs it."""
    return {
        "connector.class": "MixpanelSource",
        "from_date": settings.first_day.isoformat(),
        "mixpanel.to.date": settings.last_day.isoformat(),
        "mixpanel.project.id": settings.project_id,
        "mixpanel.service.account.username": settings.username,
        "mixpanel.service.account.secret": settings.secret,
        "mixpanel.base.url": url,
        "errors.tolerance": "all",
        "contract.schema": f"file:{CONTRACT_PATH}",
    }


def run_name(number: int) -> str:
    """Different at each call: a topic that another figure has filled would be found full at once."""
    return f"{os.getpid()}-{number}-{next(_RUNS)}"
