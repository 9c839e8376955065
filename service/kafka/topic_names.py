"""Which names a topic may have, as Kafka's own `Topic.validate` says."""

from __future__ import annotations

import re

TOPIC_NAME_RULE = "1 to 249 of A-Z a-z 0-9 . _ -, and neither '.' nor '..'"
_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_topic_name(name: str) -> bool:
    """Whether brokers make a topic of this name."""
    return _LEGAL.fullmatch(name) is not None and name not in {".", ".."}
