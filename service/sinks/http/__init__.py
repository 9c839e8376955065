"""``HttpSink``: records as requests to an address."""
