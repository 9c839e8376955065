"""What the demo reads: a simulated Mixpanel project with everything that goes wrong, and a file of orders."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from service.simulators.mixpanel_settings import CONTRACT_PATH, Fault, FaultKind, MixpanelSettings

EVENTS_TOPIC, ORDERS_TOPIC = "demo-events", "demo-orders"
DAYS = 10
ORDERS = 20_000
_BROKEN_EVERY, _WRONG_EVERY = 1_000, 1_500
ORDER_SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "headrace.demo",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


@dataclass(frozen=True, slots=True)
class OrdersFile:
    """The file as written, and what must come of it."""

    path: Path
    good: int
    bad: int


def project(*, today: date, events_per_day: int = 10_500) -> MixpanelSettings:
    """Ten days with malformed, wrong-typed, duplicate and late events, limits, a cut and an early end."""
    first = today - timedelta(days=DAYS)

    def fault(kind: FaultKind, day: int, **options: object) -> Fault:
        return Fault(kind=kind, day=first + timedelta(days=day), **options)  # type: ignore[arg-type]

    return MixpanelSettings(
        first_day=first,
        days=DAYS,
        events_per_day=events_per_day,
        malformed_per_day=15,
        wrong_typed_per_day=25,
        duplicates_per_day=200,
        late_per_day=50,
        late_days=4,
        now=datetime.combine(today, datetime.min.time(), UTC) + timedelta(hours=12),
        enforces_limits=True,
        faults=(
            fault(FaultKind.STATUS, 1, status=429, headers=(("Retry-After", "1"),)),
            fault(FaultKind.CUT, 3, fraction=0.6),
            fault(FaultKind.TERMINATED_EARLY, 5, fraction=0.4),
            fault(FaultKind.STATUS, 7, status=503),
        ),
    )


def write_orders(path: Path) -> OrdersFile:
    """Lines of orders: a few broken, some of a wrong type, text with U+2028 and multi-byte letters."""
    bad = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        for number in range(1, ORDERS + 1):
            order: dict[str, object] = {"number": number, "customer": f"Zoë {number % 97}", "amount": number / 4}
            if number % 5 == 0:
                order["note"] = "first line\u2028second line"
            line = json.dumps(order, ensure_ascii=False)
            if number % _BROKEN_EVERY == 0:
                line, bad = line[: len(line) // 2], bad + 1
            elif number % _WRONG_EVERY == 1:
                line, bad = line.replace(f'"number": {number}', f'"number": "{number}"'), bad + 1
            file.write(line + "\n")
    return OrdersFile(path, ORDERS - bad, bad)


def connectors(*, simulator_url: str, settings: MixpanelSettings, orders: Path) -> tuple[Mapping[str, str], ...]:
    """The two connectors, as a user would write them."""
    tolerant = {"errors.tolerance": "all", "value.converter": "io.confluent.connect.avro.AvroConverter"}
    return (
        {
            "name": "demo-mixpanel",
            "connector.class": "MixpanelSource",
            "topic": EVENTS_TOPIC,
            "from_date": settings.first_day.isoformat(),
            "mixpanel.to.date": settings.last_day.isoformat(),
            "mixpanel.project.id": settings.project_id,
            "mixpanel.service.account.username": settings.username,
            "mixpanel.service.account.secret": settings.secret,
            "mixpanel.base.url": simulator_url,
            "contract.schema": f"file:{CONTRACT_PATH}",
            **tolerant,
        },
        {
            "name": "demo-file",
            "connector.class": "FileStreamSource",
            "topic": ORDERS_TOPIC,
            "file": str(orders),
            "contract.schema": json.dumps(ORDER_SCHEMA),
            **tolerant,
        },
    )


def event_key(event: Mapping[str, Mapping[str, object]]) -> object:
    """Mixpanel's own key of an event (``reference/event-deduplication``)."""
    properties = event["properties"]
    return event["event"], properties["distinct_id"], properties["time"], properties["insert_id"]


def order_key(order: Mapping[str, object]) -> object:
    """The key of an order: its number."""
    return order["number"]
