"""headrace's own version; the imitated Kafka Connect's is another matter (DESIGN §8)."""

VERSION = "0.1.0"
