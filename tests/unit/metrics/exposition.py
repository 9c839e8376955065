"""Reads what ``render`` writes, with the client library's own parser."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Exposition:
    """The samples of one answer to GET /metrics, by name and labels."""

    def __init__(self, text: bytes) -> None:
        self.samples: Samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float | None:
        """Return the sample with exactly these labels, None where there is none."""
        return self.samples.get((name, frozenset(labels.items())))

    def names(self) -> set[str]:
        """Return the names of all samples."""
        return {name for name, _ in self.samples}

    def connectors(self) -> set[str]:
        """Return every connector any sample belongs to."""
        return {value for _, labels in self.samples for name, value in labels if name == "connector"}
