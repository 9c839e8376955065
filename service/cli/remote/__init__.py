"""Commands that ask a running worker, headrace's or Kafka Connect's own: both answer the same REST."""
