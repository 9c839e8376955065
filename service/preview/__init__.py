"""See before it runs: records of a connector's real source, judged by its contract, and written nowhere."""
