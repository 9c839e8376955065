"""The runtime and control plane: what runs fetchers, converts their pages and delivers them to Kafka."""
