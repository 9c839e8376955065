"""Mixpanel-shaped JSON lines, the same for everyone who is measured."""

from __future__ import annotations

import json
from pathlib import Path

CONTRACT = {
    "type": "record",
    "name": "Event",
    "namespace": "headrace.bench",
    "fields": [
        {"name": "event", "type": "string"},
        {
            "name": "properties",
            "type": {
                "type": "record",
                "name": "Properties",
                "fields": [
                    {"name": "time", "type": "long"},
                    {"name": "distinct_id", "type": "string"},
                    {"name": "insert_id", "type": "string", "json.name": "$insert_id"},
                    {"name": "city", "type": ["null", "string"], "default": None, "json.name": "$city"},
                    {"name": "amount", "type": ["null", "double"], "default": None},
                    {"name": "is_trial", "type": ["null", "boolean"], "default": None},
                ],
            },
        },
    ],
}
_NAMES = ("Signed up", "Purchase", "Viewed page", "Search")
_CITIES = ("Zürich", "São Paulo", "Tokyo", "Paris")


def line(number: int) -> bytes:
    """One event, about 200 bytes; different for every number."""
    event = {
        "event": _NAMES[number % 4],
        "properties": {
            "time": 1_600_000_000 + number,
            "distinct_id": f"user-{number % 50_000}",
            "$insert_id": f"{number:032x}",
            "$city": _CITIES[number % 4],
            "amount": number % 1000 / 4,
            "is_trial": number % 3 == 0,
        },
    }
    return json.dumps(event, ensure_ascii=False).encode()


def write_lines(path: Path, *, count: int) -> Path:
    """A file of ``count`` lines; kept when it is already there."""
    done = path.with_suffix(f".{count}")
    if not done.exists():
        with path.open("wb") as file:
            for start in range(0, count, 10_000):
                numbers = range(start, min(start + 10_000, count))
                file.write(b"".join(line(number) + b"\n" for number in numbers))
        done.touch()
    return path
