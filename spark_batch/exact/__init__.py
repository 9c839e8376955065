"""The exact, slow path: plain Python's verdict on the few payloads that the Spark columns cannot vouch for."""
