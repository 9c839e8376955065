"""Configuration: files in Kafka Connect's forms, worker keys, the keys every source connector has."""
