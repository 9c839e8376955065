"""What the worker remembers in Kafka: source offsets and the keys already delivered."""
