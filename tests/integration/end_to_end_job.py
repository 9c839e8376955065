"""One worker with a connector of every kind, run to its idle end: the job of the end-to-end tests."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

from service.embedded.running import running
from service.kafka.reader import StoredRecord
from service.simulators.mixpanel import MixpanelSimulator
from service.simulators.mixpanel_ledger import Truth
from service.simulators.mixpanel_settings import CONTRACT_PATH, Fault, FaultKind, MixpanelSettings
from tests import journal
from tests.contracts.loopback import serve
from tests.faults.worker_life import WorkerLife, pause, write_properties

ITEMS, ITEMS_PER_PAGE = 25, 10
RUN_SECONDS_MAX, LOOK_SECONDS = 280.0, 0.5
FIRST_DAY = date(2024, 2, 27)
ORDER_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
OWN_CONNECTOR = '''
from pathlib import Path

from fetchers.sdk import FetcherConfig, Page, SourceConnector


class CountdownConfig(FetcherConfig):
    """Where a countdown begins."""

    start: int = 3
    """First number but one."""


class Countdown(SourceConnector[CountdownConfig]):
    async def fetch(self, context):
        left = context.offset.get("left", self.config.start)
        while left:
            left -= 1
            yield Page([b'{"left":%d}' % left], offset={"left": left})
        # A round that is not over is not idle: so long the worker cannot end by itself.
        while not Path(__file__).with_name("seen").exists():
            await context.clock.sleep(0.1)
'''


def order(number: int) -> bytes:
    """A good line of the orders file."""
    text = {"number": number, "customer": f"Zoë {number}", "at": 1_700_000_000_000 + number}
    return json.dumps(text, ensure_ascii=False).encode()


ORDERS = [order(number) for number in range(40)]
BROKEN, WRONG = b'{"number": 7, "custom', b'{"number": "8", "customer": "x", "at": 0}'
REPEATED = ORDERS[5]
ORDER_LINES = [*ORDERS[:20], BROKEN, REPEATED, *ORDERS[20:], WRONG]
TEXT_LINES = [b"plain", "Zürich \u2028 café".encode(), b'{"looks": "like JSON"}', b"", b" spaces  "]


def connectors(
    folder: Path, *, api_url: str, mixpanel: MixpanelSettings, mixpanel_url: str
) -> dict[str, dict[str, str]]:
    """Every connector by its short name."""
    orders = {"connector.class": "FileStreamSource", "file": str(_written(folder / "orders.jsonl", ORDER_LINES))}
    good = {"connector.class": "FileStreamSource", "file": str(_written(folder / "good.jsonl", ORDERS))}
    text = {"connector.class": "FileStreamSource", "file": str(_written(folder / "text.txt", TEXT_LINES))}
    contract = {"contract.schema": json.dumps(ORDER_SCHEMA)}
    avro = {"value.converter": "io.confluent.connect.avro.AvroConverter"}
    tolerant = {"errors.tolerance": "all"}
    return {
        "orders": {**orders, **contract, **avro, **tolerant, "dedupe.fields": "number"},
        "enveloped": {
            **good,
            **contract,
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "true",
        },
        "plain": {**good, **contract, "value.converter": "json"},
        "text": {**text, "value.converter": "org.apache.kafka.connect.storage.StringConverter"},
        "raw": {**text, "value.converter": "bytes"},
        "keyed": {
            **good,
            **contract,
            "value.converter": "json",
            "key.converter": "json",
            "key.fields": "number",
            "timestamp.field": "at",
            "topic.creation.default.partitions": "3",
            "topic.creation.default.replication.factor": "1",
        },
        "loose": {**good, **contract, "value.converter": "json", "delivery.guarantee": "at_least_once"},
        "resumed": {**text, "value.converter": "bytes"},
        "own": {"connector.class": "own_source:Countdown", "start": "4"},
        "http": {
            "connector.class": "HttpSource",
            "http.url": f"{api_url}/items",
            "http.records.path": "items",
            "http.offset.field": "t",
            "http.pagination.type": "cursor",
            "http.pagination.cursor.path": "next",
            "poll.interval.ms": "500",
        },
        "mixpanel": {
            "connector.class": "MixpanelSource",
            "from_date": mixpanel.first_day.isoformat(),
            "mixpanel.to.date": mixpanel.last_day.isoformat(),
            "mixpanel.project.id": mixpanel.project_id,
            "mixpanel.service.account.username": mixpanel.username,
            "mixpanel.service.account.secret": mixpanel.secret,
            "mixpanel.base.url": mixpanel_url,
            "contract.schema": f"file:{CONTRACT_PATH}",
            **avro,
            **tolerant,
        },
    }


def _written(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def mixpanel_project() -> MixpanelSettings:
    """Three days, with bad and repeated lines, a cut and a 429."""
    return MixpanelSettings(
        first_day=FIRST_DAY,
        days=3,
        events_per_day=200,
        malformed_per_day=2,
        wrong_typed_per_day=3,
        duplicates_per_day=7,
        faults=(
            Fault(kind=FaultKind.STATUS, day=FIRST_DAY, status=429, headers=(("Retry-After", "1"),)),
            Fault(kind=FaultKind.CUT, day=FIRST_DAY + timedelta(days=1)),
        ),
    )


async def answer_items(request: web.Request) -> web.Response:
    """A page of items and where the next begins."""
    start = int(request.query.get("cursor", "0"))
    end = min(start + ITEMS_PER_PAGE, ITEMS)
    items = [{"id": number, "t": 100 + number} for number in range(start, end)]
    return web.json_response({"items": items, "next": str(end) if end < ITEMS else None})


@dataclass
class FinishedRun:
    """What a run left behind, and what could be seen of it from outside while it ran."""

    prefix: str
    bootstrap: str
    registry_url: str
    folder: Path
    life: WorkerLife
    truth: Truth
    exit_code: int = -1
    healths: list[tuple[int, str]] = field(default_factory=list)
    """Distinct answers of ``/health/ready``, in order."""
    metrics: str = ""
    """The last that ``/metrics`` said."""
    is_running_seen: bool = False
    """Whether every task was RUNNING when health was asked."""

    def name(self, short: str) -> str:
        """Full name of a connector, which is that of its topic."""
        return f"{self.prefix}-{short}"

    def records(self, short: str) -> list[StoredRecord]:
        """Committed records of a connector's topic, or of any other topic of this run."""
        return journal.committed_records(self.bootstrap, self.name(short))

    def values(self, short: str) -> list[bytes | None]:
        """Their values."""
        return [record.value for record in self.records(short)]

    def decoded(self, short: str) -> list[Any]:
        """Their values, out of Avro."""
        return journal.decoded(self.values(short), registry_url=self.registry_url)

    def delivered(self, *shorts: str) -> dict[str, float]:
        """By connector, what the metrics say of those that have delivered anything."""
        lines = [line for line in self.metrics.splitlines() if line.startswith("headrace_records_delivered_total{")]
        return {
            short: float(line.rpartition(" ")[2])
            for line in lines
            for short in shorts
            if f'{self.name(short)}"' in line
        }

    def watch_to_the_end(self) -> None:
        """Look at health and metrics until all is seen, and the worker has ended by itself."""
        for _ in range(int(RUN_SECONDS_MAX / LOOK_SECONDS)):
            if not self.life.is_running:
                break
            health = self.life.get("/health/ready")
            if health[0] and (not self.healths or health != self.healths[-1]):
                self.healths.append(health)
                self.is_running_seen |= _are_running(*health)
            status, text = self.life.get("/metrics")
            self.metrics = text if status == 200 else self.metrics
            if self.is_running_seen and self.delivered("orders", "http") == {"orders": len(ORDERS), "http": ITEMS}:
                (self.folder / "seen").touch()
            pause(LOOK_SECONDS)
        self.exit_code = self.life.wait(seconds_max=180)


def _are_running(status: int, health: str) -> bool:
    return status == 200 and {task["state"] for task in json.loads(health)["tasks"].values()} == {"RUNNING"}


@contextmanager
def finished_run(folder: Path, *, prefix: str, bootstrap: str, registry_url: str) -> Iterator[FinishedRun]:
    """Run the whole job to its idle end."""
    settings = mixpanel_project()
    (folder / "own_source.py").write_text(OWN_CONNECTOR, encoding="utf-8")
    with ExitStack() as stack:
        api = stack.enter_context(running(serve(answer_items), name="api"))
        simulator = stack.enter_context(running(MixpanelSimulator(settings), name="mixpanel"))
        parts = connectors(folder, api_url=api.server, mixpanel=settings, mixpanel_url=simulator.server.url)
        life = WorkerLife(
            *_files(folder, parts, prefix=prefix, bootstrap=bootstrap, registry_url=registry_url),
            log=folder / "worker.log",
            python_path=(folder,),
        )
        _store_offset_as_connect(bootstrap, prefix, parts["resumed"]["file"])
        run = FinishedRun(prefix, bootstrap, registry_url, folder, life, simulator.server.truth())
        try:
            life.start("--until-idle", "2")
            run.watch_to_the_end()
        finally:
            life.end()
        run.truth = simulator.server.truth()
        yield run


def _store_offset_as_connect(bootstrap: str, prefix: str, file: str) -> None:
    """As Kafka Connect's FileStreamSource would: behind the first line."""
    topic = f"{prefix}-offsets"
    journal.make_topic(bootstrap, topic, config={"cleanup.policy": "compact"})
    key = f'["{prefix}-resumed",{{"filename":"{file}"}}]'.encode()
    journal.write_record(bootstrap, topic, key=key, value=b'{"position":%d}' % (len(TEXT_LINES[0]) + 1))


def _files(
    folder: Path, parts: Mapping[str, Mapping[str, str]], *, prefix: str, bootstrap: str, registry_url: str
) -> list[Path]:
    worker = {
        "bootstrap.servers": bootstrap,
        "schema.registry.url": registry_url,
        "group.id": prefix,
        "listeners": "http://127.0.0.1:0",
        "data.dir": str(folder / "data"),
        "offset.storage.topic": f"{prefix}-offsets",
        "dedupe.storage.topic": f"{prefix}-dedupe",
        "log.format": "json",
        # That each task has stopped complete is not a matter of how busy the machine is.
        "task.shutdown.graceful.timeout.ms": "60000",
    }
    files = [write_properties(folder / "worker.properties", worker)]
    for short, properties in parts.items():
        named = {"name": f"{prefix}-{short}", "topic": f"{prefix}-{short}", "poll.interval.ms": "100", **properties}
        files.append(write_properties(folder / f"{short}.properties", named))
    return files
