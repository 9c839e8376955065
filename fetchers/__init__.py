"""What reads the outside world; it knows nothing of Kafka, Spark or REST."""
